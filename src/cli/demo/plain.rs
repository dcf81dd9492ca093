//! The demonstration as plain text: a story with an end, or, with `--serve`, what happens until an interrupt.
//!
//! Here belong the scenes and what a person does in each; the cluster and the operator are in `crate::demo`. The
//! invariant: only headlines are written here; what is shown of the cluster is what the operator and `evenkeel report`
//! say of it.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use super::super::exit::print;
use super::presentation::{Presentation, REPORTS, SETTLE, indented};
use super::upgrade;
use crate::demo::Scenario;
use crate::operator::shutdown::on_signal;

/// A kubelet that is restarted is silent for up to 20 s.
const RESTART: Duration = Duration::from_secs(25);

/// Time between two looks at what happened.
const LOOK: Duration = Duration::from_millis(200);

/// What a person does.
#[derive(Clone, Copy)]
enum DemoDeed {
    Upgrade,
    KillOrStart,
    AddOldNode,
    UpgradeKubelets,
    MendBudgets,
}

/// A headline, and what a person does in this scene.
type Scene = (&'static str, &'static [DemoDeed]);

const KILLED: Scene = ("A kube-apiserver dies", &[DemoDeed::KillOrStart]);
const STARTED: Scene = ("And it returns", &[DemoDeed::KillOrStart]);
const FORGOTTEN: Scene = ("Somebody plugs in a forgotten node", &[DemoDeed::AddOldNode]);
const CONTROLLERS: Scene = ("The other components of the control plane follow", &[DemoDeed::Upgrade; 6]);
const BUDGETS: Scene = ("The impossible budget is mended", &[DemoDeed::MendBudgets]);

fn story(scenario: Scenario) -> Vec<Scene> {
    let last = ("The last kube-apiserver is upgraded", [DemoDeed::Upgrade].as_slice());
    let healed = ("The kubelets that are too old are upgraded", [DemoDeed::UpgradeKubelets; 2].as_slice());
    match scenario {
        // Its story is another: the operator upgrades, and not a person.
        Scenario::Upgrade => Vec::new(),
        Scenario::Lagging => vec![last, CONTROLLERS, KILLED, STARTED, FORGOTTEN, healed, BUDGETS],
        Scenario::Even => vec![
            FORGOTTEN,
            ("It is upgraded", &[DemoDeed::UpgradeKubelets]),
            KILLED,
            STARTED,
            ("The next minor begins: one kube-apiserver", &[DemoDeed::Upgrade]),
            ("And the other two", &[DemoDeed::Upgrade; 2]),
            CONTROLLERS,
        ],
        Scenario::Broken => {
            vec![
                ("The dead kube-apiserver is started", &[DemoDeed::KillOrStart]),
                last,
                CONTROLLERS,
                healed,
                BUDGETS,
            ]
        }
    }
}

/// Tells the whole story.
pub(super) async fn tell(presentation: &Presentation) -> Result<(), String> {
    let mut told = begin(presentation).await?;
    if presentation.scenario == Scenario::Upgrade {
        return upgrade::tell(presentation, told).await;
    }
    let mut before = presentation.report().await?;
    for (headline, deeds) in story(presentation.scenario) {
        print(&format!("\n── {headline}\n"))?;
        for deed in deeds {
            perform(presentation, *deed).await?;
        }
        tokio::time::sleep(SETTLE).await;
        let (happened, now) = presentation.happened(told);
        told = now;
        let report = presentation.report().await?;
        print(&indented(&happened))?;
        print(&indented(&differences(&before, &report)))?;
        print(&indented(&presentation.kubectl(REPORTS).await?))?;
        before = report;
    }
    print("\n── evenkeel report, in the end\n")?;
    print(&indented(&before))
}

/// The lines that only the report `before` has, behind `-`, and those that only `after` has, behind `+`. Indented
/// lines, which hold details, are left out.
fn differences(before: &str, after: &str) -> String {
    // Only words are compared: a column that became wider is no difference.
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let of = |text: &str| text.lines().map(words).collect::<Vec<_>>();
    let (was, is) = (of(before), of(after));
    let mut told = String::new();
    for (sign, text, words, others) in [('-', before, &was, &is), ('+', after, &is, &was)] {
        for (line, _) in text.lines().zip(words).filter(|(_, words)| !others.contains(words)) {
            if !line.starts_with("  ") {
                // Writing to a String cannot fail.
                let _ = writeln!(told, "{sign} {}", line.trim_start_matches("- "));
            }
        }
    }
    told
}

/// Prints how the cluster is at the beginning. Returns how many lines of events there are up to then.
async fn begin(presentation: &Presentation) -> Result<usize, String> {
    let now = presentation.demo.now().strftime("%Y-%m-%d %H:%M:%S");
    print(&format!(
        "── A cluster that exists only in this program ({}); it is {now} there\n",
        presentation.title
    ))?;
    print("\n── kubectl get clusterskewreport: what the operator wrote\n")?;
    print(&indented(&presentation.kubectl(REPORTS).await?))?;
    print("\n── evenkeel report: the same for a person\n")?;
    print(&indented(&presentation.report().await?))?;
    Ok(presentation.happened(0).1)
}

/// Prints how the cluster is at the beginning and what happens then, until SIGINT or SIGTERM.
pub(super) async fn serve(presentation: &Presentation, kubeconfig: &Path) -> Result<(), String> {
    let mut told = begin(presentation).await?;
    let path = kubeconfig.display();
    print(&format!(
        "\n── Served until you press Ctrl-C. In another terminal:\n   export KUBECONFIG={path}\n"
    ))?;
    print("   kubectl get clusterskewreport,clusterupgrade,nodeupgrade\n   evenkeel report\n")?;
    print(
        "   kubectl apply -f src/demo/upgrade.yaml     in a checkout: an upgrade that waits for its approval\n\n",
    )?;
    let stop = on_signal().map_err(|error| error.to_string())?;
    while stop.run_until_cancelled(tokio::time::sleep(LOOK)).await.is_some() {
        let (happened, now) = presentation.happened(told);
        told = now;
        print(&indented(&happened))?;
    }
    Ok(())
}

/// Does `deed`, and waits until the cluster has had time for it.
async fn perform(presentation: &Presentation, deed: DemoDeed) -> Result<(), String> {
    let demo = &presentation.demo;
    let time = match deed {
        DemoDeed::Upgrade => {
            demo.upgrade_control_plane();
            Duration::from_secs(3)
        }
        DemoDeed::KillOrStart => {
            demo.kill_or_start();
            Duration::ZERO
        }
        DemoDeed::AddOldNode => {
            demo.add_old_node();
            Duration::ZERO
        }
        DemoDeed::UpgradeKubelets => {
            demo.upgrade_oldest_kubelets().await?;
            RESTART
        }
        DemoDeed::MendBudgets => {
            demo.mend_budgets().await?;
            Duration::ZERO
        }
    };
    tokio::time::sleep(time).await;
    Ok(())
}
