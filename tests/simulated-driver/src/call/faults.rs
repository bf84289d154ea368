//! Faults on demand: the n-th call of a function fails with a chosen code.
//!
//! `SIMULATED_CUDA_FAIL="cuMemCreate:3=2,cuMemcpyDtoHAsync_v2:10+=999"` holds rules, separated by commas or
//! line ends: name, number of the call (from 1), `+` for this call and all later ones, status code.
//! `SIMULATED_CUDA_FAIL_FILE` names a file of such rules that is read again at each call while it exists;
//! a rule counts calls from when it first appears, so a test switches a fault on with rule `name:1=code`.
//! A failing call has no effect.

use std::collections::HashMap;
use std::sync::{Mutex, OnceLock};

use turnus_bindings::CUerror;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Rule {
    function: String,
    call: u64,
    from_then_on: bool,
    code: CUerror,
}

#[derive(Debug, Default)]
struct Faults {
    fixed: Vec<Rule>,
    file: Option<String>,
    /// Calls seen so far by each rule.
    counts: HashMap<Rule, u64>,
}

static FAULTS: OnceLock<Mutex<Faults>> = OnceLock::new();

/// Reads the environment; true when any fault can happen.
pub fn configure() -> bool {
    let fixed = std::env::var("SIMULATED_CUDA_FAIL").map(|text| parse(&text)).unwrap_or_default();
    let file = std::env::var("SIMULATED_CUDA_FAIL_FILE").ok();
    let any = !fixed.is_empty() || file.is_some();
    if any {
        let _ = FAULTS.set(Mutex::new(Faults { fixed, file, counts: HashMap::new() }));
    }
    any
}

/// Counts a call of `name` and returns the code with which it has to fail.
pub fn next(name: &str) -> Option<CUerror> {
    let mut faults = FAULTS.get()?.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let mut rules = faults.fixed.clone();
    if let Some(text) = faults.file.as_ref().and_then(|path| std::fs::read_to_string(path).ok()) {
        rules.extend(parse(&text));
    }
    faults.counts.retain(|rule, _| rules.contains(rule));
    let mut answer = None;
    for rule in rules {
        let (call, from_then_on, code) = (rule.call, rule.from_then_on, rule.code);
        let concerned = rule.function == name;
        let count = faults.counts.entry(rule).or_insert(0);
        if concerned {
            *count += 1;
            if *count == call || (from_then_on && *count > call) {
                answer = answer.or(Some(code));
            }
        }
    }
    answer
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
    Some(Rule {
        function: function.to_owned(),
        call: call.parse().ok()?,
        from_then_on,
        code: CUerror::new(code.parse().ok()?)?,
    })
}
