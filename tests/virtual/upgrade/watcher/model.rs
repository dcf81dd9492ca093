//! What the watcher keeps of each object, read from its JSON alone.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

pub const MARK: &str = "evenkeel.dev/cordoned-by";

pub type Labels = BTreeMap<String, String>;

/// Minor and patch of `v1.<minor>.<patch>…`; of a minor that any release reaches, which a target may be, its first patch.
pub fn version(text: &str) -> Option<(u64, u64)> {
    let mut parts = text.strip_prefix("v1.")?.splitn(2, '.');
    let minor = parts.next()?.parse().ok()?;
    let patch: String = parts.next().unwrap_or("0").chars().take_while(char::is_ascii_digit).collect();
    Some((minor, patch.parse().ok()?))
}

pub fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

pub fn seconds(value: &Value) -> Duration {
    Duration::from_secs(value.as_u64().unwrap_or(0))
}

pub fn labels(value: &Value) -> Labels {
    let map = value.as_object().into_iter().flatten();
    map.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}

/// The taint is the one by which we ask the scheduler to avoid a node.
fn is_ours(taint: &Value) -> bool {
    taint["key"] == "evenkeel.dev/outdated" && taint["effect"] == "PreferNoSchedule"
}

fn is_true(object: &Value, kind: &str) -> bool {
    let all = object["status"]["conditions"].as_array();
    all.is_some_and(|all| all.iter().any(|found| found["type"] == kind && found["status"] == "True"))
}

/// A Node, and since when it is as it is.
#[derive(Clone, Debug)]
pub struct Node {
    pub uid: String,
    pub labels: Labels,
    pub cordoned: bool,
    pub cordoned_since: Instant,
    pub mark: Option<String>,
    pub ready: bool,
    pub kubelet: String,
    pub ready_since: Instant,
    pub kubelet_since: Instant,
    /// Since when everything is as it is that decides whether it is to move: its labels, its kubelet, and who holds it.
    pub same_since: Instant,
    /// Its kubelet is not the one that it had at first.
    pub kubelet_is_another: bool,
    /// Somebody else's cordon, or one that somebody has taken over.
    pub theirs: bool,
    /// When somebody else last changed its cordon.
    pub others: Option<Instant>,
    /// It was cordoned by us while no other node of the control plane was.
    pub is_control_plane: bool,
    /// A person put the annotation on it that holds it.
    pub held: bool,
    /// The value of the taint by which we ask the scheduler to avoid it.
    pub outdated: Option<String>,
    /// Its other taints.
    pub taints: Vec<Value>,
}

impl Node {
    pub fn of(object: &Value, before: Option<&Self>) -> Self {
        let now = Instant::now();
        let (ready, kubelet) =
            (is_true(object, "Ready"), text(&object["status"]["nodeInfo"]["kubeletVersion"]));
        let uid = text(&object["metadata"]["uid"]);
        let before = before.filter(|before| before.uid == uid);
        let labels = labels(&object["metadata"]["labels"]);
        let cordoned = object["spec"]["unschedulable"] == true;
        let (ours, taints): (Vec<Value>, Vec<Value>) =
            object["spec"]["taints"].as_array().cloned().unwrap_or_default().into_iter().partition(is_ours);
        let held = !object["metadata"]["annotations"]["evenkeel.dev/hold"].is_null();
        let same = |of: &&Self| {
            let before = (of.held, of.cordoned, of.ready, &of.kubelet, &of.labels);
            before == (held, cordoned, ready, &kubelet, &labels)
        };
        Self {
            held,
            same_since: before.filter(same).map_or(now, |before| before.same_since),
            outdated: ours.first().map(|taint| text(&taint["value"])),
            taints,
            cordoned_since: before
                .filter(|before| before.cordoned == cordoned)
                .map_or(now, |before| before.cordoned_since),
            ready_since: before
                .filter(|before| before.ready == ready)
                .map_or(now, |before| before.ready_since),
            kubelet_since: before
                .filter(|before| before.kubelet == kubelet)
                .map_or(now, |before| before.kubelet_since),
            kubelet_is_another: before
                .is_some_and(|before| before.kubelet_is_another || before.kubelet != kubelet),
            theirs: before.is_some_and(|before| before.theirs),
            others: before.and_then(|before| before.others),
            is_control_plane: labels.contains_key("node-role.kubernetes.io/control-plane"),
            cordoned,
            mark: object["metadata"]["annotations"][MARK].as_str().map(str::to_owned),
            uid,
            labels,
            ready,
            kubelet,
        }
    }

