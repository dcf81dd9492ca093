//! How one run of a process is told from the next one at the same place.
//!
//! Here belongs how the marks of a run are written down and compared; where they are read is not known here. A process
//! has several marks, and not all of them are visible at each moment: a lease is not renewed while its process dies, an
//! endpoint says nothing while it is down. The invariant: two runs differ only where one mark was seen of both and is
//! another one, so that what was merely not visible is never taken for a restart.

use std::fmt::Write as _;
use std::sync::Arc;

use super::instance::Instance;

/// What changes when a process is replaced by another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RunMark {
    /// The build that the process itself names: an upgraded process always names another one.
    Build,
    /// The container's ID: the kubelet makes another container for each run.
    Container,
    /// The holder of the process's own lease: a random one for each run.
    Lease,
    /// The pod's UID and how often its container was restarted. Not for a static pod, whose copy in the API can be
    /// deleted and made again while the process goes on.
    Pod,
}

impl RunMark {
    const fn name(self) -> &'static str {
        match self {
            Self::Build => "build",
            Self::Container => "container",
            Self::Lease => "lease",
            Self::Pod => "pod",
        }
    }
}

/// The text of an [`Instance::incarnation`] with these marks, in a fixed order; empty marks are left out.
pub fn incarnation<'a>(marks: impl IntoIterator<Item = (RunMark, &'a str)>) -> Arc<str> {
    let mut marks: Vec<_> = marks.into_iter().filter(|(_, value)| !value.is_empty()).collect();
    marks.sort_unstable();
    let mut text = String::new();
    for (mark, value) in marks {
        let gap = if text.is_empty() { "" } else { " " };
        // A blank in a value would end it. Writing to a String cannot fail.
        let _ = write!(text, "{gap}{}={}", mark.name(), value.replace(char::is_whitespace, "_"));
    }
    text.into()
}

impl Instance {
    /// Whether another process runs here than when [`Instance::incarnation`] was `before`. `false` also where that
    /// cannot be told, because no mark was visible both times.
    pub fn replaced_since(&self, before: &str) -> bool {
        let marks = |text: &'_ str| -> Vec<(String, String)> {
            let split = |word: &str| {
                word.split_once('=').map_or((String::new(), word.to_owned()), |(k, v)| (k.into(), v.into()))
            };
            text.split_whitespace().map(split).collect()
        };
        let now = marks(&self.incarnation);
        marks(before).iter().any(|(key, value)| now.iter().any(|(same, other)| same == key && other != value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::Component;
    use crate::fixture::instance;

    #[test]
    fn a_process_was_replaced_where_one_mark_that_was_seen_twice_is_another() {
        for (before, now, replaced) in [
            ("build=v1.36.4 lease=a_1", "build=v1.37.1 lease=a_1", true),
            ("build=v1.36.4 lease=a_1", "build=v1.36.4 lease=a_2", true),
            ("build=v1.36.4 lease=a_1", "build=v1.36.4 lease=a_1", false),
            // A lease that is not renewed, or an endpoint that does not answer, is no restart.
            ("build=v1.36.4 lease=a_1", "build=v1.36.4", false),
            ("build=v1.36.4 lease=a_1", "lease=a_1", false),
            ("lease=a_1", "build=v1.37.1", false),
            ("", "build=v1.37.1", false),
            ("build=v1.36.4", "", false),
            // A text of an earlier release of this program.
            ("uid-1/0", "uid-2/0", true),
            ("uid-1/0", "uid-1/0", false),
            ("uid-1/0", "build=v1.37.1", false),
        ] {
            let mut seen = instance(Component::KubeApiserver, "cp-1", "v1.36.4");
            seen.incarnation = now.into();
            assert_eq!(seen.replaced_since(before), replaced, "{before:?}, then {now:?}");
        }
    }

    #[test]
    fn marks_are_written_in_a_fixed_order_and_each_is_one_word() {
        let marks = [(RunMark::Pod, ""), (RunMark::Lease, "a_1"), (RunMark::Build, "v1 x")];
        assert_eq!(incarnation(marks).as_ref(), "build=v1_x lease=a_1");
        assert_eq!(incarnation([]).as_ref(), "");
    }
}
