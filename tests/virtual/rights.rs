//! Whether the roles that are shipped allow what Evenkeel asks for: the virtual cluster itself asks nobody who he is.
//!
//! Here belongs how a role is read and what it allows, as the RBAC authorizer has it: a request is allowed if one rule of
//! one role that is bound to who asks allows it. The rules of Evenkeel name everything, so that `*` is not understood.
//! Paths that are no resource do not belong here: `tests/limits` asks a real server for them. The invariant: a request for a
//! resource that the roles do not allow is never passed over.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use evenkeel_sim::faults::Call;
use serde::Deserialize;

use super::campaign::Wrong;

/// The files with roles. Two of them are optional: with the one pods may be deleted, and only under `onTimeout: Force` they are,
/// which the watcher of an upgrade checks; with the other the gate of these runs may be read.
const FILES: [&str; 5] = [
    include_str!("../../config/default/reporter.yaml"),
    include_str!("../../config/upgrade/upgrader.yaml"),
    include_str!("../../config/force/force.yaml"),
    include_str!("../../config/gates/reader.yaml"),
    include_str!("../../config/drain/drainer.yaml"),
];
const REPORTER: &str = "evenkeel-reporter";
const UPGRADER: &str = "evenkeel-upgrader";
/// Whom a person binds to the role for `evenkeel drain`.
const DRAINER: &str = "evenkeel-drainer";
/// `config/upgrade/kustomization.yaml` binds the upgrader, too, where a binding has this label.
const OF_REPORTERS: (&str, &str) = ("evenkeel.dev/role", "reporter");

/// An object of those files, as far as it says who may do what.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Manifest {
    kind: String,
    metadata: Metadata,
    rules: Vec<Rule>,
    role_ref: Metadata,
    subjects: Vec<Metadata>,
}

impl Manifest {
    /// Whether it gives its role to this account.
    fn binds(&self, account: &str) -> bool {
        let (label, value) = OF_REPORTERS;
        let of_reporters = self.metadata.labels.get(label).is_some_and(|of| of == value);
        self.kind.ends_with("RoleBinding")
            && (self.subjects.iter().any(|subject| subject.name == account)
                || (of_reporters && account == UPGRADER))
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Metadata {
    name: String,
    namespace: Option<String>,
    labels: BTreeMap<String, String>,
}

#[derive(Deserialize, Default, Clone)]
#[serde(rename_all = "camelCase", default)]
struct Rule {
    api_groups: BTreeSet<String>,
    resources: BTreeSet<String>,
    resource_names: BTreeSet<String>,
    verbs: BTreeSet<String>,
}

/// What is asked for: the object's name, and its namespace, are empty where the request names none.
#[derive(Debug, Clone, Copy)]
struct Asked<'a> {
    verb: &'a str,
    /// `pods/eviction`, `leases`.
    resource: &'a str,
    group: &'a str,
    namespace: &'a str,
    name: &'a str,
}

/// The rules that are bound, each with the namespace in which it counts; without one it counts everywhere.
struct Rights(Vec<(Option<String>, Rule)>);

impl Rights {
    /// The rules of all roles that are bound to this account.
    fn of(account: &str) -> Self {
        let documents = FILES.iter().flat_map(|file| file.split("\n---\n"));
        let manifests: Vec<Manifest> =
            documents.map(|document| serde_saphyr::from_str(document).unwrap()).collect();
        let mut rights = Vec::new();
        for binding in manifests.iter().filter(|of| of.binds(account)) {
            let role = manifests.iter().find(|of| {
                of.kind == binding.kind.trim_end_matches("Binding")
                    && of.metadata.name == binding.role_ref.name
                    && of.metadata.namespace == binding.metadata.namespace
            });
            let role = role.unwrap_or_else(|| panic!("no role {} is there", binding.role_ref.name));
            let place = &binding.metadata.namespace;
            rights.extend(role.rules.iter().map(|rule| (place.clone(), rule.clone())));
        }
        // The role of a drainer is bound to nobody as it is shipped.
        let unbound = manifests.iter().filter(|of| of.kind == "ClusterRole" && of.metadata.name == DRAINER);
        rights.extend(
            unbound.filter(|_| account == DRAINER).flat_map(|of| &of.rules).map(|rule| (None, rule.clone())),
        );
        Self(rights)
    }

