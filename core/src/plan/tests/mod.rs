//! Plans of small clusters, said in lines: what the tests of plans have in common.

mod brute;
mod limits;
mod one_service;
mod search;
mod steps;
mod vendors;
mod waves;
mod wrong;

use expect_test::{Expect, expect};
use jiff::Timestamp;

use super::*;
use crate::cluster::{Cluster, Component, Evidence, Instance, Node, Reach, Webhook};
use crate::fixture::{at, cluster, instance, node, releases};
use crate::skew::policy::Policy;
use crate::upgrade::{AcceptedRisk, Executor, Unit, Upgrade};

fn made(cluster: &Cluster, upgrade: &Upgrade) -> Plan {
    made_at(cluster, upgrade, at(0))
}

fn made_at(cluster: &Cluster, upgrade: &Upgrade, now: Timestamp) -> Plan {
    make(&PlanInput {
        cluster,
        upgrade,
        members: &upgrade.members(cluster),
        recorded: &[],
        policy: Policy::default(),
        catalogue: releases(),
        hidden: &[],
        absent_executors: &[],
        now,
    })
}

fn checked(plan: Plan, cluster: &Cluster, upgrade: &Upgrade) -> Result<Checked<Plan>, Vec<Refutation>> {
    check(plan, cluster, &upgrade.members(cluster), &Policy::default())
}

fn to(version: &str) -> Upgrade {
    Upgrade::to(version.parse().unwrap())
}

fn by_node(version: &str) -> Upgrade {
    let mut upgrade = to(version);
    upgrade.control_plane.unit = Unit::Node;
    upgrade
}

/// The plan in lines, and what the second judge says.
fn told(cluster: &Cluster, upgrade: &Upgrade) -> String {
    let plan = made(cluster, upgrade);
    let mut lines = Vec::new();
    for hop in &plan.hops {
        lines.push(format!("hop {} ({:?})", hop.version, hop.picked));
        lines.extend(hop.needs.iter().map(|need| format!("  needs {need}")));
        for step in &hop.steps {
            let names: Vec<&str> = step.components.iter().map(|component| component.name()).collect();
            lines.push(format!("  {} on {} from {}", names.join(", "), step.place, step.from));
        }
        lines.push(match hop.kubelets {
            Pass::All => "  kubelets: all".to_owned(),
            Pass::Before(minor) => format!("  kubelets: those before {minor}"),
        });
    }
    lines.extend(
        plan.findings.iter().map(|finding| format!("{} {}: {finding}", finding.weight.name(), finding.id)),
    );
    match checked(plan, cluster, upgrade) {
        Ok(_) => lines.push("checked".to_owned()),
        Err(why) => lines.extend(why.iter().map(|why| format!("refuted: {why}"))),
    }
    lines.join("\n") + "\n"
}

#[track_caller]
fn plans(cluster: &Cluster, upgrade: &Upgrade, expected: &Expect) {
    expected.assert_eq(&told(cluster, upgrade));
}

/// A control plane of `servers`, with controllers beside each of them that talk to that one alone.
fn stacked(servers: &[&str], kubelets: &[&str]) -> Cluster {
    let mut all = cluster(&[], "v1.0.0", kubelets);
    let mut instances: Vec<Instance> = Vec::new();
    for (number, version) in servers.iter().enumerate() {
        for component in
            [Component::KubeApiserver, Component::KubeControllerManager, Component::KubeScheduler]
        {
            let name = format!("cp-{}", number + 1);
            instances.push(Instance { reach: Reach::Local, ..instance(component, &name, version) });
        }
    }
    all.set_instances(instances);
    all
}

/// A server of RKE2 and an agent, each with its kube-proxy, which is a static pod of the service that is the kubelet.
fn rke2(server: &str, agent: &str, proxy: &str) -> Cluster {
    let mut cluster = stacked(&[server], &[agent]);
    cluster.set_node(Node { control_plane: true, ..node("cp-1", server) });
    cluster.add_instance(instance(Component::KubeProxy, "kube-proxy-cp-1@cp-1", server));
    cluster.add_instance(instance(Component::KubeProxy, "kube-proxy-n-1@n-1", proxy));
    cluster
}
