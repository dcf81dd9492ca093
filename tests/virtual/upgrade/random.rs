//! Upgrades by chance, with faults by chance: what nobody thought of together.
//!
//! A script says at its beginning how its upgrade is (`at 0 …`), and then which faults it meets. It ends like the same
//! upgrade without faults.

use evenkeel_sim::Random;

use super::super::campaign::{all, chance, is_long};
use super::super::script::Step;
use super::campaigns::{WATCHED, at};
use super::run;

/// The components of a node move together, and an executor of its own moves the first node.
const WITH_FIRST: &[&str] = &["whole", "jobs", "first"];

/// How an upgrade is, by chance: its control plane, its executors, and what a person may ask for. A policy that ends an
/// upgrade early is not among it, because where that is depends on the faults.
fn wish(random: &mut Random) -> Vec<Step> {
    let mut deeds: Vec<&str> = Vec::new();
    let planes: [&[&str]; 6] =
        [&[], &["jobs"], &["hosts", "accept"], &["hosts", "accept", "jobs"], &["whole", "jobs"], WITH_FIRST];
    deeds.extend(planes[random.below(planes.len() as u64) as usize]);
    let mut one_in = |count: u64| random.below(count) == 0;
    let more = [
        (4, "everything"),
        (4, "target v1.38.1"),
        (4, "soak controlPlane 45"),
        (4, "soak canary 60"),
        (6, "freeze 30 200"),
        (6, "window 2 3600"),
        (6, "force"),
        (6, "rule web Skip"),
        (3, "spare main"),
        (4, "spare canary"),
        (5, "executor kubelet/main-3 after 20"),
        (5, "executor kube-apiserver/* after 9"),
    ];
    if one_in(6) {
        deeds.extend(["gated", "gate kind", "gate True"]);
    }
    deeds.extend(more.into_iter().filter(|(count, _)| one_in(*count)).map(|(_, deed)| deed));
    deeds.into_iter().map(|deed| at(0, deed)).collect()
}

#[test]
fn random_upgrades_with_random_faults() {
    let count = if is_long() { 10_000 } else { 24 };
    let script = |seed: u64| {
        let mut random = Random::new(seed ^ 0x0b5e);
        let mut script = wish(&mut random);
        script.extend(chance(seed, &["evenkeel-a", "evenkeel-b"], &WATCHED, 350));
        (seed % 3, script)
    };
    all("upgrade: random upgrades", (0..count).map(script).collect(), |seed, script| {
        let begins: Vec<Step> =
            script.iter().filter(|step| matches!(step, Step::At { millis: 0, .. })).cloned().collect();
        let whole = run(seed, &begins);
        if !whole.wrong.is_empty() {
            return whole.wrong;
        }
        let done = run(seed, script);
        let mut wrong = done.wrong;
        if whole.end != done.end {
            let difference = super::super::report::difference(&whole.end, &done.end, "end");
            wrong.push(format!("invariant 14: ends otherwise: {difference}"));
        }
        wrong
    });
}
