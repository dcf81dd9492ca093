//! The Kubernetes releases a development cluster can be made of.
//!
//! Belongs here: which minors exist and what their exact versions are. Never here: how they are built or run.
//! Invariant: the `go.mod` files under `modules/` are the only place where a version is written down.

use std::fmt;

/// One Kubernetes minor that can be built and run; its patch version is the one its Go module requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Release {
    /// The oldest minor: what clusters are upgraded from over two minors.
    V1_35,
    /// The minor before the newest: what clusters are upgraded from.
    V1_36,
    /// The newest minor: what clusters are upgraded to.
    V1_37,
}

pub use Release::{V1_35, V1_36, V1_37};

impl Release {
    /// Every release, oldest first.
    pub const ALL: [Self; 3] = [V1_35, V1_36, V1_37];

    /// Those that real nodes are made of, oldest first. The others have a control plane only.
    pub const REAL: [Self; 2] = [V1_36, V1_37];

    /// The newest release; `kubectl` comes from it.
    pub const NEWEST: Self = V1_37;

    /// The full version, for instance `v1.36.4`.
    pub fn version(self) -> &'static str {
        required(self.module().go_mod, "k8s.io/kubernetes").unwrap_or("v0.0.0")
    }

    /// The minor, for instance `1.36`.
    pub fn minor(self) -> &'static str {
        match self {
            V1_35 => "1.35",
            V1_36 => "1.36",
            V1_37 => "1.37",
        }
    }

    /// The release that a person means by `1.36`, `v1.36` or `v1.36.4`.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.strip_prefix('v').unwrap_or(text);
        Self::ALL.into_iter().find(|r| r.minor() == text || r.version().strip_prefix('v') == Some(text))
    }

    pub(crate) fn module(self) -> Module {
        match self {
            V1_35 => Module {
                go_mod: include_str!("../modules/kubernetes-1.35/go.mod"),
                go_sum: include_str!("../modules/kubernetes-1.35/go.sum"),
                source: ("tools.go", include_str!("../modules/kubernetes-1.35/tools.go")),
            },
            V1_36 => Module {
                go_mod: include_str!("../modules/kubernetes-1.36/go.mod"),
                go_sum: include_str!("../modules/kubernetes-1.36/go.sum"),
                source: ("tools.go", include_str!("../modules/kubernetes-1.36/tools.go")),
            },
            V1_37 => Module {
                go_mod: include_str!("../modules/kubernetes-1.37/go.mod"),
                go_sum: include_str!("../modules/kubernetes-1.37/go.sum"),
                source: ("tools.go", include_str!("../modules/kubernetes-1.37/tools.go")),
            },
        }
    }
}

/// The files of the Go module that binaries are built from.
pub(crate) struct Module {
    pub(crate) go_mod: &'static str,
    pub(crate) go_sum: &'static str,
    /// The one Go file of the module: its name and content.
    pub(crate) source: (&'static str, &'static str),
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.version())
    }
}

/// The version of `module` that a `go.mod` requires.
pub(crate) fn required<'a>(go_mod: &'a str, module: &str) -> Option<&'a str> {
    go_mod.lines().find_map(|line| {
        let line = line.trim();
        let mut words = line.strip_prefix("require ").unwrap_or(line).split_whitespace();
        (words.next() == Some(module)).then(|| words.next()).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_come_from_the_modules_and_belong_to_their_minor() {
        for release in Release::ALL {
            assert!(release.version().starts_with(&format!("v{}.", release.minor())), "{release}");
        }
    }

    #[test]
    fn a_person_may_write_a_release_in_three_ways() {
        for text in ["1.36", "v1.36", V1_36.version()] {
            assert_eq!(Release::parse(text), Some(V1_36), "{text}");
        }
        assert_eq!(Release::parse("1.34"), None);
        assert_eq!(Release::parse("v1.36.99"), None);
    }

    #[test]
    fn required_reads_both_forms_of_a_require_line() {
        let go_mod = "module x\n\nrequire a.b/c v1.2.3\n\nrequire (\n\td.e/f v0.1.0 // indirect\n)\n";
        assert_eq!(required(go_mod, "a.b/c"), Some("v1.2.3"));
        assert_eq!(required(go_mod, "d.e/f"), Some("v0.1.0"));
        assert_eq!(required(go_mod, "x.y/z"), None);
    }
}
