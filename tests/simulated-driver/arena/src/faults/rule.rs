//! One fault rule as text: `function:when=effects`.
//!
//! When: `3` the third call, `3+` that one and all later ones, `5%` each call with that probability. Effects, joined
//! by `+`: a status code, `delay20ms` (also `us`, `s`), `lost` or `lost1` (a device falls off the bus), `sticky214`
//! (the call succeeds, and the context is lost with that code), `hang` (the kernel launched by the call never
//! ends), `timeout100ms` (likewise, until the driver ends it). What is parsed here is carried out elsewhere.

use std::time::Duration;

/// What the text says.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Rule {
    /// `None` for all functions (`*`).
    pub(super) function: Option<String>,
    pub(super) when: When,
    pub(super) fault: Fault,
}

/// Which calls of the function are meant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum When {
    /// The call with this number, from 1.
    Call(u64),
    /// That one and all later ones.
    From(u64),
    /// Each with this probability, 0 to 1.
    Probability(f64),
}

/// What happens at a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fault {
    /// Time that passes before anything else.
    pub delay: Duration,
    /// The call fails with this code and has no effect.
    pub code: Option<u32>,
    /// A device falls off the bus.
    pub lost: Option<LostDevice>,
    /// The call is carried out, then its context is lost with this code.
    pub sticky: Option<u32>,
    /// The kernel that the call launches never ends.
    pub hang: bool,
    /// It is ended after this time, as by the time-out of a card with a display.
    pub timeout: Option<Duration>,
}

/// Which device is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LostDevice {
    /// That of the calling thread; the first one when it has none.
    Current,
    /// The one with this index on the machine.
    Index(usize),
}

impl Fault {
    /// Add what another rule says of the same call; of two codes the first counts.
    pub(super) fn join(&mut self, other: &Fault) {
        self.delay += other.delay;
        self.code = self.code.or(other.code);
        self.lost = self.lost.or(other.lost);
        self.sticky = self.sticky.or(other.sticky);
        self.hang |= other.hang;
        self.timeout = self.timeout.or(other.timeout);
    }
}

impl Rule {
    /// The rule, or what is wrong with it.
    pub(super) fn parse(text: &str) -> Result<Self, &'static str> {
        let (function, rest) = text.split_once(':').ok_or("there is no ':' after the function")?;
        let (when, effects) = rest.split_once('=').ok_or("there is no '=' after the number of the call")?;
        let function = match function.trim() {
            "" => return Err("there is no function"),
            "*" => None,
            name => Some(name.to_owned()),
        };
        let mut fault = Fault::default();
        for effect in effects.split('+') {
            fault.join(&parse_effect(effect.trim())?);
        }
        Ok(Self { function, when: parse_when(when.trim())?, fault })
    }
}

fn parse_when(text: &str) -> Result<When, &'static str> {
    if let Some(percent) = text.strip_suffix('%') {
        let percent: f64 = percent.parse().map_err(|_| "the probability is not a number")?;
        let is_possible = percent > 0.0 && percent <= 100.0;
        return if is_possible {
            Ok(When::Probability(percent / 100.0))
        } else {
            Err("the probability is not above 0% and at most 100%")
        };
    }
    let (number, from_then_on) = match text.strip_suffix('+') {
        Some(number) => (number, true),
        None => (text, false),
    };
    match number.parse() {
        Ok(0) | Err(_) => Err("calls are counted by whole numbers from 1"),
        Ok(call) if from_then_on => Ok(When::From(call)),
        Ok(call) => Ok(When::Call(call)),
    }
}

fn parse_effect(text: &str) -> Result<Fault, &'static str> {
    let none = Fault::default();
    if let Some(time) = text.strip_prefix("delay") {
        Ok(Fault { delay: parse_time(time)?, ..none })
    } else if let Some(time) = text.strip_prefix("timeout") {
        Ok(Fault { timeout: Some(parse_time(time)?), hang: true, ..none })
    } else if let Some(index) = text.strip_prefix("lost") {
        let lost = match index {
            "" => LostDevice::Current,
            _ => {
                LostDevice::Index(index.parse().map_err(|_| "the index of the lost device is not a number")?)
            }
        };
        Ok(Fault { lost: Some(lost), ..none })
    } else if let Some(code) = text.strip_prefix("sticky") {
        Ok(Fault { sticky: Some(parse_code(code)?), ..none })
    } else if text == "hang" {
        Ok(Fault { hang: true, ..none })
    } else {
        Ok(Fault { code: Some(parse_code(text)?), ..none })
    }
}

fn parse_code(text: &str) -> Result<u32, &'static str> {
    match text.parse() {
        Ok(0) => Err("code 0 is success"),
        Ok(code) => Ok(code),
        Err(_) => Err("the effect is none of: a status code, delay, lost, sticky, hang, timeout"),
    }
}

fn parse_time(text: &str) -> Result<Duration, &'static str> {
    let digits = text.len() - text.trim_start_matches(|letter: char| letter.is_ascii_digit()).len();
    let number: u64 = text[..digits].parse().map_err(|_| "a time is a whole number with us, ms or s")?;
    match &text[digits..] {
        "us" => Ok(Duration::from_micros(number)),
        "ms" => Ok(Duration::from_millis(number)),
        "s" => Ok(Duration::from_secs(number)),
        _ => Err("a time is a whole number with us, ms or s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn effects_are_joined() {
        let rule = Rule::parse("cuMemcpyDtoHAsync_v2:3=delay20ms+700").unwrap();
        assert_eq!(rule.when, When::Call(3));
        assert_eq!((rule.fault.delay, rule.fault.code), (Duration::from_millis(20), Some(700)));
        let rule = Rule::parse("*:0.5%=lost1+delay3s").unwrap();
        assert_eq!((rule.function, rule.when), (None, When::Probability(0.005)));
        assert_eq!(rule.fault.lost, Some(LostDevice::Index(1)));
        let rule = Rule::parse("cuLaunchKernel:1+=timeout100us").unwrap();
        assert!(rule.fault.hang && rule.fault.timeout == Some(Duration::from_micros(100)));
        assert_eq!(Rule::parse("a:1=sticky214").unwrap().fault.sticky, Some(214));
    }

    #[test]
    fn nonsense_is_told_from_rules() {
        let nonsense = [
            "",
            "a",
            "a:1",
            "a:=2",
            "a:0=2",
            "a:-1=2",
            "a:1=0",
            "a:1=",
            "a:x=2",
            ":1=2",
            "a:101%=2",
            "a:0%=2",
            "a:NaN%=2",
            "a:1=delay20",
            "a:1=delayms",
            "a:1=lostx",
            "a:1=sticky",
            "a:1=2+",
            "a:1=99999999999",
        ];
        for text in nonsense {
            assert!(Rule::parse(text).is_err(), "{text}");
        }
    }
}
