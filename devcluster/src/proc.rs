//! What the kernel says about processes.
//!
//! Belongs here: reading `/proc`. Never here: starting or ending a process (see `process`). Invariant: a process that is
//! gone is no error, because any may end at any time.

use std::fs;

/// The part of `/proc/<pid>/stat` that tells processes apart.
pub(crate) struct Stat {
    pub(crate) state: String,
    parent: u32,
    /// When it started, in the kernel's own unit.
    pub(crate) started: u64,
}

impl Stat {
    pub(crate) fn read(pid: u32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    fn parse(text: &str) -> Option<Self> {
        // The second field is the program's name in parentheses, which may hold anything.
        let fields: Vec<_> = text.get(text.rfind(')')? + 1..)?.split_whitespace().collect();
        Some(Self {
            state: (*fields.first()?).to_owned(),
            parent: fields.get(1)?.parse().ok()?,
            started: fields.get(19)?.parse().ok()?,
        })
    }
}

/// The processes whose parent is `parent`.
pub(crate) fn children(parent: u32) -> Vec<u32> {
    let processes = fs::read_dir("/proc").into_iter().flatten();
    let pids = processes.filter_map(|e| e.ok()?.file_name().to_str()?.parse().ok());
    pids.filter(|pid| Stat::read(*pid).is_some_and(|stat| stat.parent == parent)).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may fail where it stands")]
mod tests {
    use super::*;

    #[test]
    fn stat_is_parsed_whatever_the_program_is_called() {
        let text = "42 (a) b (c)) S 7 42 42 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 98765 1000 1";
        let stat = Stat::parse(text).unwrap();
        assert_eq!((stat.state.as_str(), stat.parent, stat.started), ("S", 7, 98765));
        assert!(Stat::parse("").is_none());
    }
}