    /// The claim's name and UID of its mark.
    pub fn marked_by(&self) -> Option<(&str, &str)> {
        let (name, rest) = self.mark.as_deref()?.split_once('/')?;
        Some((name, rest.split('/').next().unwrap_or(rest)))
    }
}

#[derive(Clone, Debug, Default)]
pub struct Pod {
    pub node: String,
    pub labels: Labels,
    pub healthy: bool,
    pub leaving: bool,
    pub of_daemon_set: bool,
    /// Nothing would make it again.
    pub bare: bool,
    /// It has data that go with it.
    pub empty_dir: bool,
    /// The Eviction API said that it asked it to leave.
    pub evicted: bool,
    pub uid: String,
    /// Who makes it again and serves by all of its pods: a UID.
    pub server: Option<String>,
    /// Its containers ended, and do not begin again.
    pub finished: bool,
    /// Since when it is there; none where it was there from the beginning.
    pub made: Option<Instant>,
    /// It was ready at some time.
    pub was_ready: bool,
}

/// Kinds that serve by all of their pods.
const SERVERS: [&str; 3] = ["ReplicaSet", "StatefulSet", "ReplicationController"];

impl Pod {
    /// A pod that was there before anybody looked.
    pub fn found(pod: &Value) -> Self {
        Self { made: None, ..Self::of(pod, None) }
    }

    pub fn of(pod: &Value, before: Option<&Self>) -> Self {
        let uid = text(&pod["metadata"]["uid"]);
        let before = before.filter(|before| before.uid == uid);
        let healthy = is_true(pod, "Ready");
        let owners = pod["metadata"]["ownerReferences"].as_array();
        let conditions = pod["status"]["conditions"].as_array();
        Self {
            node: text(&pod["spec"]["nodeName"]),
            labels: labels(&pod["metadata"]["labels"]),
            server: owners.and_then(|all| {
                let of = all.iter().find(|owner| owner["controller"] == true)?;
                SERVERS.iter().any(|kind| of["kind"] == *kind).then(|| text(&of["uid"]))
            }),
            finished: pod["status"]["phase"] == "Succeeded" || pod["status"]["phase"] == "Failed",
            made: before.map_or_else(|| Some(Instant::now()), |before| before.made),
            was_ready: healthy || before.is_some_and(|before| before.was_ready),
            uid,
            healthy,
            leaving: pod["metadata"].get("deletionTimestamp").is_some(),
            of_daemon_set: owners.is_some_and(|all| all.iter().any(|owner| owner["kind"] == "DaemonSet")),
            bare: !owners.is_some_and(|all| all.iter().any(|owner| owner["controller"] == true)),
            empty_dir: pod["spec"]["volumes"]
                .as_array()
                .is_some_and(|all| all.iter().any(|volume| volume.get("emptyDir").is_some())),
            evicted: conditions.is_some_and(|all| {
                all.iter().any(|found| {
                    found["type"] == "DisruptionTarget"
                        && found["status"] == "True"
                        && found["reason"] == "EvictionByEvictionAPI"
                })
            }),
        }
    }
}

#[derive(Clone, Debug)]
pub struct Budget {
    pub labels: Labels,
    pub needs: i64,
    /// What it needs is computed for its present spec.
    pub known: bool,
    /// Since when it needs that.
    pub since: Instant,
}

