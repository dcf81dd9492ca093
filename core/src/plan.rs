//! What an upgrade will do, in which order, and what stands in its way before it starts.
//!
//! Here belong the order of an upgrade, the check of its target and the hash by which a person approves it. Carrying it
//! out is [`crate::rollout`]. The invariant: [`Stage`] is ordered, and work of a stage exists only when every earlier
//! stage is done, so a kubelet step before an apiserver step cannot be written down.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::cluster::{Cluster, Component, Instance, Selector};
use crate::disruption::CordonMark;
use crate::skew::{blockers_of_minor, policy::Policy};
use crate::upgrade::{Amount, Executor, Group, Hidden, Member, Upgrade};
use crate::version::KubeVersion;

/// The steps of an upgrade, in the only order there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Every kube-apiserver, one at a time.
    Apiservers,
    /// kube-controller-manager, kube-scheduler and cloud-controller-manager, one at a time.
    Controllers,
    /// Kubelets, each node drained first.
    Kubelets,
}

impl Stage {
    /// Every stage, in order.
    pub const ALL: [Self; 3] = [Self::Apiservers, Self::Controllers, Self::Kubelets];

    /// The stage that moves `component`; `None` for kube-proxy, which its `DaemonSet` moves, and for kubectl.
    pub const fn of(component: Component) -> Option<Self> {
        match component {
            Component::KubeApiserver => Some(Self::Apiservers),
            Component::Kubelet => Some(Self::Kubelets),
            Component::KubeProxy | Component::Kubectl => None,
            _ => Some(Self::Controllers),
        }
    }

    /// The word for it in a status.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Apiservers => "UpgradingApiservers",
            Self::Controllers => "UpgradingControllers",
            Self::Kubelets => "UpgradingNodes",
        }
    }
}

/// How much of a stage is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StageProgress {
    /// Which stage.
    pub stage: Stage,
    /// How many components or nodes the stage moves in all.
    pub total: usize,
    /// How many of them are done: a component is ready and runs the target; a node runs the target and no upgrade holds
    /// its cordon.
    pub upgraded: usize,
}

impl StageProgress {
    /// Whether nothing is left to move.
    pub fn done(&self) -> bool {
        self.upgraded == self.total
    }
}

