//! The two grammars by which Kubernetes itself reads a version.
//!
//! They are the rules of apimachinery's `util/version`: *semantic* (exactly three numbers, a pre-release and build
//! metadata in their strict form) and *generic* (two or more numbers, anything behind them). Here belongs what is
//! written, and how Kubernetes orders pre-releases; what it means for the skew policy belongs to
//! [`super::KubeVersion`], which reads every string with these. The invariant: a text that is no version is `None`, and
//! nothing here panics or allocates without bound.

use std::cmp::Ordering;
use std::fmt;

/// A version as one of the two grammars reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written<'a> {
    numbers: Vec<u64>,
    pre_release: &'a str,
    build: &'a str,
    rest: &'a str,
}

impl<'a> Written<'a> {
    /// Exactly three numbers without leading zeros, then `-pre-release` and `+build` of dot-separated identifiers.
    /// Source: apimachinery `ParseSemantic`.
    pub fn semantic(text: &'a str) -> Option<Self> {
        let (digits, rest) = digits_and_rest(text)?;
        let parts: Vec<&str> = digits.split('.').collect();
        if parts.len() != 3 || parts.iter().any(|part| zero_prefixed(part)) {
            return None;
        }
        let rest = rest.trim_end();
        let (pre_release, build) = extra(rest)?;
        Some(Self { numbers: numbers(&parts)?, pre_release, build, rest })
    }

    /// Two or more numbers, of which only the first must not have leading zeros; whatever follows takes no part.
    /// Source: apimachinery `ParseGeneric`.
    pub fn generic(text: &'a str) -> Option<Self> {
        let (digits, rest) = digits_and_rest(text)?;
        let parts: Vec<&str> = digits.split('.').collect();
        if parts.len() < 2 || parts.first().is_some_and(|part| zero_prefixed(part)) {
            return None;
        }
        Some(Self { numbers: numbers(&parts)?, pre_release: "", build: "", rest: rest.trim_end() })
    }

    /// Semantic where it can be, else generic. Source: apimachinery `Parse`.
    pub fn read(text: &'a str) -> Option<Self> {
        Self::semantic(text).or_else(|| Self::generic(text))
    }

    /// The numbers, at least two.
    pub fn numbers(&self) -> &[u64] {
        &self.numbers
    }

    /// What follows the `-`, without it: `alpha.1`.
    pub fn pre_release(&self) -> &'a str {
        self.pre_release
    }

    /// Everything behind the numbers, as it was written.
    pub fn rest(&self) -> &'a str {
        self.rest
    }
}

impl fmt::Display for Written<'_> {
    /// As apimachinery shows it: the numbers, and what the semantic grammar read behind them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers: Vec<String> = self.numbers.iter().map(u64::to_string).collect();
        f.write_str(&numbers.join("."))?;
        if !self.pre_release.is_empty() {
            write!(f, "-{}", self.pre_release)?;
        }
        if !self.build.is_empty() {
            write!(f, "+{}", self.build)?;
        }
        Ok(())
    }
}

/// Pre-release and build metadata of what follows the numbers, `""` where there is none; `None` if it is of another
/// form. Identifiers are of `[0-9A-Za-z-]`, none is empty, and a numeric one of the pre-release has no leading zero.
pub(super) fn extra(rest: &str) -> Option<(&str, &str)> {
    let (before, build) = match rest.split_once('+') {
        Some((before, build)) => (before, Some(build)),
        None => (rest, None),
    };
    let pre_release = match before.strip_prefix('-') {
        Some(pre_release) => Some(pre_release),
        None if before.is_empty() => None,
        None => return None,
    };
    let identifiers = |text: &str| {
        text.split('.')
            .all(|one| !one.is_empty() && one.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-'))
    };
    let numeric = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    if pre_release.is_some_and(|p| !identifiers(p) || p.split('.').any(|i| numeric(i) && zero_prefixed(i)))
        || build.is_some_and(|build| !identifiers(build))
    {
        return None;
    }
    Some((pre_release.unwrap_or_default(), build.unwrap_or_default()))
}

/// The order of two pre-releases by semantic versioning: none is the highest, numeric identifiers are ordered as
/// numbers and below the others, and of two that begin alike the longer one is higher.
pub(super) fn pre_releases(a: &str, b: &str) -> Ordering {
    match (a.is_empty(), b.is_empty()) {
        (true, true) => Ordering::Equal,
        (true, false) => Ordering::Greater,
        (false, true) => Ordering::Less,
        (false, false) => {
            let (mut a, mut b) = (a.split('.'), b.split('.'));
            loop {
                let order = match (a.next(), b.next()) {
                    (None, None) => return Ordering::Equal,
                    (None, Some(_)) => Ordering::Less,
                    (Some(_), None) => Ordering::Greater,
                    (Some(a), Some(b)) => match (a.parse::<u64>(), b.parse::<u64>()) {
                        (Ok(a), Ok(b)) => a.cmp(&b),
                        (Ok(_), Err(_)) => Ordering::Less,
                        (Err(_), Ok(_)) => Ordering::Greater,
                        (Err(_), Err(_)) => a.cmp(b),
                    },
                };
                if order.is_ne() {
                    return order;
                }
            }
        }
    }
}

/// The dotted digits a version begins with, and what follows them. Blanks before it and one `v` are passed over.
fn digits_and_rest(text: &str) -> Option<(&str, &str)> {
    let text = text.trim_start();
    let text = text.strip_prefix('v').unwrap_or(text);
    let mut end = 0;
    let mut rest = text;
    loop {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        if digits == 0 {
            // A dot without a number behind it belongs to what follows; no number at all is no version.
            return (end > 0).then(|| text.split_at(end - 1));
        }
        end += digits;
        rest = rest.get(digits..)?;
        let Some(behind) = rest.strip_prefix('.') else { return Some(text.split_at(end)) };
        (end, rest) = (end + 1, behind);
    }
}

fn zero_prefixed(part: &str) -> bool {
    part.len() > 1 && part.starts_with('0')
}

fn numbers(parts: &[&str]) -> Option<Vec<u64>> {
    parts.iter().map(|part| part.parse().ok()).collect()
}
