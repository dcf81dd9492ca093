//! What a drain does with a pod, and what a person should know about it.
//!
//! Here belong kubectl's filters in their order, and those of Cluster API's labels. What a budget says does not. The
//! invariant: a label or annotation alone never takes a pod out of a drain, unless the person who drains asked for
//! that; and every warning is kept, not only the last.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::pod_rule::{Behavior, PodRule, behavior};
use crate::cluster::{Phase, Pod, Selector, Surroundings};

/// The label by which Cluster API lets a pod stay (`skip`) or finish (`wait-completed`), in any case of letters.
const CLUSTER_API_LABEL: &str = "cluster.x-k8s.io/drain";

/// What the person who drains decided.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "each is a decision of its own")]
pub struct Rules {
    /// The one namespace whose Jobs' pods are executors; a label alone exempts no pod, or every tenant could exempt
    /// its own.
    pub executors: Option<Arc<str>>,
    /// Evict pods that nothing would bring back (kubectl: `--force`).
    pub evict_bare: bool,
    /// Refuse pods with an `emptyDir`, whose data an eviction destroys.
    pub refuse_empty_dir: bool,
    /// Refuse pods of `DaemonSets` instead of leaving them (kubectl without `--ignore-daemonsets`).
    pub refuse_daemon_sets: bool,
    /// Evict finished pods too, as kubectl does; otherwise they stay.
    pub evict_finished: bool,
    /// Honour the label `cluster.x-k8s.io/drain`.
    pub cluster_api_labels: bool,
    /// What is done with some pods; the first that selects a pod decides.
    pub pods: Vec<PodRule>,
    /// Leave pods that have been terminating for longer than this (kubectl: `--skip-wait-for-delete-timeout`).
    pub skip_deleting_after: Option<SignedDuration>,
    /// Only these pods (kubectl: `--pod-selector`).
    pub only: Option<Selector>,
    /// Pods of the system's two priority classes leave when the others are gone.
    pub critical_last: bool,
}

impl Rules {
    /// Whether they are those of an upgrade: a person changes them in its spec, and otherwise by flags.
    pub const fn is_of_upgrade(&self) -> bool {
        self.executors.is_some()
    }
}

/// What a pod is to a drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Its controller makes another pod, which may run elsewhere.
    Move,
    /// Its controller makes another pod, which can run on this node only: it is away until the node is back.
    Pinned,
    /// Nothing would bring it back; a person must move it.
    Bare,
    /// It runs no more.
    Finished,
    /// It is on its way out.
    Terminating,
    /// Its `DaemonSet` would bring it back at once.
    DaemonSet,
    /// The kubelet runs it from a file; the API shows a copy of it.
    Static,
    /// The executor's own.
    Executor,
    /// It is waited for until it finishes, and never evicted.
    WaitCompleted,
    /// It takes no part.
    Skip,
}

/// What follows from a class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Handling {
    /// Ask it to leave.
    Evict,
    /// The drain waits until it is gone by itself.
    Await,
    /// It stays where it is, and the drain does not wait for it.
    Leave,
    /// It stands in the way, and a person must decide; one line.
    Refuse(&'static str),
}

/// What `pod` is to a drain by `rules` at `now`. Filters in the order of `pkg/drain/filters.go`, then Cluster API's.
pub fn class(pod: &Pod, rules: &Rules, surroundings: &Surroundings, now: Timestamp) -> Class {
    let owner = pod.owner.as_ref();
    let owned_by = |api_version: &str, kind: &str| {
        owner.is_some_and(|o| o.kind.as_ref() == kind && o.api_version.as_ref() == api_version)
    };
    let executor = pod.traits().executor_of.is_some()
        && rules.executors.as_deref() == Some(pod.namespace.as_ref())
        && owned_by("batch/v1", "Job");
    let skip_deleting = rules
        .skip_deleting_after
        .zip(pod.deleting())
        .is_some_and(|(after, at)| now.duration_since(at) > after);
    if rules.only.as_ref().is_some_and(|only| !only.matches(&pod.labels)) || skip_deleting {
        Class::Skip
    } else if pod.mirror {
        Class::Static
    } else if executor {
        Class::Executor
    } else if owned_by("apps/v1", "DaemonSet") && pod.phase != Phase::Finished && !orphan(pod, surroundings) {
        Class::DaemonSet
    } else if pod.phase == Phase::Finished && pod.deleting().is_none() {
        // A pod that is exempt is never evicted, not even when it has finished.
        exempt(pod, rules).map_or(Class::Finished, |_| Class::Skip)
    } else if pod.deleting().is_some() {
        // A finished pod that is being deleted is still there, and a kubelet that is gone may keep it for ever.
        if pod.phase == Phase::Finished && !rules.evict_finished {
            Class::Finished
        } else {
            Class::Terminating
        }
    } else if let Some(class) = exempt(pod, rules) {
        class
    } else if owner.is_none() {
        Class::Bare
    } else if pinned(pod, surroundings) {
        Class::Pinned
    } else {
        Class::Move
    }
}

