//! What is said of components that cannot be seen: by a person, or by an answer to `/version` from behind a load
//! balancer.
//!
//! This module does no I/O and reads no clock. The invariant: what was seen is never replaced by what was only said,
//! unless a person names the very component.

use std::sync::Arc;

use evenkeel_core::cluster::{Cluster, Component, Evidence, Instance, Reach};
use evenkeel_core::version::{KubeVersion, Observed};

use super::version_answer::VersionAnswer;

/// The name of a component that a person gave no name.
const UNNAMED: &str = "(given)";

/// A version that a person says a component runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatedVersion {
    /// For a kubelet `name` is needed, because each node has its own.
    pub component: Component,
    /// Its Node's name or its own; without it, all of the component whose version is not known are meant.
    pub name: Option<Arc<str>>,
    /// What it is said to run; what was seen gives way to it only where `name` is given.
    pub version: KubeVersion,
}

/// `cluster` with what a person said of it.
///
/// # Errors
/// When a kubelet is named whose Node is not there, in one line.
pub fn add(mut cluster: Cluster, given: &[StatedVersion]) -> Result<Cluster, String> {
    for said in given {
        let version = Observed::Known(said.version.clone());
        match (said.component, &said.name) {
            (Component::Kubelet, name) => {
                let name = name.as_deref().unwrap_or_default();
                let said = cluster.change_node(name, |node| {
                    (node.kubelet, node.evidence) = (version, Evidence::Person);
                });
                if !said {
                    return Err(format!("--component kubelet={name}: there is no Node of that name"));
                }
            }
            (component, Some(name)) => named(&mut cluster, component, name, version),
            (component, None) => unnamed(&mut cluster, instance(component, &UNNAMED.into(), version)),
        }
    }
    Ok(cluster)
}

fn named(cluster: &mut Cluster, component: Component, name: &Arc<str>, version: Observed) {
    let mut instances = cluster.instances().to_vec();
    let mut same = instances.iter_mut().filter(|instance| {
        instance.component == component && (instance.name == *name || instance.node.as_ref() == Some(name))
    });
    if let Some(instance) = same.next() {
        instance.version = version;
        instance.effective = None;
        instance.evidence = Evidence::Person;
    } else {
        let node = cluster.node(name).map(|node| Arc::clone(&node.name));
        instances.push(Instance { node, ..instance(component, name, version) });
    }
    cluster.set_instances(instances);
}

/// Whether a kube-apiserver of `cluster` told its version itself. What a kubelet tells of its process is less.
pub fn is_server_known(cluster: &Cluster) -> bool {
    cluster.of(Component::KubeApiserver).any(told_itself)
}

fn told_itself(instance: &Instance) -> bool {
    instance.version.known().is_some() && instance.evidence != Evidence::SameProcess
}

/// Adds to `cluster` an answer to `/version` that stands for all of its kube-apiservers, such as one from behind a
/// load balancer, under `name`. Where no kube-apiserver told its version itself it replaces them; where some did it
/// adds only a minor that none of them has.
pub fn front_door(cluster: &mut Cluster, name: &str, answer: &VersionAnswer) {
    let VersionAnswer { version, effective, .. } = answer.clone();
    let door = Instance {
        evidence: Evidence::FrontDoor,
        effective,
        ..instance(Component::KubeApiserver, &name.into(), version)
    };
    if !is_server_known(cluster) {
        cluster.set_instances(without(cluster, |instance| instance.component != Component::KubeApiserver));
    }
    add_minor(cluster, door);
}

/// Adds to `cluster` the version that a `ClusterOperator` of OpenShift says of its component. It replaces the
/// component's instances if no version of them is known; otherwise it changes nothing.
pub fn rolled_out(cluster: &mut Cluster, component: Component, version: &Observed) {
    if cluster.of(component).all(|instance| instance.version.known().is_none()) {
        let name = format!("clusteroperator/{component}").into();
        let one = instance(component, &name, version.clone());
        unnamed(cluster, Instance { evidence: Evidence::Operator, ..one });
    }
}

/// Puts `one` in the place of every instance of its component whose version is not known.
fn unnamed(cluster: &mut Cluster, one: Instance) {
    let keep =
        |instance: &Instance| instance.component != one.component || instance.version.known().is_some();
    cluster.set_instances(without(cluster, keep));
    add_minor(cluster, one);
}