    fn allow(&self, asked: &Asked) -> bool {
        self.0.iter().any(|(place, rule)| {
            place.as_ref().is_none_or(|place| place == asked.namespace)
                && rule.verbs.contains(asked.verb)
                && rule.resources.contains(asked.resource)
                && rule.api_groups.contains(asked.group)
                && (rule.resource_names.is_empty() || rule.resource_names.contains(asked.name))
        })
    }
}

/// Who asks, as the roles have it.
#[derive(Clone, Copy)]
pub enum Account {
    /// The operator with `config/default` alone.
    Reporter,
    /// The operator with `config/upgrade`.
    Upgrader,
    /// Who runs `evenkeel drain`, with `config/drain`.
    Drainer,
}

/// What was asked for by Evenkeel, as this account, and is not allowed to it.
pub fn beyond(calls: &[Call], account: Account) -> Wrong {
    static RIGHTS: [OnceLock<Rights>; 3] = [const { OnceLock::new() }; 3];
    let rights = RIGHTS[account as usize].get_or_init(|| {
        Rights::of(match account {
            Account::Reporter => REPORTER,
            Account::Upgrader => UPGRADER,
            Account::Drainer => DRAINER,
        })
    });
    // Which kinds are served, and how a server is, everybody may ask who has logged in.
    let ours = calls.iter().filter(|call| call.agent.starts_with("evenkeel") && !call.resource.is_empty());
    let mut wrong: BTreeSet<String> = BTreeSet::new();
    for call in ours {
        let (plural, group) = call.resource.split_once('.').unwrap_or((call.resource.as_str(), ""));
        let resource = match &call.subresource {
            Some(subresource) => format!("{plural}/{subresource}"),
            None => plural.to_owned(),
        };
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let (namespace, name) = (text(&call.namespace), text(&call.name));
        let asked = Asked {
            verb: call.verb,
            resource: &resource,
            // Both groups that have events keep the same ones, and a call does not tell them apart.
            group: if plural == "events" { "events.k8s.io" } else { group },
            namespace: &namespace,
            name: &name,
        };
        if !rights.allow(&asked) {
            wrong.insert(format!("no shipped role allows: {}", call.line()));
        }
    }
    wrong.into_iter().collect()
}

#[test]
fn roles_allow_what_they_name_and_nothing_else() {
    /// Of the requests below, those that a drainer may send.
    const OF_DRAINERS: [(&str, &str); 4] =
        [("list", "nodes"), ("patch", "nodes"), ("list", "pods"), ("create", "pods/eviction")];
    let (reporter, upgrader, drainer) = (Rights::of(REPORTER), Rights::of(UPGRADER), Rights::of(DRAINER));
    for (asked, allowed) in [
        ("list nodes", "both"),
        ("patch nodes worker-1", "upgrader"),
        ("update nodes worker-1", "none"),
        ("list pods", "upgrader"),
        ("list pods kube-system/", "both"),
        ("list pods shop/", "upgrader"),
        ("create pods/eviction shop/web-1", "upgrader"),
        ("create pods shop/web-1", "none"),
        ("get pods shop/web-1", "none"),
        ("list secrets kube-system/", "none"),
        ("create leases.coordination.k8s.io kube-system/", "both"),
        ("update leases.coordination.k8s.io kube-system/evenkeel", "both"),
        ("update leases.coordination.k8s.io kube-system/kube-scheduler", "none"),
        ("update leases.coordination.k8s.io default/evenkeel", "none"),
        ("update leases kube-system/evenkeel", "none"),
        ("update clusterskewreports/status.evenkeel.dev cluster", "both"),
        ("update clusterskewreports/status.evenkeel.dev other", "none"),
        ("update clusterupgrades.evenkeel.dev up", "none"),
        ("create jobs.batch evenkeel-executors/", "upgrader"),
        ("create jobs.batch shop/", "none"),
        ("delete jobs.batch evenkeel-executors/up", "none"),
        ("get servicelevels.example.com shop/checkout", "upgrader"),
        ("get servicelevels.example.com shop/cart", "none"),
    ] {
        let mut words = asked.split(' ');
        let (verb, resource, of) =
            (words.next().unwrap(), words.next().unwrap(), words.next().unwrap_or_default());
        let (resource, group) = resource.split_once('.').unwrap_or((resource, ""));
        let (namespace, name) = of.split_once('/').unwrap_or(("", of));
        let asked = Asked { verb, resource, group, namespace, name };
        let may = match (reporter.allow(&asked), upgrader.allow(&asked)) {
            (true, true) => "both",
            (false, true) => "upgrader",
            (false, false) => "none",
            (true, false) => "reporter",
        };
        assert_eq!(may, allowed, "{asked:?}");
        assert_eq!(drainer.allow(&asked), OF_DRAINERS.contains(&(verb, resource)), "{asked:?}");
    }
}