/// What a label of `pod` or a rule of the person who drains makes of it, in Cluster API's order: the label first.
fn exempt(pod: &Pod, rules: &Rules) -> Option<Class> {
    by_label(pod, rules).or_else(|| match behavior(pod, &rules.pods)? {
        Behavior::Drain => None,
        Behavior::Skip => Some(Class::Skip),
        Behavior::WaitCompleted => Some(Class::WaitCompleted),
    })
}

fn by_label(pod: &Pod, rules: &Rules) -> Option<Class> {
    let label = pod.labels.get(CLUSTER_API_LABEL).filter(|_| rules.cluster_api_labels)?;
    if label.eq_ignore_ascii_case("skip") {
        Some(Class::Skip)
    } else if label.eq_ignore_ascii_case("wait-completed") {
        Some(Class::WaitCompleted)
    } else {
        None
    }
}

/// Whether the controller that `pod` names is known not to exist.
pub fn orphan(pod: &Pod, surroundings: &Surroundings) -> bool {
    pod.owner.as_ref().is_some_and(|owner| surroundings.is_gone(&pod.namespace, owner))
}

/// Whether the pod that its controller makes instead of `pod` can run on the same node only.
pub fn pinned(pod: &Pod, surroundings: &Surroundings) -> bool {
    let traits = pod.traits();
    let volumes = surroundings.volumes.as_ref();
    let hosts = |claim: &Arc<str>| volumes?.get(&(Arc::clone(&pod.namespace), Arc::clone(claim)));
    traits.hosts.len() == 1 || traits.claims.iter().filter_map(hosts).any(|hosts| hosts.len() == 1)
}

/// What a drain by `rules` does with a `pod` of `class`.
pub fn handling(pod: &Pod, class: Class, rules: &Rules) -> Handling {
    match class {
        Class::DaemonSet if rules.refuse_daemon_sets => Handling::Refuse(
            "is managed by a DaemonSet, which would bring it back; leave it with --ignore-daemonsets",
        ),
        Class::Finished if rules.evict_finished => Handling::Evict,
        Class::Static | Class::Executor | Class::Skip | Class::DaemonSet | Class::Finished => Handling::Leave,
        Class::Terminating | Class::WaitCompleted => Handling::Await,
        Class::Bare if !rules.evict_bare => {
            Handling::Refuse("has no controller that would bring it back; move it by hand")
        }
        Class::Bare | Class::Pinned | Class::Move if pod.empty_dir && rules.refuse_empty_dir => {
            Handling::Refuse(if rules.is_of_upgrade() {
                "has an emptyDir, whose data an eviction destroys; allow it with spec.drain.emptyDir: Evict"
            } else {
                "has an emptyDir, whose data an eviction destroys; allow it with --delete-emptydir-data"
            })
        }
        Class::Bare | Class::Pinned | Class::Move => Handling::Evict,
    }
}

/// Whether `pod` may stay on a node that counts as drained by `rules`.
pub fn may_stay(pod: &Pod, rules: &Rules, surroundings: &Surroundings, now: Timestamp) -> bool {
    handling(pod, class(pod, rules, surroundings, now), rules) == Handling::Leave
}