/// How far each stage is, in order. `members` are the upgrade's in `cluster`.
pub fn progress(cluster: &Cluster, upgrade: &Upgrade, members: &[Member<'_>]) -> [StageProgress; 3] {
    // A node that an upgrade holds is not done: it is given back only when it was observed Ready at the target. A
    // person's drain is theirs to end, and changes nothing about the version.
    let held =
        |mark: Option<&str>| matches!(mark.and_then(CordonMark::read), Some(CordonMark::Upgrade { .. }));
    let node =
        |member: &Member<'_>| member.at_target == Some(true) && !held(member.node.cordoned_by.as_deref());
    let at_target = |version: Option<&KubeVersion>| version.is_some_and(|v| v.satisfies(&upgrade.version));
    let component = |instance: &Instance| at_target(instance.version.known()) && instance.ready;
    Stage::ALL.map(|stage| {
        let of_stage = cluster.instances().iter().filter(|i| Stage::of(i.component) == Some(stage));
        let (total, upgraded) = if stage == Stage::Kubelets {
            (members.len(), members.iter().filter(|member| node(member)).count())
        } else {
            (of_stage.clone().count(), of_stage.filter(|instance| component(instance)).count())
        };
        StageProgress { stage, total, upgraded }
    })
}

/// Why this cluster must not go to the upgrade's target, one line each; empty when it may.
///
/// Refused at any stage: a target older than what an apiserver runs, one that skips a minor, and any target while no
/// apiserver's version is known.
pub fn refusals(cluster: &Cluster, upgrade: &Upgrade) -> Vec<String> {
    let target = &upgrade.version;
    let versions: Vec<_> =
        cluster.of(Component::KubeApiserver).filter_map(|i| Some((&i.name, i.version.known()?))).collect();
    let Some(oldest) = versions.iter().map(|(_, version)| version.minor()).min() else {
        return vec!["no kube-apiserver's version is known".to_owned()];
    };
    let newer = versions.iter().find(|(_, version)| version.progress(target).is_gt());
    if let Some((name, version)) = newer {
        return vec![format!("{target} would be a downgrade: kube-apiserver {name} runs {version}")];
    }
    if target.minor().behind(oldest) < -1 {
        return vec![format!(
            "kube-apiservers are at {oldest}; {} is more than one minor away and minors must not be skipped",
            target.minor()
        )];
    }
    Vec::new()
}

/// What would be outside the skew policy while the apiservers go over to the target, and which apiservers do not say
/// their version; one line each. The caller asks only until every apiserver is at the target: after that, the other
/// components get back inside the policy by moving on.
pub fn obstacles(cluster: &Cluster, upgrade: &Upgrade) -> Vec<String> {
    let mut lines = blockers_of_minor(cluster, &Policy::default(), upgrade.version.minor());
    let silent = cluster.of(Component::KubeApiserver).filter(|i| i.version.known().is_none());
    lines.extend(silent.map(|i| format!("kube-apiserver {} does not say its version", i.name)));
    lines
}

/// The oldest apiserver version: where the upgrade comes from.
pub fn from_version(cluster: &Cluster) -> Option<KubeVersion> {
    let known = cluster.of(Component::KubeApiserver).filter_map(|i| i.version.known());
    known.min_by(|a, b| a.progress(b)).cloned()
}

/// The plan's hash, 12 hex digits: what an approval is bound to.
///
/// It covers where the upgrade comes from and goes, who moves what and with which pod, which nodes take part and how
/// many at once. It does not cover the nodes that exist at the moment, or an autoscaler would void every approval.
pub fn hash(upgrade: &Upgrade, from: &KubeVersion) -> String {
    hex(&Sha256::digest(canonical(upgrade, from)), 6)
}

/// What a person approves, as one text: JSON with sorted keys, led by the version of this form.
///
/// A later release of the program must write the same text for the same spec, or every approval and every completed
/// upgrade would be void after its own upgrade. A field that a later release adds is left out where it has its default.
pub fn canonical(upgrade: &Upgrade, from: &KubeVersion) -> String {
    let amount = |amount: Amount| match amount {
        Amount::Count(count) => json!(count),
        Amount::Percent(percent) => json!(format!("{percent}%")),
    };
    let selector = |selector: &Selector| {
        let terms = selector.match_expressions.iter();
        json!({
            "matchLabels": selector.match_labels,
            "matchExpressions": terms
                .map(|term| json!({"key": term.key, "operator": term.operator, "values": term.values}))
                .collect::<Vec<_>>(),
        })
    };
    let group = |group: &Group| {
        json!({
            "name": &*group.name,
            "executor": &*group.executor,
            "maxUnavailable": amount(group.max_unavailable),
            "selector": selector(&group.selector),
        })
    };
    let executor = |(name, executor): (&Arc<str>, &Executor)| {
        let (kind, template) = match executor {
            Executor::Job { template, .. } => ("job", Some(&**template)),
            Executor::External { .. } => ("external", None),
        };
        let seconds = executor.deadline().as_secs();
        json!({"name": &**name, "kind": kind, "deadlineSeconds": seconds, "template": template})
    };
    let mut control_plane = json!({"executor": &*upgrade.control_plane.executor, "unit": "Component"});
    if upgrade.control_plane.hidden == Hidden::Accept {
        control_plane["hidden"] = json!("Accept");
    }
    let text: Value = json!({
        "form": 1,
        "from": from.to_string(),
        "to": upgrade.version.to_string(),
        "controlPlane": control_plane,
        "drainTimeoutSeconds": upgrade.drain_timeout.as_secs(),
        "nodeGroups": upgrade.groups.iter().map(group).collect::<Vec<_>>(),
        "executors": upgrade.executors.iter().map(executor).collect::<Vec<_>>(),
    });
    canonical_json(&text)
}

/// `value` as JSON with sorted keys and without blanks, whatever the order in which it was read.
pub fn canonical_json(value: &Value) -> String {
    match value {
        Value::Object(map) => {
            let sorted: BTreeMap<&String, &Value> = map.iter().collect();
            let field = |(key, value): (&&String, &&Value)| {
                format!("{}:{}", Value::String((*key).clone()), canonical_json(value))
            };
            format!("{{{}}}", sorted.iter().map(field).collect::<Vec<_>>().join(","))
        }
        Value::Array(list) => format!("[{}]", list.iter().map(canonical_json).collect::<Vec<_>>().join(",")),
        plain => plain.to_string(),
    }
}

/// The first `bytes` of a digest in hex.
pub(crate) fn hex(digest: &[u8], bytes: usize) -> String {
    digest.iter().take(bytes).fold(String::new(), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use jiff::SignedDuration;

    use super::*;
    use crate::cluster::Expression;
    use crate::upgrade::{ControlPlane, Mode};

    /// What a release computes, each later one has to compute alike.
    #[test]
    fn the_hash_of_a_spec_stays_what_it_was() {
        let minute = SignedDuration::from_mins(1);
        let selector = Selector {
            match_labels: [("pool".to_owned(), "web".to_owned())].into(),
            match_expressions: vec![Expression {
                key: "zone".to_owned(),
                operator: "In".to_owned(),
                values: vec!["a".to_owned(), "b".to_owned()],
            }],
        };
        let group = |name: &str, max_unavailable| Group {
            name: name.into(),
            selector: selector.clone(),
            max_unavailable,
            executor: "job".into(),
        };
        let template = canonical_json(&json!({"spec": {"hostPID": true, "containers": []}, "metadata": {}}));
        let upgrade = Upgrade {
            name: "up".into(),
            uid: "uid".into(),
            version: "v1.37.1".parse().unwrap(),
            mode: Mode::RequireApproval,
            approved_hash: None,
            suspended: false,
            control_plane: ControlPlane { executor: "cloud".into(), hidden: Hidden::Refuse },
            groups: vec![group("a", Amount::Count(1)), group("b", Amount::Percent(10))],
            drain_timeout: minute * 30,
            executors: [
                ("cloud".into(), Executor::External { deadline: minute * 120 }),
                ("job".into(), Executor::Job { template: template.into(), deadline: minute * 60 }),
            ]
            .into(),
        };
        let from = "v1.36.4".parse().unwrap();
        let text = canonical(&upgrade, &from);
        expect![[r#"
            {"controlPlane":{"executor":"cloud","unit":"Component"},
            "drainTimeoutSeconds":1800,"executors":[{"deadlineSeconds":7200,"kind":"external","name":"cloud","template":null},
            {"deadlineSeconds":3600,"kind":"job","name":"job","template":"{\"metadata\":{},
            \"spec\":{\"containers\":[],\"hostPID\":true}}"}],"form":1,"from":"v1.36.4","nodeGroups":[{"executor":"job","maxUnavailable":1,"name":"a","selector":{"matchExpressions":[{"key":"zone","operator":"In","values":["a","b"]}],"matchLabels":{"pool":"web"}}},
            {"executor":"job","maxUnavailable":"10%","name":"b","selector":{"matchExpressions":[{"key":"zone","operator":"In","values":["a","b"]}],"matchLabels":{"pool":"web"}}}],"to":"v1.37.1"}"#]].assert_eq(&text.replace("},", "},\n"));
        expect!["7adb413b69f5"].assert_eq(&hash(&upgrade, &from));
        let suspended =
            Upgrade { suspended: true, mode: Mode::Automatic, uid: "other".into(), ..upgrade.clone() };
        assert_eq!(hash(&suspended, &from), hash(&upgrade, &from), "when it runs is no part of it");
        let mut other = upgrade.clone();
        let template = canonical_json(&json!({"spec": {"hostPID": false, "containers": []}, "metadata": {}}));
        other
            .executors
            .insert("job".into(), Executor::Job { template: template.into(), deadline: minute * 60 });
        assert_ne!(hash(&other, &from), hash(&upgrade, &from), "another pod is another plan");
    }
}