impl Budget {
    pub fn of(budget: &Value, before: Option<&Self>) -> Self {
        let needs = budget["status"]["desiredHealthy"].as_i64();
        let known =
            needs.is_some() && budget["status"]["observedGeneration"] == budget["metadata"]["generation"];
        let labels = labels(&budget["spec"]["selector"]["matchLabels"]);
        let needs = needs.unwrap_or(0);
        let same = before.filter(|before| before.needs == needs && before.labels == labels);
        let since = same.map_or_else(Instant::now, |before| before.since);
        Self { labels, needs, known, since }
    }
}

/// A claim: a `NodeUpgrade`.
#[derive(Clone, Debug)]
pub struct Claim {
    pub uid: String,
    pub upgrade: String,
    pub component: String,
    /// What moves together; `component` where it moves alone.
    pub moves: Vec<String>,
    /// It is about the control plane of a node as a whole.
    pub of_plane: bool,
    pub node: String,
    pub node_uid: String,
    pub from: String,
    pub to: String,
    pub executor: String,
    pub state: String,
    pub message: String,
    /// Since when its pods are asked to leave, if they are.
    pub draining_since: Option<Instant>,
    /// When it was made.
    pub made: Instant,
    /// When it came into the state in which it is.
    pub state_since: Instant,
    /// How often it was taken up.
    pub attempt: i64,
    /// The pods that the operator says are in its way, and the budget of each; empty where none is to blame.
    pub blocked_by: Vec<(String, String)>,
    /// It is tried again at once: its drain was given back while it had time.
    pub given_back: bool,
    /// Somebody deleted it.
    pub leaving: bool,
}

impl Claim {
    pub fn of(claim: &Value, before: Option<&Self>) -> Self {
        let (spec, status) = (&claim["spec"], &claim["status"]);
        let state = text(&status["state"]);
        let list = spec["components"].as_array().into_iter().flatten();
        let moves: Vec<String> = list.map(text).collect();
        let of_plane = !moves.is_empty();
        let now = Instant::now();
        let since = before.and_then(|before| before.draining_since).unwrap_or(now);
        let uid = text(&claim["metadata"]["uid"]);
        let same = before.filter(|before| before.uid == uid);
        Self {
            made: same.map_or(now, |before| before.made),
            state_since: same.filter(|before| before.state == state).map_or(now, |before| before.state_since),
            attempt: status["attempt"].as_i64().unwrap_or(1),
            blocked_by: (status["blockedBy"].as_array().into_iter().flatten())
                .map(|of| (text(&of["pod"]), text(&of["podDisruptionBudget"])))
                .collect(),
            given_back: state == "Parked" && status["retryTime"] == status["since"],
            leaving: claim["metadata"].get("deletionTimestamp").is_some(),
            draining_since: (state == "Draining").then_some(since),
            from: text(&spec["fromVersion"]),
            uid,
            upgrade: text(&spec["upgradeName"]),
            component: text(&spec["component"]),
            moves: if of_plane { moves } else { vec![text(&spec["component"])] },
            of_plane,
            node: text(&spec["nodeName"]),
            node_uid: text(&spec["nodeUID"]),
            to: text(&spec["toVersion"]),
            executor: text(&spec["executor"]),
            state: if state.is_empty() { "Claimed".to_owned() } else { state },
            message: text(&status["message"]),
        }
    }

    pub fn of_kubelet(&self) -> bool {
        self.component == "kubelet"
    }

    /// Only its patch changes.
    pub fn is_of_patch(&self) -> bool {
        let minor = |of: &str| version(of).map(|(minor, _)| minor);
        minor(&self.from).is_some() && minor(&self.from) == minor(&self.to)
    }

    /// It is under way.
    pub fn in_flight(&self) -> bool {
        matches!(self.state.as_str(), "Claimed" | "Draining" | "Upgrading")
    }