/// Everything that a person should know about evicting `pod`, one line each.
pub fn warnings(pod: &Pod, class: Class, surroundings: &Surroundings) -> Vec<String> {
    let traits = pod.traits();
    let leaves = matches!(class, Class::Move | Class::Pinned | Class::Bare);
    let mut lines = Vec::new();
    if class == Class::DaemonSet {
        lines.push("its DaemonSet would bring it back, so it stays".to_owned());
    }
    if !leaves {
        return lines;
    }
    if class == Class::Bare {
        lines.push("has no controller: it is not made again".to_owned());
    } else if orphan(pod, surroundings) {
        lines.push("its controller is gone: it is not made again".to_owned());
    }
    if pod.empty_dir {
        lines.push("the data of its emptyDir is lost".to_owned());
    }
    if traits.host_path {
        lines.push("mounts a directory of the node, whose data stays behind".to_owned());
    }
    if class == Class::Pinned {
        lines.push("can run on this node only, so it is away until the node is back".to_owned());
    }
    if traits.tolerates_cordon {
        lines.push("tolerates the cordon, so another may come straight back".to_owned());
    }
    if traits.gang {
        lines.push("belongs to a group that is scheduled together, which its eviction may end".to_owned());
    }
    if traits.responders {
        lines.push("names eviction responders, which a direct eviction does not ask".to_owned());
    }
    lines.extend(
        traits.opt_outs.iter().map(|opt_out| format!("{opt_out} asks other tools to leave it alone")),
    );
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::{Owner, Traits, Workload};
    use crate::fixture::{at, pod, terminating};

    fn owned(api_version: &str, kind: &str) -> Pod {
        let owner = Arc::new(Owner {
            api_version: api_version.into(),
            kind: kind.into(),
            name: "x".into(),
            uid: "uid-x".into(),
        });
        Pod { owner: Some(owner), ..pod("a", 1, "n-1") }
    }

    fn labelled(value: &str) -> Pod {
        let labels = [(CLUSTER_API_LABEL.to_owned(), value.to_owned())].into();
        Pod { labels: Arc::new(labels), ..pod("a", 1, "n-1") }
    }

    fn special(traits: Traits) -> Pod {
        Pod { special: Some(Arc::new(traits)), ..pod("a", 1, "n-1") }
    }

    #[test]
    fn what_a_pod_is_to_a_drain() {
        let rules = Rules { executors: Some("executors".into()), ..Rules::default() };
        let executor = Pod {
            namespace: "executors".into(),
            special: Some(Arc::new(Traits { executor_of: Some("uid".into()), ..Traits::default() })),
            ..owned("batch/v1", "Job")
        };
        let finished = |pod: Pod| Pod { phase: Phase::Finished, ..pod };
        let deleting = |pod: Pod| terminating(pod, at(1));
        let bare = Pod { owner: None, ..pod("a", 1, "n-1") };
        let surroundings = Surroundings {
            volumes: Some(
                [
                    (("shop".into(), "local".into()), vec!["n-1".into()]),
                    (("shop".into(), "zonal".into()), vec!["n-1".into(), "n-2".into()]),
                ]
                .into(),
            ),
            ..Surroundings::default()
        };
        let mounts = |claim: &str| special(Traits { claims: vec![claim.into()], ..Traits::default() });
        for (what, pod, expected) in [
            ("replica set", pod("a", 1, "n-1"), Class::Move),
            ("daemon set", owned("apps/v1", "DaemonSet"), Class::DaemonSet),
            ("finished, of a daemon set", finished(owned("apps/v1", "DaemonSet")), Class::Finished),
            ("someone else's kind of that name", owned("x.io/v1", "DaemonSet"), Class::Move),
            ("bare", bare.clone(), Class::Bare),
            ("bare but finished", finished(bare), Class::Finished),
            ("static", Pod { mirror: true, ..owned("v1", "Node") }, Class::Static),
            ("deleting", deleting(pod("a", 1, "n-1")), Class::Terminating),
            ("executor", executor.clone(), Class::Executor),
            ("a tenant that claims to be one", Pod { namespace: "shop".into(), ..executor }, Class::Move),
            ("a label that nobody asked to honour", labelled("skip"), Class::Move),
            ("local volume", mounts("local"), Class::Pinned),
            ("volume of two hosts", mounts("zonal"), Class::Move),
            (
                "tied to its host",
                special(Traits { hosts: vec!["n-1".into()], ..Traits::default() }),
                Class::Pinned,
            ),
        ] {
            assert_eq!(class(&pod, &rules, &surroundings, at(0)), expected, "{what}");
        }
    }

    #[test]
    fn labels_count_where_a_person_asked_for_them() {
        let rules = Rules { cluster_api_labels: true, ..Rules::default() };
        let of = |value| class(&labelled(value), &rules, &Surroundings::default(), at(0));
        assert_eq!([of("skip"), of("Skip"), of("other")], [Class::Skip, Class::Skip, Class::Move]);
        let wait = class(&labelled("wait-completed"), &rules, &Surroundings::default(), at(0));
        assert_eq!(handling(&labelled("x"), wait, &rules), Handling::Await, "never evicted");
        let done = |value| Pod { phase: Phase::Finished, ..labelled(value) };
        let of = |value| class(&done(value), &rules, &Surroundings::default(), at(0));
        assert_eq!(
            [of("wait-completed"), of("other")],
            [Class::Skip, Class::Finished],
            "nor when it is done"
        );
    }

    #[test]
    fn rules_of_a_person_exempt_pods_and_leave_daemon_sets_and_static_pods_as_they_are() {
        let of = |behavior| PodRule { selector: Selector::default(), namespaces: Vec::new(), behavior };
        let surroundings = Surroundings::default();
        for (behavior, ready, done, daemon) in [
            (Behavior::Skip, Class::Skip, Class::Skip, Class::DaemonSet),
            (Behavior::WaitCompleted, Class::WaitCompleted, Class::Skip, Class::DaemonSet),
            (Behavior::Drain, Class::Move, Class::Finished, Class::DaemonSet),
        ] {
            let rules = Rules { pods: vec![of(behavior)], ..Rules::default() };
            let of = |pod: &Pod| class(pod, &rules, &surroundings, at(0));
            let plain = pod("a", 1, "n-1");
            let finished = Pod { phase: Phase::Finished, ..plain.clone() };
            let mirror = Pod { mirror: true, ..owned("v1", "Node") };
            let found = (of(&plain), of(&finished), of(&owned("apps/v1", "DaemonSet")), of(&mirror));
            assert_eq!(found, (ready, done, daemon, Class::Static), "{behavior:?}");
            assert_eq!(
                of(&terminating(plain, at(0))),
                Class::Terminating,
                "{behavior:?}: it is going anyway"
            );
        }
        let all = [of(Behavior::Skip), of(Behavior::Drain)].into();
        let rules = Rules { pods: all, cluster_api_labels: true, ..Rules::default() };
        let of = |value| class(&labelled(value), &rules, &surroundings, at(0));
        assert_eq!(of("wait-completed"), Class::WaitCompleted, "the pod's own label comes first");
    }

    #[test]
    fn a_pod_that_has_been_terminating_for_long_is_left_on_request() {
        let rules = Rules { skip_deleting_after: Some(SignedDuration::from_secs(20)), ..Rules::default() };
        let pod = terminating(pod("a", 1, "n-1"), at(0));
        assert_eq!(class(&pod, &rules, &Surroundings::default(), at(20)), Class::Terminating);
        assert_eq!(class(&pod, &rules, &Surroundings::default(), at(21)), Class::Skip);
    }

    #[test]
    fn every_warning_is_kept() {
        let pod =
            Pod { owner: None, empty_dir: true, ..special(Traits { host_path: true, ..Traits::default() }) };
        assert_eq!(warnings(&pod, Class::Bare, &Surroundings::default()).len(), 3);
        assert_eq!(warnings(&pod, Class::Finished, &Surroundings::default()), Vec::<String>::new());
    }

    #[test]
    fn a_daemon_sets_pod_whose_set_is_gone_leaves() {
        let this = owned("apps/v1", "DaemonSet");
        assert_eq!(
            class(&this, &Rules::default(), &Surroundings::default(), at(0)),
            Class::DaemonSet,
            "not known"
        );
        let set = Workload {
            this: this.owner.clone().unwrap(),
            namespace: "shop".into(),
            replicas: None,
            owner: None,
            ignores_disruption: false,
        };
        let read =
            |set| Surroundings { workloads: Some([set].into_iter().collect()), ..Surroundings::default() };
        assert_eq!(class(&this, &Rules::default(), &read(set.clone()), at(0)), Class::DaemonSet);
        let mut another = set;
        Arc::make_mut(&mut another.this).uid = "another".into();
        assert_eq!(class(&this, &Rules::default(), &read(another), at(0)), Class::Move);
    }
}
