//! Upgrades by chance, with faults by chance: what nobody thought of together.
//!
//! A script says at its beginning how its upgrade is (`at 0 …`), and then which faults it meets. It ends like the same
//! upgrade without faults.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock};

use evenkeel_sim::Random;
use serde_json::Value;

use super::super::campaign::{Wrong, all, chance, is_long};
use super::super::script::{Step, line};
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

/// Each upgrade meets so many scripts of faults, so that its run without faults is made once for all of them.
const SCRIPTS: u64 = 4;
/// Upgrades whose scripts lie between each other, so that no thread waits for a run that another one makes.
const BLOCK: u64 = 25;

#[test]
fn random_upgrades_with_random_faults() {
    let upgrades = if is_long() { 2500 } else { 75 };
    let script = |upgrade: u64, nth: u64| {
        let mut random = Random::new(upgrade ^ 0x0b5e);
        let mut script = wish(&mut random);
        let seed = upgrade * SCRIPTS + nth;
        script.extend(chance(seed, &["evenkeel-a", "evenkeel-b"], &WATCHED, 350));
        (upgrade % 3, script)
    };
    let blocks = (0..upgrades / BLOCK).flat_map(|block| (0..SCRIPTS).map(move |nth| (block * BLOCK, nth)));
    let scripts =
        blocks.flat_map(|(first, nth)| (first..first + BLOCK).map(move |upgrade| script(upgrade, nth)));
    let faultless = Faultless::default();
    all("upgrade: random upgrades", scripts.collect(), |seed, script| {
        let whole = match faultless.end(seed, script) {
            Ok(end) => end,
            Err(wrong) => return wrong,
        };
        let done = run(seed, script);
        let mut wrong = done.wrong;
        if *whole != done.end {
            let difference = super::super::report::difference(&whole, &done.end, "end");
            wrong.push(format!("invariant 14: ends otherwise: {difference}"));
        }
        wrong
    });
}

/// How an upgrade ends that meets no fault, or what was wrong with it even so.
type End = Result<Arc<Value>, Wrong>;

/// An upgrade by its seed and what is otherwise than usual.
type Key = (u64, String);

/// How upgrades end that meet no fault.
#[derive(Default)]
struct Faultless(Mutex<BTreeMap<Key, Arc<OnceLock<End>>>>);

impl Faultless {
    /// How the upgrade of `script` ends without its faults.
    fn end(&self, seed: u64, script: &[Step]) -> End {
        let begins: Vec<Step> =
            script.iter().filter(|step| matches!(step, Step::At { millis: 0, .. })).cloned().collect();
        let known = Arc::clone(self.0.lock().unwrap().entry((seed, line(&begins))).or_default());
        let end = known.get_or_init(|| {
            let done = run(seed, &begins);
            if done.wrong.is_empty() { Ok(Arc::new(done.end)) } else { Err(done.wrong) }
        });
        end.clone()
    }
}
