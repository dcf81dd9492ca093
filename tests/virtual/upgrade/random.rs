//! Upgrades by chance, with faults by chance: what nobody thought of together.
//!
//! A script says at its beginning how its upgrade is (`at …`), and then which faults it meets. It ends like the same
//! upgrade without faults; one that ends early ends for the same reason, and one that only plans touches nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, OnceLock};

use evenkeel_sim::Random;
use serde_json::Value;

use super::super::campaign::{Wrong, all, chance, is_long, is_only_counted};
use super::super::script::{Step, line};
use super::attacks::{WATCHED, at};
use super::policies::touched;
use super::{Run, run};

/// A person takes the risk of controllers that nothing shows, each on its own.
const HIDDEN: &[&str] = &["hosts", "risk H1/kube-controller-manager 86400", "risk H1/kube-scheduler 86400"];

/// What a person may ask for that is said in several words, and one in how many does.
const TOGETHER: [(u64, &[&str]); 19] = [
    (6, &["gated", "gate kind", "gate True"]),
    (6, &["approval", "approves up 20"]),
    (8, &["webhook", "risk O5/guard/guard.example.com 86400"]),
    (10, &["drain 60", "batch", "rule batch WaitCompleted"]),
    (8, &["empty-dir Refuse", "cache main-4"]),
    (8, &["bare-pods Evict", "bare main-6"]),
    (10, &["impossible", "risk U3/PodDisruptionBudget/shop/frozen 86400"]),
    (12, &["detach", "attach main-5", "drain 60"]),
    (12, &["detach", "attach main-5", "drain 3000", "at 900000 detached main-5"]),
    (12, &["halt", "drain 60", "returning"]),
    (12, &["halt", "impossible"]),
    (12, &["limit maxParked 1", "drain 60", "returning"]),
    (12, &["limit maxParked 20%", "drain 60", "impossible", "returning"]),
    (10, &["target v1.38.1", "via v1.37.0"]),
    // So long that nobody can say that it only had no time.
    (16, &[PLAN_ONLY, "at 1200000 compact"]),
    (8, &["at 700 suspend up", "at 300000 resume up"]),
    (8, &["at 50000 suspend up", "at 400000 resume up"]),
    (8, &["at 120000 suspend up", "at 500000 resume up"]),
    (8, &["at 150000 suspend up", "at 170000 resume up"]),
];

/// Nothing is to be done.
const PLAN_ONLY: &str = "plan-only";

/// What a person may ask for, how the cluster may be, and one in how many is so.
const ALONE: [(u64, &str); 36] = [
    (3, "own-executors"),
    (4, "everything"),
    (5, "target v1.38.1"),
    (12, "target v1.36.9"),
    (4, "soak controlPlane 45"),
    (4, "soak canary 60"),
    (6, "freeze 30 200"),
    // Nothing that takes long meets its end: a run does not wait for the next day.
    (6, "window 2 14400"),
    (6, "time-zone Asia/Kolkata"),
    (8, "time-zone Pacific/Honolulu"),
    (6, "force"),
    (6, "minor-only"),
    (6, "rule web Skip"),
    (3, "spare main"),
    (4, "spare canary"),
    (6, "zones rest"),
    (8, "zones canary"),
    (6, "canary rest 1"),
    (10, "canary rest 2"),
    (8, "canary canary 1"),
    (6, "most rest 50%"),
    (8, "most rest 20%"),
    (8, "most canary 67%"),
    (8, "limit maxFailed 50%"),
    (8, "impossible"),
    (8, "detach"),
    (10, "halt"),
    (12, "limit maxParked 1"),
    (10, "returning"),
    (12, "bare main-3"),
    (12, "cache main-2"),
    (5, "executor kubelet/main-3 after 20"),
    (5, "executor kube-apiserver/* after 9"),
    (8, "executor kubelet/* lingers 50"),
    (8, "late-controllers 100"),
    (6, "leases-given-up"),
];

/// The step by which `deed` comes; it is so from the beginning, unless it says when it comes.
fn step(deed: &str) -> Step {
    let timed = deed.strip_prefix("at ").and_then(|rest| rest.split_once(' '));
    timed.map_or_else(|| at(0, deed), |(millis, deed)| at(millis.parse().unwrap(), deed))
}

/// How an upgrade is, by chance: its control plane, its executors, what a person may ask for, and when a person suspends
/// it for a while.
fn drawn(random: &mut Random) -> Vec<Step> {
    let mut deeds: Vec<&str> = Vec::new();
    let planes: [&[&str]; 7] = [
        &[],
        &["jobs"],
        &["hosts", "accept"],
        HIDDEN,
        &["whole"],
        &["whole", "jobs"],
        &["whole", "jobs", "first"],
    ];
    deeds.extend(planes[random.below(planes.len() as u64) as usize]);
    let mut one_in = |count: u64| random.below(count) == 0;
    for (count, together) in TOGETHER {
        if one_in(count) {
            deeds.extend(together);
        }
    }
    deeds.extend(ALONE.into_iter().filter(|(count, _)| one_in(*count)).map(|(_, deed)| deed));
    // Nothing is done twice.
    let mut done = BTreeSet::new();
    deeds.into_iter().filter(|deed| done.insert(*deed)).map(step).collect()
}

