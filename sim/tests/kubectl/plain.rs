//! Makes equal what differs from run to run by nature.

/// An output in which that is replaced, each line with a line break before it.
pub fn plain(text: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    for line in text.lines() {
        let indent = line.len() - line.trim_start().len();
        let (head, rest) = line.split_at(indent);
        let mut shown = head.to_owned();
        // Columns are as wide as what is in them.
        for (at, cell) in rest.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).enumerate() {
            if at > 0 {
                shown.push_str("  ");
            }
            let words: Vec<String> = cell.split(' ').map(word).collect();
            shown.push_str(&words.join(" "));
        }
        let shown = revision(&dates(&shown));
        // How often kubectl says these lines, and with which numbers, depends on how fast things go.
        let passing = shown.starts_with("Waiting for deployment")
            || (shown.starts_with("Found ") && shown.contains(" pods, using "));
        if !passing && (shown.is_empty() || lines.last() != Some(&shown)) {
            lines.push(shown);
        }
    }
    while lines.last().is_some_and(String::is_empty) {
        lines.pop();
    }
    lines.iter().flat_map(|line| ["\n", line.as_str()]).collect()
}

fn word(text: &str) -> String {
    let core = text.trim_matches(|c: char| !c.is_ascii_alphanumeric());
    if core.is_empty() {
        return text.to_owned();
    }
    let (before, after) = text.split_once(core).unwrap_or(("", ""));
    // Names stand between slashes, quotes and the like.
    let parts: Vec<String> = core
        .split_inclusive(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '-' | ':' | '.')))
        .map(|part| {
            let end =
                part.trim_end_matches(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '-' | ':' | '.')));
            format!("{}{}", name(end), &part[end.len()..])
        })
        .collect();
    format!("{before}{}{after}", parts.concat())
}

fn name(text: &str) -> String {
    if is_uid(text) {
        return "(uid)".into();
    }
    if is_age(text) {
        return "(age)".into();
    }
    if text.len() >= 20 && text.starts_with("20") && text.as_bytes().get(10) == Some(&b'T') {
        return "(time)".into();
    }
    if text.starts_with("10.") && text.split('.').count() == 4 {
        return "(address)".into();
    }
    if let Some(port) = text.strip_prefix("127.0.0.1:")
        && port.chars().all(|c| c.is_ascii_digit())
    {
        return "127.0.0.1:(port)".into();
    }
    generated(text)
}

fn is_uid(text: &str) -> bool {
    let is = |(at, c): (usize, char)| {
        if matches!(at, 8 | 13 | 18 | 23) { c == '-' } else { c.is_ascii_hexdigit() }
    };
    text.len() == 36 && text.chars().enumerate().all(is)
}

/// `5s`, `2m10s`.
fn is_age(text: &str) -> bool {
    // `100m` is an amount of CPU: no session takes so long.
    text.starts_with(|c: char| c.is_ascii_digit())
        && text.ends_with('s')
        && text.chars().all(|c| c.is_ascii_digit() || matches!(c, 's' | 'm' | 'h' | 'd'))
}

/// A name with generated ends.
fn generated(text: &str) -> String {
    let made = |part: &str, lengths: std::ops::RangeInclusive<usize>| {
        lengths.contains(&part.len()) && part.chars().all(|c| "bcdfghjklmnpqrstvwxz2456789".contains(c))
    };
    let mut parts: Vec<&str> = text.split('-').collect();
    if parts.len() > 1
        && let Some(last) = parts.last_mut()
        && made(last, 5..=5)
    {
        *last = "(x)";
    }
    let count = parts.len();
    for (at, part) in parts.iter_mut().enumerate() {
        if at > 0 && at + 2 >= count && made(part, 8..=10) {
            *part = "(hash)";
        }
    }
    parts.join("-")
}

/// Replaces the revision, which depends on how many heartbeats there were.
fn revision(line: &str) -> String {
    for name in ["resourceVersion: ", "Resource Version:  "] {
        if let Some((before, _)) = line.split_once(name) {
            return format!("{before}{name}(revision)");
        }
    }
    line.to_owned()
}

/// Replaces dates such as `Sat, 21 Nov 2026 17:00:00 +0000`.
fn dates(line: &str) -> String {
    for day in ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"] {
        if let Some((before, after)) = line.split_once(&format!("{day}, "))
            && let Some((_, after)) = after.split_once("+0000")
        {
            return dates(&format!("{before}(date){after}"));
        }
    }
    line.to_owned()
}
