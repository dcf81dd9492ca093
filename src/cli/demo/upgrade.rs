//! The story of a whole upgrade: a person plans and approves it, the operator carries it out node by node, a budget
//! holds up the last node, and a person mends that budget.
//!
//! Here belongs which scenes there are; what happens in them is done by the operator and by [`crate::demo`].

use super::super::exit::print;
use super::presentation::{Presentation, REPORTS, SETTLE, UPGRADES, indented};
use crate::demo::Demo;

/// A part of the way that needs nobody.
struct UnattendedScene {
    headline: &'static str,
    /// The reasons of the condition Ready at which the scene ends.
    until: &'static [&'static str],
}

/// How it goes on by itself once it is approved, in order.
const SCENES: [UnattendedScene; 3] = [
    UnattendedScene {
        headline: "Every kube-apiserver, one after the other",
        until: &["UpgradingControllers"],
    },
    UnattendedScene { headline: "Then the controllers", until: &["UpgradingNodes"] },
    UnattendedScene {
        headline: "Then the nodes, each drained through the Eviction API",
        until: &["NodesParked", "Completed"],
    },
];

/// Tells the story, from after the first report on. `told` lines of what happened were told before.
pub(super) async fn tell(presentation: &Presentation, mut told: usize) -> Result<(), String> {
    let demo = &presentation.demo;
    headline("A person keeps this in git")?;
    print(&indented(Demo::manifest()))?;
    headline("evenkeel plan --upgrade: what it would do")?;
    print(&indented(&presentation.plan().await?))?;

    headline("kubectl apply: it waits for an approval")?;
    demo.propose_or_approve().await?;
    demo.until(&["AwaitingApproval"]).await?;
    told = presentation.tell_since(told, &[UPGRADES]).await?;

    demo.propose_or_approve().await?;
    for scene in SCENES {
        headline(scene.headline)?;
        demo.until(scene.until).await?;
        told = presentation.tell_since(told, &[UPGRADES]).await?;
    }
    headline("One node is left, and why")?;
    print(&indented(&presentation.waits().await?))?;
    print(&indented(&presentation.kubectl(REPORTS).await?))?;

    headline("A person mends the budget; the node is taken up by itself")?;
    demo.mend_budgets().await?;
    demo.until(&["Completed"]).await?;
    tokio::time::sleep(SETTLE).await;
    presentation.tell_since(told, &[UPGRADES, REPORTS]).await?;
    headline("evenkeel report, in the end")?;
    print(&indented(&presentation.report().await?))
}

fn headline(text: &str) -> Result<(), String> {
    print(&format!("\n── {text}\n"))
}

impl Presentation {
    /// Prints what happened since the `from`th line, and then these resources as kubectl does. Returns how many lines
    /// there are now.
    async fn tell_since(&self, from: usize, resources: &[&str]) -> Result<usize, String> {
        let (happened, now) = self.happened(from);
        print(&indented(&happened))?;
        for resource in resources {
            print(&indented(&self.kubectl(resource).await?))?;
        }
        Ok(now)
    }
}
