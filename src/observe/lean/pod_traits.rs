//! The traits of a pod that few pods have and that only a drain asks about.
//!
//! Here belongs how traits are read; what follows for a drain is the core's. The invariant: a pod without any trait,
//! as most are, needs no memory for them.

use std::collections::BTreeMap;
use std::sync::Arc;

use evenkeel_core::cluster::Traits;
use evenkeel_core::text::harmless;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::pod_spec::{
    ContainerPort, PodAffinityTerm, PodSpec, PodStatus, Toleration, TopologySpreadConstraint,
};
use super::wire::{HOSTNAME_LABEL, OPT_OUTS, condition, is_true};

/// Label on an executor's Job and its pods: the UID of the `NodeUpgrade` that they work for.
pub const EXECUTOR_LABEL: &str = "evenkeel.dev/node-upgrade";
const JOB_FINALIZER: &str = "batch.kubernetes.io/job-tracking";
const CRITICAL: [&str; 2] = ["system-cluster-critical", "system-node-critical"];
/// How much is kept of what a container said, in characters: why a program refuses is at the end of what it says.
const MAX_LAST_WORDS: usize = 400;

/// The end of what the container that failed last said, in one line: as many of its last lines as there is room for, or the
/// end of the last.
fn last_words(status: &PodStatus) -> Option<Arc<str>> {
    let all = status.init_container_statuses.iter().chain(&status.container_statuses).flatten();
    let ended = all.filter_map(|container| container.state.as_ref()?.terminated.as_ref());
    let failed = ended.filter(|ended| ended.exit_code != 0).filter_map(|ended| ended.message.as_deref());
    let said = failed.map(str::trim).rfind(|message| !message.is_empty())?;
    let lines = said.lines().map(str::trim).filter(|line| !line.is_empty()).rev().map(harmless);
    let mut kept = String::new();
    for line in lines {
        let longer = if kept.is_empty() { line } else { format!("{line} / {kept}") };
        match longer.chars().count().checked_sub(MAX_LAST_WORDS).filter(|over| *over > 0) {
            None => kept = longer,
            Some(over) if kept.is_empty() => {
                return Some(format!("…{}", longer.chars().skip(over).collect::<String>()).into());
            }
            Some(_) => return Some(format!("… / {kept}").into()),
        }
    }
    Some(kept.into())
}

/// The traits of a pod; `None` for a pod that has none.
pub(super) fn traits(meta: &ObjectMeta, spec: &PodSpec, status: &PodStatus) -> Option<Traits> {
    let volumes = || spec.volumes.iter().flatten();
    let claims =
        volumes().filter_map(|volume| volume.persistent_volume_claim.as_ref()?.claim_name.as_deref());
    let tied = spec.node_selector.as_ref().and_then(|labels| labels.get(HOSTNAME_LABEL));
    let affinity = spec.affinity.as_ref();
    let by_affinity = || affinity.and_then(|affinity| Some(affinity.node_affinity.as_ref()?.hosts()));
    let tolerates_cordon = spec.tolerations.iter().flatten().any(Toleration::of_cordon);
    let apart = affinity.and_then(|affinity| affinity.pod_anti_affinity.as_ref()?.required.as_ref());
    let none = BTreeMap::new();
    let labels = meta.labels.as_ref().unwrap_or(&none);
    let from_own_kind = |term: &PodAffinityTerm| {
        term.topology_key.as_deref() == Some(HOSTNAME_LABEL)
            && term.label_selector.as_ref().is_some_and(|selector| selector.matches(labels))
    };
    let counts_cordoned = |spread: &TopologySpreadConstraint| {
        spread.when_unsatisfiable.as_deref() == Some("DoNotSchedule")
            && spread.node_taints_policy.as_deref() != Some("Honor")
    };
    let containers = spec.containers.iter().flatten();
    let ports = containers.flat_map(|container| container.ports.iter().flatten());
    let finalizers = meta.finalizers.iter().flatten().filter(|finalizer| *finalizer != JOB_FINALIZER);
    let annotations = meta.annotations.as_ref();
    let opt_out = |key: &&str| {
        let value = annotations?.get(*key)?;
        let means_yes = if *key == OPT_OUTS[1] { value != "true" } else { value != "false" };
        means_yes.then(|| format!("{key}={}", evenkeel_core::version::escape(value)).into())
    };
    let scheduled = condition(status.conditions.as_ref(), "PodScheduled");
    let unschedulable = scheduled.filter(|found| {
        found.status.as_deref() == Some("False") && found.reason.as_deref() == Some("Unschedulable")
    });
    let mut waiting = status
        .container_statuses
        .iter()
        .flatten()
        .filter_map(|container| container.state.as_ref()?.waiting.as_ref()?.reason.as_deref())
        .filter(|reason| !matches!(*reason, "ContainerCreating" | "PodInitializing"));
    let over = matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"));
    let starting =
        !over && meta.deletion_timestamp.is_none() && !is_true(status.conditions.as_ref(), "Ready");
    let traits = Traits {
        deleting: meta.deletion_timestamp.as_ref().map(|time| time.0),
        executor_of: labels.get(EXECUTOR_LABEL).map(|claim| claim.as_str().into()),
        claims: claims.map(Into::into).collect(),
        own_claims: volumes().filter_map(|volume| volume.own_claim(meta.name.as_deref()?)).collect(),
        host_path: volumes().any(|volume| volume.host_path.is_some()),
        hosts: tied.map_or_else(|| by_affinity().unwrap_or_default(), |host| vec![host.as_str().into()]),
        tolerates_cordon,
        alone_on_host: apart.is_some_and(|terms| terms.iter().any(from_own_kind)),
        spread_counts_cordoned: spec.topology_spread_constraints.iter().flatten().any(counts_cordoned),
        host_ports: ports.filter_map(ContainerPort::of_host).collect(),
        device_claims: spec.resource_claims.as_ref().is_some_and(|claims| !claims.is_empty()),
        finalizers: finalizers.map(|finalizer| finalizer.as_str().into()).collect(),
        grace: spec.termination_grace_period_seconds.filter(|seconds| *seconds != Traits::USUAL_GRACE),
        opt_outs: OPT_OUTS.iter().filter_map(opt_out).collect(),
        critical: spec.priority_class_name.as_deref().is_some_and(|class| CRITICAL.contains(&class)),
        gang: spec.scheduling_group.is_some(),
        responders: spec.eviction_responders.as_ref().is_some_and(|responders| !responders.is_empty()),
        unschedulable: unschedulable.and_then(|found| Some(found.message.as_deref()?.into())),
        waiting: waiting.next().map(Into::into),
        last_words: labels.contains_key(EXECUTOR_LABEL).then(|| last_words(status)).flatten(),
        starting_since: meta.creation_timestamp.as_ref().filter(|_| starting).map(|time| time.0),
    };
    (traits != *Traits::NONE).then_some(traits)
}
