//! A kube-apiserver that goes back for good, or away for good: at every moment of upgrades of every kind, also when another
//! replica leads afterwards.
//!
//! Here belongs what must be so then: the upgrade stands still with a reason that names the server, says so for as long as
//! it lasts, and gives nothing to an executor after the server was lost.

use std::time::Duration;

use super::super::campaign::{Wrong, is_long};
use super::super::script::Step;
use super::attacks::{Attacked, Script, at, spread, steps};
use super::base::{FROM, TO};
use super::{Run, judged, run};

/// So long after it was lost nobody has brought it back.
const LASTS: u64 = 3_600_000;
/// The operator has known by then that it is another one, or away.
const KNOWN: Duration = Duration::from_secs(45);
/// What a kube-apiserver said of itself is gone by for so long.
const BELIEVED: Duration = Duration::from_secs(5);
/// What is away counts as lost from then on.
const SAID: Duration = Duration::from_mins(20);

/// A server that a script loses.
struct Lost {
    when: Duration,
    host: String,
    /// It goes back and is there: nobody asks a server all the time that is at the version.
    goes_back: bool,
}

fn lost(script: &[Step]) -> Option<Lost> {
    script.iter().find_map(|step| {
        let Step::At { millis: millis @ 1.., deed } = step else { return None };
        let words: Vec<&str> = deed.split(' ').collect();
        let host = words.get(1).filter(|_| matches!(words[0], "component" | "take"))?;
        let (when, goes_back) = (Duration::from_millis(*millis), words[0] == "component");
        Some(Lost { when, host: (*host).to_owned(), goes_back })
    })
}

/// What is wrong with how `done` ended, whose server was lost.
fn judge(done: &Run, Lost { when, host, goes_back }: &Lost) -> Wrong {
    let when = *when;
    let mut wrong = done.wrong.clone();
    // What a server said is believed for five seconds: until then nobody can know that it went back.
    for (_, claim) in done.given.iter().filter(|(at, _)| *at > when && *at <= when + BELIEVED) {
        let place = claim.rsplit('.').next().unwrap_or_default();
        wrong.retain(|line| !(line.contains("invariant 1: ") && line.contains(&format!(" on {place} "))));
    }
    let up = &done.end["upgrades"]["up"];
    let text = |at: usize| up["conditions"]["Ready"][at].as_str().unwrap_or_default();
    let (reason, line) = (text(1), text(2));
    let server = &done.end["servers"][format!("kube-apiserver/{host}")];
    let is_there = server[0] == TO && server[1] == true;
    let noticed = if *goes_back { when + KNOWN } else { when + BELIEVED };
    let before = done.said.iter().any(|(at, reason)| *at <= noticed && reason == "Completed");
    if is_there || before {
        // Its own step came after it, or all of it was over.
        if reason != "Completed" {
            wrong.push(format!("is {reason} although {server} is all that is to be: {line}"));
        }
        return wrong;
    }
    if !["ControlPlaneHeld", "ControlPlaneFailed"].contains(&reason)
        || up["conditions"]["Stalled"][0] != "True"
    {
        wrong.push(format!("ends as {reason}, not as what was lost says: {line}"));
    }
    if !line.contains("kube-apiserver") || !done.end["nodes"][host].is_null() && !line.contains(host) {
        wrong.push(format!("does not name kube-apiserver of {host}: {line}"));
    }
    if let Some((at, last)) = done.said.last().filter(|(at, _)| *at > when + SAID) {
        wrong.push(format!("says {last} {:?} after {host} was lost", at.saturating_sub(when)));
    }
    let own = format!(".{host}");
    let past = done.given.iter().filter(|(at, claim)| *at > when + KNOWN && !claim.ends_with(&own));
    wrong.extend(past.map(|(at, claim)| {
        format!("gives {claim} away {:?} after {host} was lost", at.saturating_sub(when))
    }));
    wrong
}

/// Loses the servers of these hosts at so many moments of the upgrade that begins so.
fn scripts(begins: &str, hosts: &[&str]) -> Vec<Script> {
    let count = if is_long() { 40 } else { 9 };
    let deeds = |millis: u64| {
        let mut all = Vec::new();
        for host in hosts {
            for deed in
                [format!("component {host} kube-apiserver {FROM}"), format!("take {host} kube-apiserver")]
            {
                // The last deed lets the run last that long.
                let steps = vec![at(millis, &deed), at(millis + LASTS, "compact")];
                let mut other = steps.clone();
                other.insert(1, at(millis + LASTS / 2, "cut evenkeel-a 60"));
                all.extend([steps, other]);
            }
        }
        all
    };
    Attacked::of(steps(begins)).happens(count, 900, deeds)
}

fn stays_lost(kind: &str, begins: &str, hosts: &[&str], some: usize) {
    let name = format!("upgrade: a server is lost, {kind}");
    judged(&name, spread(scripts(begins, hosts), some), |_, script, done| match lost(script) {
        Some(lost) => judge(&done, &lost),
        None => done.wrong,
    });
}

/// It goes back a moment before a controller of another node is given to its executor, which asks every kube-apiserver
/// first.
#[test]
fn a_server_that_goes_back_just_before_a_controller_moves_keeps_it_waiting() {
    for millis in [36_455, 46_200, 55_500] {
        let script = steps(&format!("at {millis} component cp-1 kube-apiserver {FROM}"));
        let done = run(1, &script);
        assert_eq!(done.wrong, Wrong::new(), "it is asked after it went back, at {millis} ms");
        let lost = lost(&script).unwrap();
        assert_eq!(judge(&done, &lost), Wrong::new(), "at {millis} ms");
    }
}

/// Another replica leads half an hour later, and says the same all the time.
#[test]
fn what_is_lost_is_told_by_whoever_leads_then() {
    for deed in ["take cp-1 kube-apiserver", "component cp-1 kube-apiserver v1.36.4"] {
        let script = steps(&format!("at 60000 {deed}; at 1860000 cut evenkeel-a 60; at 3660000 compact"));
        let done = run(1, &script);
        assert!(done.said.iter().any(|(_, reason)| reason == "ControlPlaneHeld"), "{deed}: {:?}", done.said);
        assert_eq!(judge(&done, &lost(&script).unwrap()), Wrong::new(), "{deed}");
    }
}

#[test]
fn a_server_that_is_lost_for_good_stops_everything_by_its_name() {
    stays_lost("pods", "", &["cp-1", "cp-3"], 8);
}

#[test]
fn a_server_that_is_lost_for_good_stops_jobs() {
    stays_lost("Jobs", "at 0 jobs", &["cp-2"], 4);
    stays_lost("whole nodes", "at 0 whole; at 0 jobs; at 0 first", &["cp-1", "cp-3"], 4);
}

#[test]
fn a_server_that_is_lost_for_good_on_a_host_stops_everything() {
    stays_lost("hosts", "at 0 hosts; at 0 accept", &["host-1", "host-3"], 4);
}
