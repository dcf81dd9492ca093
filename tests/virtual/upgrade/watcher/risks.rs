//! 1, 2 and 11: what would stop an upgrade, unless a person answers for it in time: webhooks that fail closed, controllers
//! that nothing shows, and nodes that cannot be drained.

use evenkeel_sim::Write;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use tokio::time::Instant;

use super::blind::UPGRADES;
use super::model::{Budget, Upgrade, text};
use super::{Claim, Watcher, selects, version};

const WEBHOOKS: &str = "validatingwebhookconfigurations.admissionregistration.k8s.io";

/// The webhooks of a configuration that fail closed and see only what they list, as findings would be called.
fn in_the_way(configuration: &Value) -> Vec<String> {
    let name = text(&configuration["metadata"]["name"]);
    let hooks = configuration["webhooks"].as_array().into_iter().flatten();
    let listed = |hook: &&Value| {
        let rules = hook["rules"].as_array().into_iter().flatten();
        rules.filter_map(|rule| rule["apiVersions"].as_array()).flatten().all(|version| version != "*")
    };
    let bad = hooks.filter(|hook| hook["failurePolicy"] == "Fail" && hook["matchPolicy"] == "Exact");
    bad.filter(listed).map(|hook| format!("O5/{name}/{}", text(&hook["name"]))).collect()
}

/// Whether a person accepts `finding` at `now`.
fn accepts(upgrade: &Upgrade, finding: &str, now: Timestamp) -> bool {
    let risks = upgrade.spec["acceptedRisks"].as_array().into_iter().flatten();
    let until = |risk: &Value| text(&risk["until"]).parse::<Timestamp>().expect("a time");
    risks.filter(|risk| risk["finding"] == finding).any(|risk| now < until(risk))
}

impl Watcher {
    /// Remembers what a webhook configuration puts in the way.
    pub(super) fn webhooks(&mut self, write: &Write<'_>) {
        match write.after() {
            Some(configuration) => {
                let found = (in_the_way(&configuration), Instant::now());
                _ = self.webhooks.insert(write.name().to_owned(), found);
            }
            None => _ = self.webhooks.remove(write.name()),
        }
    }

    /// Whether a person answers for `finding`, or did a moment ago.
    pub(super) fn is_accepted(&self, upgrade: &Upgrade, finding: &str) -> bool {
        let moment = SignedDuration::try_from(self.moment()).expect("a moment");
        // Nobody can tell what the clock of the operator showed.
        let unseen = self.is_blind(UPGRADES, &upgrade.name, upgrade.spec_since);
        let unclear = self.clocks_jump || self.late.is_some() || unseen;
        unclear || accepts(upgrade, finding, self.now() - moment) || accepts(upgrade, finding, self.now())
    }

    /// Whether a person accepts what may keep `node` from being drained: a pod on it, or the budget of one.
    pub(super) fn may_stay(&self, upgrade: &Upgrade, node: &str) -> bool {
        let risks = upgrade.spec["acceptedRisks"].as_array().into_iter().flatten();
        let findings = risks.map(|risk| text(&risk["finding"]));
        let about = |object: &str| {
            let mut those =
                findings.clone().filter(|id| id.split_once('/').is_some_and(|(_, of)| of == object));
            those.any(|finding| self.is_accepted(upgrade, &finding))
        };
        self.pods.iter().filter(|(_, pod)| pod.node == node).any(|(key, pod)| {
            let namespace = key.split('/').next();
            let guards = |(name, budget): &(&String, &Budget)| {
                name.split('/').next() == namespace && selects(&budget.labels, &pod.labels)
            };
            let mut budgets = self.budgets.iter().filter(guards);
            about(&format!("Pod/{key}"))
                || budgets.any(|(name, _)| about(&format!("PodDisruptionBudget/{name}")))
        })
    }

    /// A host that is no node shows no controller, and a person may answer for that.
    pub(super) fn is_answered_for(&self, claim: &Claim, node: &str, component: &str) -> bool {
        self.is_hidden(node, component)
            && self.upgrades.get(&claim.upgrade).is_some_and(|upgrade| {
                upgrade.accepts_hidden || self.is_accepted(upgrade, &format!("H1/{component}"))
            })
    }

    /// Nothing shows what `component` runs on `node`.
    pub(super) fn is_hidden(&self, node: &str, component: &str) -> bool {
        !self.nodes.contains_key(node) && component != "kube-apiserver"
    }

    /// 1: the first kube-apiserver goes to another minor only when no webhook could refuse what it sends, or a person
    /// answers for it.
    pub(super) fn webhooks_are_ready(&mut self, claim: &Claim) {
        let Some(upgrade) = self.upgrades.get(&claim.upgrade) else { return };
        let server = "kube-apiserver".to_owned();
        let minor = |of: &str| version(of).map(|(minor, _)| minor);
        let mut servers = self.instances.iter().filter(|((_, component), _)| *component == server);
        let first = !servers.any(|(_, instance)| minor(&instance.version) >= minor(&claim.to));
        if !claim.moves.contains(&server) || !first {
            return;
        }
        let known = self
            .webhooks
            .iter()
            .filter(|(name, (_, since))| self.is_old(*since) && !self.is_blind(WEBHOOKS, name, *since));
        let mut all = known.flat_map(|(_, (findings, _))| findings);
        if let Some(finding) = all.find(|finding| !self.is_accepted(upgrade, finding)).cloned() {
            self.fault(1, format!("takes {} to {} in spite of {finding}", claim.node, claim.to));
        }
    }
}