fn without(cluster: &Cluster, keep: impl Fn(&Instance) -> bool) -> Vec<Instance> {
    cluster.instances().iter().filter(|instance| keep(instance)).cloned().collect()
}

fn add_minor(cluster: &mut Cluster, one: Instance) {
    if cluster.of(one.component).all(|instance| instance.version.minor() != one.version.minor()) {
        cluster.set_instances([cluster.instances(), &[one]].concat());
    }
}

/// An instance that a person tells of.
fn instance(component: Component, name: &Arc<str>, version: Observed) -> Instance {
    Instance {
        component,
        name: Arc::clone(name),
        node: None,
        version,
        evidence: Evidence::Person,
        effective: None,
        reach: Reach::Any,
        incarnation: "".into(),
        ready: true,
        probed: None,
    }
}

#[cfg(test)]
mod tests {
    use evenkeel_core::cluster::Parts;
    use evenkeel_core::version::Unknown;

    use super::*;

    fn seen(name: &str, version: &str) -> Instance {
        let version = match version {
            "" => Observed::Unknown(Unknown::NoTag),
            version => Observed::from_report(version),
        };
        Instance {
            node: Some(format!("node-{name}").into()),
            ..instance(Component::KubeApiserver, &name.into(), version)
        }
    }

    fn said(text: &str) -> StatedVersion {
        let (name, version) =
            text.split_once('=').map_or((None, text), |(name, rest)| (Some(name.into()), rest));
        StatedVersion { component: Component::KubeApiserver, name, version: version.parse().unwrap() }
    }

    fn shown(cluster: &Cluster) -> Vec<String> {
        cluster.instances().iter().map(|instance| format!("{} {}", instance.name, instance.version)).collect()
    }

    #[test]
    fn what_a_person_says_of_apiservers() {
        for (there, given, expected) in [
            (vec![], vec!["v1.36.4"], vec!["(given) v1.36.4"]),
            // Mid-upgrade: both are given, and stand for whatever was not known.
            (
                vec![seen("a", ""), seen("b", "")],
                vec!["v1.36.4", "v1.37.0"],
                vec!["(given) v1.36.4", "(given) v1.37.0"],
            ),
            (vec![seen("a", "v1.36.4"), seen("b", "")], vec!["v1.36.1"], vec!["a v1.36.4"]),
            (vec![seen("a", "v1.36.4"), seen("b", "")], vec!["b=v1.35.1"], vec!["a v1.36.4", "b v1.35.1"]),
            (vec![seen("a", "")], vec!["node-a=v1.35.1"], vec!["a v1.35.1"]),
            (vec![seen("a", "v1.36.4")], vec!["c=v1.35.1"], vec!["a v1.36.4", "c v1.35.1"]),
        ] {
            let given: Vec<_> = given.into_iter().map(said).collect();
            let cluster = Parts { instances: there, ..Parts::default() }.seal();
            assert_eq!(shown(&add(cluster, &given).unwrap()), expected, "{given:?}");
        }
    }

    #[test]
    fn the_front_door_is_one_of_those_that_are_seen() {
        let by_kubelet = Instance { evidence: Evidence::SameProcess, ..seen("s", "v1.36.3+k3s1") };
        for (there, version, expected) in [
            (vec![], "v1.36.4", vec!["door v1.36.4"]),
            (vec![seen("a", "")], "v1.36.4", vec!["door v1.36.4"]),
            (vec![by_kubelet], "v1.36.4", vec!["door v1.36.4"]),
            (vec![seen("a", "v1.36.4"), seen("b", "")], "v1.36.9", vec!["a v1.36.4", "b unknown"]),
            (vec![seen("a", "v1.36.4")], "v1.37.0", vec!["a v1.36.4", "door v1.37.0"]),
        ] {
            let mut cluster = Parts { instances: there, ..Parts::default() }.seal();
            let answer =
                VersionAnswer { version: Observed::from_report(version), effective: None, build: "".into() };
            front_door(&mut cluster, "door", &answer);
            assert_eq!(shown(&cluster), expected);
        }
    }

    #[test]
    fn a_kubelet_needs_its_node() {
        let given = StatedVersion { component: Component::Kubelet, ..said("n1=v1.36.4") };
        assert!(add(Cluster::default(), &[given]).unwrap_err().contains("no Node of that name"));
    }
}
