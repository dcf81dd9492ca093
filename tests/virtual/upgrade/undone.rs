//! What a person does and takes back: it leaves the upgrade where it would have come to without it.
//!
//! The pairs here cancel each other out completely: in the end nothing of the spec, the executors, the budgets and the
//! cordons is otherwise than at first. So the whole end is compared, with what the upgrade says of itself. What may differ
//! is history, which the end leaves out: the times, how often a node was taken up (a person who uncordons a node that
//! drains has it parked and tried again), and which pod ran where. What is no such pair is not here: whoever takes a node
//! or a claim away makes another one.

use std::collections::BTreeMap;

use serde_json::Value;

use super::super::script::{self, Step};
use super::attacks::{Attacked, Script, at, spread, steps};
use super::branch::begins;
use super::{Run, judged, run};

/// What was said of two ends that should be one.
fn otherwise(wanted: &Value, end: &Value) -> Option<String> {
    (wanted != end).then(|| {
        let difference = super::super::report::difference(wanted, end, "end");
        format!("invariant 14: ends otherwise: {difference}")
    })
}

/// Every script ends as the one that begins so, and in which nobody did anything.
fn ends_alike(name: &str, scripts: Vec<Script>) {
    let beginning =
        |script: &[Step]| -> Vec<Step> { script.iter().filter(|step| begins(step)).cloned().collect() };
    let mut wanted: BTreeMap<(u64, String), Value> = BTreeMap::new();
    for (seed, script) in &scripts {
        let begins = beginning(script);
        wanted.entry((*seed, script::line(&begins))).or_insert_with(|| {
            let run = run(*seed, &begins);
            assert!(run.wrong.is_empty(), "seed {seed}, {begins:?}: {:#?}", run.wrong);
            run.end
        });
    }
    judged(&format!("upgrade: {name}"), scripts, |seed, script, done: Run| {
        let mut wrong = done.wrong;
        // What is left of a script that is made short may begin otherwise.
        let wanted = wanted.get(&(seed, script::line(&beginning(script))));
        wrong.extend(wanted.and_then(|wanted| otherwise(wanted, &done.end)));
        wrong
    });
}

/// The comparison can fail: what nobody takes back is another end.
#[test]
fn forged_what_is_not_taken_back_is_seen() {
    let end = |script: &str| run(1, &steps(script)).end;
    let wanted = end("");
    for (deed, where_it_is) in [
        ("at 20000 cordon main-3", "end.claims.up.kubelet.main-3"),
        ("at 20000 suspend up", "end.claims"),
        ("at 20000 upgrade up v1.37.2", "end.nodes.canary-1.kubelet"),
    ] {
        let found = otherwise(&wanted, &end(deed)).unwrap_or_default();
        assert!(found.contains("invariant 14") && found.contains(where_it_is), "{deed}: {found}");
    }
}

/// What is done and taken back, `millis` after the beginning and so many seconds later.
fn taken_back(millis: u64) -> Vec<Vec<Step>> {
    let pairs = [
        ("suspend up", "resume up"),
        // A node that is taken early, one that has pods tied to it, and one that is taken late.
        ("cordon canary-1", "uncordon canary-1"),
        ("cordon main-1", "uncordon main-1"),
        ("cordon main-6", "uncordon main-6"),
        ("hold main-2", "unhold main-2"),
        ("budget cart maxUnavailable 0", "budget cart maxUnavailable 1"),
        ("budget vault-p minAvailable 2", "budget vault-p minAvailable 1"),
        ("uninstall machines", "install machines"),
        ("change-executor machines 400", "change-executor machines 300"),
    ];
    // So soon that hardly anybody sees it, and so late that all that drained has been given back.
    let times = [1, 60, 400];
    let of = |(does, undoes): (&str, &str)| {
        times.map(|seconds| vec![at(millis, does), at(millis + seconds * 1000, undoes)])
    };
    pairs.into_iter().flat_map(of).collect()
}

#[test]
fn what_people_take_back_changes_nothing_of_the_end() {
    for (begins, moments, some) in [("", 12, 18), ("at 0 jobs; at 0 everything", 6, 6), ("at 0 force", 6, 4)]
    {
        let attacked = Attacked::of(steps(begins));
        let moments = if super::is_long() { 40 } else { moments };
        let scripts = attacked.happens(moments, 500, taken_back);
        ends_alike(&format!("taken back ({begins})"), spread(scripts, some));
    }
}

/// Nothing is touched yet when the version becomes another one, and the one that it was.
#[test]
fn a_version_that_was_another_before_anything_was_touched_leaves_nothing_behind() {
    let mut scripts = Vec::new();
    for (begins, first) in
        [("", 5), ("at 0 freeze 0 900", 20_000), ("at 0 approval; at 0 approves up 120", 9_000)]
    {
        for other in ["v1.37.2", "v1.38.1", "v1.36.4", "v1.36.9", "v1.99999.1"] {
            for later in [5, 30_000] {
                // Without anything that keeps it, only at once.
                let later = if begins.is_empty() { 5 } else { later };
                let there = format!("at {first} upgrade up {other}; at {} upgrade up v1.37.1", first + later);
                let line = [begins, &there].into_iter().filter(|part| !part.is_empty());
                scripts.push((1, steps(&line.collect::<Vec<_>>().join("; "))));
            }
        }
    }
    ends_alike("another version before anything was touched", spread(scripts, 12));
}