/// Whether `deed` is among what a script says.
fn says(script: &[Step], what: &str) -> bool {
    script.iter().any(|step| matches!(step, Step::At { deed, .. } if deed.starts_with(what)))
}

/// What is wrong with how `done` ended, of whose upgrade `whole` is the end without faults.
fn judge(script: &[Step], whole: &Value, done: &Run) -> Wrong {
    let mut wrong = done.wrong.clone();
    if says(script, PLAN_ONLY) {
        wrong.extend(touched(done));
    }
    let reason = |end: &Value| end["upgrades"]["up"]["conditions"]["Ready"][1].clone();
    let (whole, end) = (plain(whole), plain(&done.end));
    // Where an upgrade that ends early stands depends on when its faults were; why it ends does not.
    let early = ["halt", "limit maxParked"].iter().any(|what| says(script, what));
    if early && reason(&whole) != "Completed" {
        if reason(&whole) != reason(&end) {
            wrong.push(format!("invariant 14: ends as {}, not as {}", reason(&end), reason(&whole)));
        }
        let under_way = ["Claimed", "Draining", "Upgrading"].map(Value::from);
        let claims = end["claims"].as_object().into_iter().flatten();
        let left = claims.filter(|(_, state)| under_way.contains(state)).map(|(name, _)| name);
        wrong.extend(left.map(|name| format!("stands still, and {name} is under way")));
    } else if whole != end {
        let difference = super::super::report::difference(&whole, &end, "end");
        wrong.push(format!("invariant 14: ends otherwise: {difference}"));
    }
    wrong
}

/// The same upgrade ends alike, but for the names of pods that were made anew on the way.
pub fn plain(end: &Value) -> Value {
    match end {
        Value::String(text) => {
            let named = |word: &str| {
                if word.starts_with("evenkeel-executors/") {
                    return "evenkeel-executors/a-pod".to_owned();
                }
                let app = word.strip_prefix("shop/").and_then(|name| name.split_once('-'));
                app.map_or_else(|| word.to_owned(), |(app, _)| format!("shop/{app}"))
            };
            text.split(' ').map(named).collect::<Vec<_>>().join(" ").into()
        }
        Value::Array(all) => all.iter().map(plain).collect(),
        Value::Object(all) => {
            Value::Object(all.iter().map(|(key, value)| (key.clone(), plain(value))).collect())
        }
        other => other.clone(),
    }
}

/// So many of them are tried, however slow the machine is.
const LEAST: usize = 3;
/// Upgrades whose scripts lie between each other, so that no thread waits for a run that another one makes.
const BLOCK: u64 = 25;

#[test]
fn random_upgrades_with_random_faults() {
    // In a long campaign each upgrade meets several scripts of faults, and its run without faults is made once for all of
    // them. In a change another upgrade tells more than another script of the same one.
    let (upgrades, each) = if is_long() { (2500, 4) } else { (300, 1) };
    let script = |upgrade: u64, nth: u64| {
        let mut random = Random::new(upgrade ^ 0x0b5e);
        let mut script = drawn(&mut random);
        let seed = upgrade * each + nth;
        script.extend(chance(seed, &["evenkeel-a", "evenkeel-b"], &WATCHED, 350));
        (upgrade % 3, script)
    };
    let blocks = (0..upgrades / BLOCK).flat_map(|block| (0..each).map(move |nth| (block * BLOCK, nth)));
    let scripts =
        blocks.flat_map(|(first, nth)| (first..first + BLOCK).map(move |upgrade| script(upgrade, nth)));
    let faultless = Faultless::default();
    let begun = all("upgrade: random upgrades", scripts.collect(), |seed, script| {
        let whole = match faultless.end(seed, script) {
            Ok(end) => end,
            Err(wrong) => return wrong,
        };
        judge(script, &whole, &run(seed, script))
    });
    let repeated = std::env::var_os("EVENKEEL_SCRIPT").is_some();
    assert!(begun >= LEAST || repeated || is_only_counted(), "only {begun} upgrades were tried");
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
            script.iter().filter(|step| matches!(step, Step::At { .. })).cloned().collect();
        let known = Arc::clone(self.0.lock().unwrap().entry((seed, line(&begins))).or_default());
        let end = known.get_or_init(|| {
            let done = run(seed, &begins);
            let mut wrong = done.wrong.clone();
            if says(&begins, PLAN_ONLY) {
                wrong.extend(touched(&done));
            }
            if wrong.is_empty() { Ok(Arc::new(done.end)) } else { Err(wrong) }
        });
        end.clone()
    }
}
