//! Label selectors as people write them: `pool=web,tier in (a, b),!gpu`.
//!
//! Here belongs only how the text is read; whether labels match is in `selector`. The invariant: a text that cannot be
//! read as a whole is refused with a reason, and never read as a selector that selects more.

use std::str::FromStr;

use super::selector::{Expression, Selector};

/// The text is no label selector; the message says what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("is no label selector: {0}")]
pub struct NoSelector(String);

impl FromStr for Selector {
    type Err = NoSelector;

    fn from_str(text: &str) -> Result<Self, NoSelector> {
        let mut selector = Self::default();
        for part in parts(text).map_err(NoSelector)? {
            selector.match_expressions.push(term(part).map_err(NoSelector)?);
        }
        Ok(selector)
    }
}

/// The parts between commas that are not inside brackets.
fn parts(text: &str) -> Result<Vec<&str>, String> {
    let (mut parts, mut begin, mut inside) = (Vec::new(), 0, false);
    for (at, c) in text.char_indices() {
        match c {
            '(' if inside => return Err("a bracket inside of brackets".to_owned()),
            '(' => inside = true,
            ')' if !inside => return Err("a closing bracket too many".to_owned()),
            ')' => inside = false,
            ',' if !inside => {
                parts.push(&text[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    if inside {
        return Err("a bracket is not closed".to_owned());
    }
    parts.push(&text[begin..]);
    Ok(parts)
}

fn term(part: &str) -> Result<Expression, String> {
    let part = part.trim();
    let of = |key: &str, operator: &str, values: Vec<&str>| {
        let known = |c: char| c.is_ascii_alphanumeric() || "-._/".contains(c);
        let (key, values): (&str, Vec<&str>) = (key.trim(), values.into_iter().map(str::trim).collect());
        if key.is_empty() || !key.chars().all(known) {
            return Err("a key is empty or has characters that no label has".to_owned());
        }
        if !values.iter().all(|value| value.chars().all(known)) {
            return Err("a value has characters that no label has".to_owned());
        }
        let values = values.into_iter().map(str::to_owned).collect();
        Ok(Expression { key: key.to_owned(), operator: operator.to_owned(), values })
    };
    if let Some(list) = part.strip_suffix(')') {
        let (head, list) = list.split_once('(').ok_or("a closing bracket too many")?;
        let mut words = head.split_whitespace();
        return match (words.next(), words.next(), words.next()) {
            (Some(key), Some("in"), None) => of(key, "In", list.split(',').collect()),
            (Some(key), Some("notin"), None) => of(key, "NotIn", list.split(',').collect()),
            _ => Err("say `key in (a, b)` or `key notin (a, b)`".to_owned()),
        };
    }
    if let Some((key, value)) = part.split_once("!=") {
        of(key, "NotIn", vec![value])
    } else if let Some((key, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
        of(key, "In", vec![value])
    } else if let Some(key) = part.strip_prefix('!') {
        of(key, "DoesNotExist", vec![])
    } else {
        of(part, "Exists", vec![])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_as_kubectl_takes_them() {
        let labels = [("pool", "web"), ("zone", "a")].map(|(k, v)| (k.to_owned(), v.to_owned())).into();
        for (text, selected) in [
            ("pool=web", true),
            ("pool==web,zone=a", true),
            ("pool=db", false),
            ("pool!=db", true),
            ("gpu!=yes", true),
            ("pool in (web, db)", true),
            ("pool notin (web)", false),
            ("pool,!gpu", true),
            ("gpu", false),
            ("node-role.kubernetes.io/worker=", false),
        ] {
            assert_eq!(text.parse::<Selector>().unwrap().matches(&labels), selected, "{text}");
        }
        for text in ["", "pool in web", "pool in (web", "a=b)", "a b", "=x", "pool=w$b", "a in ((b))"] {
            assert!(text.parse::<Selector>().is_err(), "{text}");
        }
    }
}