    /// It takes a place in its group's budget. One that was given up before its node was cordoned takes none: a write that
    /// arrives late makes one claim too many, and the operator gives that up and goes on with the others.
    pub fn takes_place(&self) -> bool {
        self.in_flight() && !(self.leaving && self.state == "Claimed")
    }
}

/// Whether a label selector selects what has these labels.
fn selects(selector: &Value, labels: &Labels) -> bool {
    let wanted = selector["matchLabels"].as_object().into_iter().flatten();
    let terms = selector["matchExpressions"].as_array().into_iter().flatten();
    let mut alike = wanted.map(|(key, value)| labels.get(key).map(String::as_str) == value.as_str());
    let mut terms = terms.map(|term| {
        let found = labels.get(term["key"].as_str().unwrap_or_default());
        let listed = |value: &String| {
            term["values"].as_array().is_some_and(|all| all.iter().any(|one| one == value.as_str()))
        };
        match term["operator"].as_str() {
            Some("In") => found.is_some_and(listed),
            Some("NotIn") => !found.is_some_and(listed),
            Some("Exists") => found.is_some(),
            _ => found.is_none(),
        }
    });
    alike.all(|fits| fits) && terms.all(|fits| fits)
}

/// Which nodes, and how many at once.
#[derive(Clone, Debug)]
pub struct Group {
    pub name: String,
    pub selector: Value,
    /// Who changes the versions of its nodes.
    pub executor: String,
    pub limit: Value,
    pub depends_on: Vec<String>,
    pub soak: Duration,
    /// So many of its nodes go first.
    pub canary: usize,
    /// Its zones go one after the other.
    pub one_zone: bool,
}

impl Group {
    pub fn selects(&self, labels: &Labels) -> bool {
        selects(&self.selector, labels)
    }

    pub fn limit(&self, size: usize) -> usize {
        amount(&self.limit, size).unwrap_or(1)
    }
}

/// A number, or a percentage of `size`, rounded down and at least one; none where nobody said any.
pub fn amount(limit: &Value, size: usize) -> Option<usize> {
    match limit {
        Value::Number(number) => usize::try_from(number.as_u64()?).ok(),
        Value::String(text) => {
            let percent: usize = text.trim_end_matches('%').parse().ok()?;
            Some((size * percent / 100).max(1))
        }
        _ => None,
    }
}

/// Whether what `object`, a `ClusterUpgrade`, shows as its plan may be carried out.
fn is_approved(object: &Value) -> bool {
    let hash = &object["status"]["plan"]["hash"];
    match object["spec"]["mode"].as_str() {
        Some("Automatic") => true,
        Some("RequireApproval") => hash.is_string() && object["spec"]["approval"]["planHash"] == *hash,
        _ => false,
    }
}

/// What a person wants: a `ClusterUpgrade`.
#[derive(Clone, Debug)]
pub struct Upgrade {
    pub name: String,
    pub uid: String,
    pub version: String,
    pub suspended_since: Option<Instant>,
    /// Since when its plan may not be carried out.
    pub unapproved_since: Option<Instant>,
    pub groups: Vec<Group>,
    pub accepts_hidden: bool,
    /// How nodes are drained, as the person wrote it.
    pub drain: Value,
    pub generation: i64,
    pub seen_generation: i64,
    pub spec_since: Instant,
    pub spec: Value,
    pub status: Value,
    /// Somebody deleted it.
    pub leaving: bool,
}

