//! Faults on demand: calls that fail, wait, or take a device with them. Shared by the simulated libraries.
//!
//! Rules (`faults/rule.rs`) are separated by commas or line ends, e.g. `cuMemCreate:3=2,cuMemFree_v2:5%=delay2ms`.
//! A file of such rules is looked at at each call while it exists; a rule counts calls from when it first appears,
//! so a test switches a fault on with rule `name:1=code`. Chance comes from a seed and the number of the call
//! alone: the same calls in the same order meet the same faults. What a code means, and that a failing call has
//! no effect, is the caller's business.

mod rule;

pub use rule::{Fault, LostDevice};

use rule::{Rule, When};

/// The rules of one library in one process, with the calls counted so far.
#[derive(Debug)]
pub struct Faults {
    fixed: Vec<Counted>,
    /// Name of a file of rules.
    file: Option<String>,
    /// The file's text when it was last looked at.
    text: String,
    changing: Vec<Counted>,
    seed: u64,
    /// Where the rules come from, for messages.
    source: String,
}

#[derive(Clone, Debug)]
struct Counted {
    rule: Rule,
    /// Tells the chances of one rule from those of another.
    number: u64,
    calls: u64,
}

impl Faults {
    /// Reads the environment variables `<variable>` (rules), `<variable>_FILE` (name of a file of rules) and
    /// `<variable>_SEED`; `None` when no fault can ever happen. Rules that make no sense are told on stderr and
    /// left out.
    pub fn from_environment(variable: &str) -> Option<Self> {
        let variables = ["", "_FILE", "_SEED"].map(|ending| std::env::var(format!("{variable}{ending}")));
        let [rules, file, seed] = variables.map(Result::ok);
        let fixed = rules.map(|text| parse(&text, variable)).unwrap_or_default();
        let seed = seed.map_or(0, |text| {
            text.trim().parse().unwrap_or_else(|_| {
                eprintln!("simulated driver: {variable}_SEED={text} is not a whole number; using 0");
                0
            })
        });
        let source = file.clone().unwrap_or_default();
        let is_possible = !fixed.is_empty() || file.is_some();
        is_possible.then(|| Self { fixed, file, text: String::new(), changing: Vec::new(), seed, source })
    }

    /// Counts a call of `name` and says what has to happen at it.
    pub fn next(&mut self, name: &str) -> Option<Fault> {
        self.look_at_file();
        let mut found: Option<Fault> = None;
        for counted in self.fixed.iter_mut().chain(&mut self.changing) {
            if counted.is_hit(name, self.seed) {
                found.get_or_insert_default().join(&counted.rule.fault);
            }
        }
        found
    }

    /// A rule that stays in the file goes on counting.
    fn look_at_file(&mut self) {
        let Some(path) = &self.file else { return };
        let text = std::fs::read_to_string(path).unwrap_or_default();
        if text == self.text {
            return;
        }
        let mut new = parse(&text, &self.source);
        for counted in &mut new {
            if let Some(old) = self.changing.iter().find(|old| old.rule == counted.rule) {
                counted.calls = old.calls;
            }
        }
        (self.changing, self.text) = (new, text);
    }
}

impl Counted {
    fn is_hit(&mut self, name: &str, seed: u64) -> bool {
        if self.rule.function.as_ref().is_some_and(|function| function != name) {
            return false;
        }
        self.calls += 1;
        match self.rule.when {
            When::Call(call) => self.calls == call,
            When::From(call) => self.calls >= call,
            When::Probability(probability) => {
                let chance = mixed(mixed(seed ^ mixed(self.number)) ^ self.calls);
                ((chance >> 11) as f64) < probability * (1_u64 << 53) as f64
            }
        }
    }
}

/// SplitMix64: neighbouring numbers become unlike ones.
fn mixed(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

fn parse(text: &str, source: &str) -> Vec<Counted> {
    let rules = text.split([',', '\n']).map(str::trim).filter(|rule| !rule.is_empty());
    rules
        .filter_map(|rule| {
            let parsed = Rule::parse(rule);
            if let Err(reason) = parsed {
                eprintln!(
                    "simulated driver: {source}: fault rule {rule:?} is left out: {reason}; rules are like \
                     cuMemCreate:3=2, cuMemAlloc_v2:5%=delay20ms+2"
                );
            }
            parsed.ok()
        })
        .zip(1..)
        .map(|(rule, number)| Counted { rule, number, calls: 0 })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(rules: &str, seed: u64) -> Faults {
        let fixed = parse(rules, "test");
        Faults { fixed, file: None, text: String::new(), changing: Vec::new(), seed, source: String::new() }
    }

    fn codes(faults: &mut Faults, names: &[&str]) -> Vec<Option<u32>> {
        names.iter().map(|name| faults.next(name).and_then(|fault| fault.code)).collect()
    }

    #[test]
    fn the_third_call_fails_and_with_a_plus_all_later_ones() {
        let mut faults = faults("a:3=2, b:2+=999,c:1=0,nonsense", 0);
        assert_eq!(faults.fixed.len(), 2, "code 0 would be success, and nonsense is left out");
        let answers = codes(&mut faults, &["a", "b", "a", "b", "a", "b", "a"]);
        assert_eq!(answers, [None, None, None, Some(999), Some(2), Some(999), None]);
    }

    #[test]
    fn a_star_counts_the_calls_of_all_functions() {
        assert_eq!(codes(&mut faults("*:3=7", 0), &["a", "b", "c", "a"]), [None, None, Some(7), None]);
    }

    #[test]
    fn chance_depends_on_the_seed_alone_and_is_as_frequent_as_asked() {
        let hits = |seed: u64| -> Vec<usize> {
            let mut faults = faults("a:5%=2", seed);
            (0..10_000).filter(|_| faults.next("a").is_some()).collect()
        };
        let once = hits(1);
        assert_eq!(once, hits(1));
        assert_ne!(once, hits(2));
        assert!((400..600).contains(&once.len()), "{} of 10,000 with 5 %", once.len());
        let mut two = faults("a:50%=1,a:50%=2", 3);
        let both: Vec<Option<u32>> = codes(&mut two, &["a"; 64]);
        assert!(both.contains(&Some(1)) && both.contains(&Some(2)), "each rule has its own chances");
    }

    #[test]
    fn a_rule_that_stays_in_the_file_goes_on_counting() {
        let path = std::env::temp_dir().join(format!("fault-rules-{}", std::process::id()));
        let mut faults = faults("", 0);
        faults.file = Some(path.display().to_string());
        assert_eq!(codes(&mut faults, &["a"]), [None], "there is no file yet");
        std::fs::write(&path, "a:2=5").unwrap();
        assert_eq!(codes(&mut faults, &["a"]), [None]);
        std::fs::write(&path, "b:1=6\na:2=5").unwrap();
        assert_eq!(codes(&mut faults, &["a", "b"]), [Some(5), Some(6)]);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(codes(&mut faults, &["a"]), [None]);
    }
}
