//! Faults on demand: the n-th call of a function fails with a chosen code. Shared by the simulated libraries.
//!
//! Rules `cuMemCreate:3=2,cuMemcpyDtoHAsync_v2:10+=999` are separated by commas or line ends: name, number of
//! the call (from 1), `+` for this call and all later ones, status code. A file of such rules is read again at
//! each call while it exists; a rule counts calls from when it first appears, so a test switches a fault on
//! with rule `name:1=code`. What a code means, and that a failing call has no effect, is the caller's business.

use std::collections::HashMap;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Rule {
    function: String,
    call: u64,
    from_then_on: bool,
    code: u32,
}

/// The rules of one library in one process, with the calls counted so far.
#[derive(Debug)]
pub struct Faults {
    fixed: Vec<Rule>,
    file: Option<String>,
    /// Calls seen so far by each rule.
    counts: HashMap<Rule, u64>,
}

impl Faults {
    /// Reads two environment variables, one with rules and one with the name of a file of rules; `None` when
    /// no fault can ever happen. Rules that make no sense are told on stderr and left out.
    pub fn from_environment(rules_variable: &str, file_variable: &str) -> Option<Self> {
        let fixed = std::env::var(rules_variable).map(|text| parse(&text)).unwrap_or_default();
        let file = std::env::var(file_variable).ok();
        (!fixed.is_empty() || file.is_some()).then(|| Self { fixed, file, counts: HashMap::new() })
    }

    /// Counts a call of `name` and returns the code with which it has to fail.
    pub fn next(&mut self, name: &str) -> Option<u32> {
        let mut rules = self.fixed.clone();
        if let Some(text) = self.file.as_ref().and_then(|path| std::fs::read_to_string(path).ok()) {
            rules.extend(parse(&text));
        }
        self.counts.retain(|rule, _| rules.contains(rule));
        let mut answer = None;
        for rule in rules {
            let (call, from_then_on, code) = (rule.call, rule.from_then_on, rule.code);
            let concerned = rule.function == name;
            let count = self.counts.entry(rule).or_insert(0);
            if concerned {
                *count += 1;
                if *count == call || (from_then_on && *count > call) {
                    answer = answer.or(Some(code));
                }
            }
        }
        answer
    }
}

fn parse(text: &str) -> Vec<Rule> {
    text.split([',', '\n'])
        .map(str::trim)
        .filter(|rule| !rule.is_empty())
        .filter_map(|rule| {
            let parsed = parse_rule(rule);
            if parsed.is_none() {
                eprintln!("simulated driver: fault rule {rule:?} is not of the form function:call[+]=code");
            }
            parsed
        })
        .collect()
}

fn parse_rule(text: &str) -> Option<Rule> {
    let (function, rest) = text.split_once(':')?;
    let (call, code) = rest.split_once('=')?;
    let (call, from_then_on) = match call.strip_suffix('+') {
        Some(call) => (call, true),
        None => (call, false),
    };
    let code = code.parse().ok().filter(|code| *code != 0)?;
    Some(Rule { function: function.to_owned(), call: call.parse().ok()?, from_then_on, code })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_third_call_fails_and_with_a_plus_all_later_ones() {
        let fixed = parse("a:3=2, b:2+=999,c:1=0,nonsense");
        assert_eq!(fixed.len(), 2, "code 0 would be success, and nonsense is left out");
        let mut faults = Faults { fixed, file: None, counts: HashMap::new() };
        let answers = ["a", "b", "a", "b", "a", "b", "a"].map(|name| faults.next(name));
        assert_eq!(answers, [None, None, None, Some(999), Some(2), Some(999), None]);
    }
}
