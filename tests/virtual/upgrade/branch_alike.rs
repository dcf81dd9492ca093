//! Whether a copy of a process ends as a run of its own would.

use super::super::campaign::{is_brief, is_only_counted};
use super::super::script::{self, Step};
use super::{Run, branch, run, run_with};

/// What a run asked and how it ended.
fn told(run: &Run) -> String {
    let calls: Vec<String> = run.calls.iter().map(|call| format!("{} {}", call.agent, call.line())).collect();
    format!("{}\n{:#}\n{:?}", calls.join("\n"), run.end, run.wrong)
}

/// In a process of its own, because a copy has none of the threads that other tests run in.
#[test]
fn a_branch_ends_as_a_run_of_its_own() {
    const ALONE: &str = "EVENKEEL_TEST_ALONE";
    if std::env::var_os(ALONE).is_none() {
        let test = "upgrade::branch_alike::a_branch_ends_as_a_run_of_its_own";
        let mut again = std::process::Command::new(std::env::current_exe().unwrap());
        again.args(["--exact", test, "--nocapture", "--test-threads=1"]).env(ALONE, "1");
        assert!(again.status().unwrap().success(), "the same test, alone in its process");
        return;
    }
    let scripts = [
        "call evenkeel-a 40 1 refuse:500",
        "told evenkeel-a nodes 7 garbage",
        "at 60000 suspend up; at 90000 resume up",
        "call evenkeel-a 41 1 crash-after; call evenkeel-a 42 12 stale:9",
        "call evenkeel-a 200 1 crash-before",
        "call evenkeel-a 200 1 hang-after",
        "call evenkeel-a 330 1 pause:12",
        "told evenkeel-a pods 50 drop",
        "at 60000 cut evenkeel-a 60",
    ];
    // One of each kind, where the machine is slow.
    let tried = if is_brief() { 3 } else { scripts.len() };
    if tried < scripts.len() {
        eprintln!("branches: LEFT OUT {} of {} scripts", scripts.len() - tried, scripts.len());
    }
    let scripts = &scripts[..tried];
    let steps = |text: &str| text.split(';').map(|step| step.trim().parse().unwrap()).collect::<Vec<Step>>();
    let all_scripts = scripts.iter().map(|text| (1, steps(text))).collect();
    let (wrong, left) = branch::all("branches", all_scripts, |seed, beginning, branches| {
        let done = run_with(seed, beginning, Some(branches));
        vec![told(&done)]
    });
    assert_eq!(left, []);
    assert_eq!(wrong.len(), if is_only_counted() { 0 } else { scripts.len() });
    for ((seed, script), said) in wrong {
        assert_eq!(said, [told(&run(seed, &script))], "{}", script::line(&script));
    }
}
