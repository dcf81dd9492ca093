//! 13: what nobody approved is not done, whatever the status of the upgrade says of its plan. What an approval is of is in
//! `approved`.

use serde_json::Value;

use super::approved::executors;
use super::model::{Upgrade, text};
use super::{Claim, Watcher};

const EXECUTORS: &str = "upgradeexecutors.evenkeel.dev";

impl Watcher {
    /// Somebody, not the operator, wrote an upgrade.
    pub(super) fn approves(&mut self, before: Option<&Upgrade>, after: &Upgrade) {
        let hash = &after.spec["approval"]["planHash"];
        let anew = before.is_none_or(|before| before.spec["approval"]["planHash"] != *hash);
        if anew && hash.is_string() && after.status["plan"]["hash"] == *hash {
            let subject = self.approvals.subject(&after.spec);
            self.approvals.given.insert((after.uid.clone(), text(hash)), subject);
        }
        self.approvals.look(after);
    }

    /// An executor is this now, or none.
    pub(super) fn has_content(&mut self, name: &str, executor: Option<&Value>) {
        match executor {
            Some(executor) => _ = self.approvals.contents.insert(name.to_owned(), executor["spec"].clone()),
            None => _ = self.approvals.contents.remove(name),
        }
        for upgrade in self.upgrades.values() {
            self.approvals.look(upgrade);
        }
    }

    /// 13: nobody approved what is done for `claim`.
    pub(super) fn is_approved(&mut self, claim: &Claim, does: &str) {
        let Some(upgrade) = self.upgrades.get(&claim.upgrade) else { return };
        let Some(since) = self.approvals.lacking.get(&claim.upgrade).copied() else { return };
        let mut names = executors(&upgrade.spec).into_iter();
        let unseen = names.any(|name| self.is_blind(EXECUTORS, &name, since));
        if self.late.is_none() && !unseen && self.knows_upgrade(&claim.upgrade, since) {
            self.fault(13, format!("{does} {} although nobody approved what is asked for now", claim.node));
        }
    }
}