impl Upgrade {
    pub fn of(object: &Value, before: Option<&Self>) -> Self {
        let spec = &object["spec"];
        let now = Instant::now();
        let generation = object["metadata"]["generation"].as_i64().unwrap_or(0);
        let uid = text(&object["metadata"]["uid"]);
        let before = before.filter(|before| before.uid == uid);
        let groups = spec["nodeGroups"].as_array().into_iter().flatten().map(|group| Group {
            name: text(&group["name"]),
            executor: text(&group["executor"]),
            selector: group["selector"].clone(),
            limit: group["maxUnavailable"].clone(),
            depends_on: group["dependsOn"].as_array().into_iter().flatten().map(text).collect(),
            soak: seconds(&group["soakSeconds"]),
            canary: group["canary"].as_u64().and_then(|count| usize::try_from(count).ok()).unwrap_or(0),
            one_zone: group["zones"] == "OneAtATime",
        });
        let suspended = spec["suspend"] == true;
        Self {
            name: text(&object["metadata"]["name"]),
            version: text(&spec["version"]),
            suspended_since: suspended
                .then(|| before.and_then(|before| before.suspended_since).unwrap_or(now)),
            unapproved_since: (!is_approved(object))
                .then(|| before.and_then(|before| before.unapproved_since).unwrap_or(now)),
            groups: groups.collect(),
            accepts_hidden: spec["controlPlane"]["hidden"] == "Accept",
            drain: spec["drain"].clone(),
            generation,
            seen_generation: object["status"]["observedGeneration"].as_i64().unwrap_or(0),
            spec_since: before
                .filter(|before| before.generation == generation)
                .map_or(now, |before| before.spec_since),
            leaving: object["metadata"].get("deletionTimestamp").is_some(),
            spec: spec.clone(),
            status: object["status"].clone(),
            uid,
        }
    }

    /// Pods of a node that `claim` holds do not leave it.
    pub fn only_cordons(&self, claim: &Claim) -> bool {
        self.drain["mode"] == "MinorOnly" && claim.is_of_patch()
    }

    /// The pods that are left on a node may be deleted: so was said, and its time is over, to the moment that the write
    /// which said that it begins was on its way.
    pub fn forces(&self, claim: &Claim) -> bool {
        let seconds = self.drain["timeoutSeconds"].as_u64().unwrap_or(1800);
        let time = Duration::from_secs(seconds).saturating_sub(Duration::from_millis(100));
        self.drain["onTimeout"] == "Force"
            && claim.draining_since.is_some_and(|since| since.elapsed() >= time)
    }

    /// What the first rule says that selects this pod of `namespace`.
    fn rule(&self, namespace: &str, labels: &Labels) -> Option<&str> {
        let rules = self.drain["podRules"].as_array().into_iter().flatten();
        let mut selecting = rules.filter(|rule| {
            let named =
                rule["namespaces"].as_array().is_none_or(|all| all.iter().any(|name| name == namespace));
            named && selects(&rule["selector"], labels)
        });
        selecting.next()?["behavior"].as_str()
    }

    /// A rule says that this pod of `namespace` stays, or is waited for.
    pub fn exempts(&self, namespace: &str, labels: &Labels) -> bool {
        self.rule(namespace, labels).is_some_and(|behavior| behavior != "Drain")
    }

    /// A rule says that this pod of `namespace` stays, whatever time is over.
    pub fn skips(&self, namespace: &str, labels: &Labels) -> bool {
        self.rule(namespace, labels) == Some("Skip")
    }

    /// The groups that `group` depends on, and those that these depend on.
    pub fn groups_before(&self, group: &Group) -> BTreeSet<&str> {
        let mut before = BTreeSet::new();
        let mut next: Vec<&str> = group.depends_on.iter().map(String::as_str).collect();
        while let Some(name) = next.pop() {
            let of = self.groups.iter().find(|of| of.name == name);
            if let Some(of) = of.filter(|of| before.insert(of.name.as_str())) {
                next.extend(of.depends_on.iter().map(String::as_str));
            }
        }
        before
    }

    /// The group of a node: the first that selects it.
    pub fn group_of(&self, labels: &Labels) -> Option<&Group> {
        self.groups.iter().find(|group| group.selects(labels))
    }
}
