//! Many runs: each in a runtime of its own on a paused clock, on every core, and the shortest script of what fails.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, Once, PoisonError};
use std::time::{Duration, Instant};

use evenkeel_sim::faults::shortest;

use super::script::{Step, line};

/// What was wrong with a run.
pub type Wrong = Vec<String>;

thread_local! {
    static PANICS: RefCell<Wrong> = const { RefCell::new(Vec::new()) };
}

/// A panic inside of a task ends nothing but that task; here it is remembered.
fn remember_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let line = info.to_string().replace('\n', " ");
            let _ = PANICS.try_with(|panics| panics.borrow_mut().push(format!("panic: {line}")));
            before(info);
        }));
    });
}

/// Runs one scenario in virtual time; panics of tasks are among what was wrong.
pub fn virtually<T>(scenario: impl AsyncFnOnce() -> T) -> (T, Wrong) {
    remember_panics();
    PANICS.with(|panics| panics.borrow_mut().clear());
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let done = runtime.block_on(scenario());
    // Tasks end before anybody looks at what they left.
    drop(runtime);
    (done, PANICS.with(|panics| std::mem::take(&mut *panics.borrow_mut())))
}

/// Whether what takes long is tried too.
pub fn is_long() -> bool {
    std::env::var("EVENKEEL_CAMPAIGN").is_ok_and(|value| value == "long" || value == "count")
}

/// Whether nothing of a long campaign is run, and only said how many runs it has.
pub fn is_only_counted() -> bool {
    std::env::var("EVENKEEL_CAMPAIGN").is_ok_and(|value| value == "count")
}

/// Whether only some of it is tried, because the machine is slow.
pub fn is_brief() -> bool {
    std::env::var("EVENKEEL_CAMPAIGN").is_ok_and(|value| value == "brief")
}

/// At most this many failures are made short and shown.
const SHOWN: usize = 5;
/// A campaign that takes hours says after so many runs how far it is.
const TOLD_EVERY: usize = 1000;

/// How long a campaign may take that is not long: so much, and so much more for each run, which is twice what it takes on
/// two cores. On a slower machine it begins fewer of its runs, and says so.
const WITHIN: [Duration; 2] = [Duration::from_secs(20), Duration::from_secs(2)];
/// How long each may take where `EVENKEEL_CAMPAIGN` is `brief`: some of its runs, on a machine that is many times slower.
const BRIEF: Duration = Duration::from_secs(5);

/// So many runs of each campaign are begun, however slow the machine is: none of them may be left out as a whole.
const LEAST: usize = 3;

/// How long a campaign of `count` runs may take; `None` is without limit.
fn limit(count: usize) -> Option<Duration> {
    if is_long() {
        None
    } else if is_brief() {
        Some(BRIEF)
    } else {
        Some(WITHIN[0] + WITHIN[1] * u32::try_from(count).unwrap_or(u32::MAX))
    }
}

/// Runs every script with its seed; panics with what failed, each as short as it can be.
///
/// `run` must judge a seed and a script alike every time, also where its requests come in another order. Returns how many
/// runs were begun.
pub fn all(name: &str, scripts: Vec<(u64, Vec<Step>)>, run: impl Fn(u64, &[Step]) -> Wrong + Sync) -> usize {
    let began = Instant::now();
    let scripts = match std::env::var("EVENKEEL_SCRIPT") {
        Ok(text) => {
            let (seed, text) = text.split_once('|').expect("EVENKEEL_SCRIPT is SEED|STEP; STEP");
            let steps = text.split(';').map(str::trim).filter(|step| !step.is_empty());
            let steps = steps.map(|step| step.parse().unwrap()).collect();
            vec![(seed.trim().parse().unwrap(), steps)]
        }
        Err(_) => scripts,
    };
    let count = scripts.len();
    eprintln!("{name}: {count} runs are to come");
    if is_only_counted() {
        return 0;
    }
    let limit = limit(count);
    let over = || limit.is_some_and(|limit| began.elapsed() > limit);
    let queue = Mutex::new(VecDeque::from(scripts));
    let failed = Mutex::new(Vec::new());
    let (number, begun) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let (next, left) = {
                        let mut queue = queue.lock().unwrap_or_else(PoisonError::into_inner);
                        (queue.pop_front(), queue.len())
                    };
                    let early = begun.fetch_add(1, Ordering::SeqCst) < LEAST;
                    let Some((seed, script)) = next.filter(|_| early || !over()) else {
                        begun.fetch_sub(1, Ordering::SeqCst);
                        return;
                    };
                    if (count - left).is_multiple_of(TOLD_EVERY) {
                        let failed = number.load(Ordering::SeqCst);
                        let seconds = began.elapsed().as_secs();
                        eprintln!("{name}: {} of {count} begun, {failed} failed, {seconds} s", count - left);
                    }
                    let wrong = run(seed, &script);
                    if wrong.is_empty() {
                        continue;
                    }
                    // Said at once: a whole campaign takes hours.
                    let first = wrong.first().map_or("", String::as_str);
                    eprintln!("{name}: EVENKEEL_SCRIPT='{seed}|{}' fails: {first}", line(&script));
                    let nth = number.fetch_add(1, Ordering::SeqCst);
                    let (script, wrong) = if nth < SHOWN {
                        // What is left of a script may not be one that can begin.
                        let fails = |script: &[Step]| {
                            catch_unwind(AssertUnwindSafe(|| !run(seed, script).is_empty())).unwrap_or(false)
                        };
                        let script = shortest(&script, fails);
                        let wrong = run(seed, &script);
                        (script, wrong)
                    } else {
                        (script, wrong)
                    };
                    failed.lock().unwrap_or_else(PoisonError::into_inner).push((seed, script, wrong));
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    let (seconds, begun) = (began.elapsed().as_secs_f64(), begun.into_inner());
    eprintln!("{name}: {begun} runs in {seconds:.1} s, {} failed", failed.len());
    if begun < count {
        // Shown also where the test passes.
        let line = format!("{name}: LEFT OUT {} of {count} runs after {seconds:.0} s", count - begun);
        _ = writeln!(std::io::stderr(), "{line}");
    }
    assert!(failed.is_empty(), "{}", told(name, &failed));
    begun
}

fn told(name: &str, failed: &[(u64, Vec<Step>, Wrong)]) -> String {
    let mut text = format!("{name}: {} scripts fail\n", failed.len());
    for (at, (seed, script, wrong)) in failed.iter().enumerate() {
        let script = line(script);
        let _ = writeln!(text, "\n  EVENKEEL_SCRIPT='{seed}|{script}'");
        for line in wrong.iter().take(if at < SHOWN { 40 } else { 1 }) {
            let _ = writeln!(text, "      {line}");
        }
    }
    text
}

/// A script by chance: two to six faults of any kind at any of the first `calls` requests or events.
pub fn chance(seed: u64, agents: &[&str], watched: &[&str], calls: u64) -> Vec<Step> {
    let mut random = evenkeel_sim::Random::new(seed ^ 0x5eed);
    let mut pick = |count: usize| random.below(count as u64) as usize;
    let mut faults = super::script::statuses();
    faults.extend(
        [
            "crash-before",
            "crash-after",
            "stale:1",
            "stale:7",
            "compact",
            "bookmarks",
            "silence",
            "late:3",
            "pause:9",
        ]
        .map(str::to_owned),
    );
    let told = ["duplicate", "delay:4", "gone", "end", "reset", "garbage"];
    let count = 2 + pick(5);
    (0..count)
        .map(|_| {
            let agent = agents[pick(agents.len())].to_owned();
            if pick(4) == 0 {
                let resource = watched[pick(watched.len())].to_owned();
                let nth = pick(12) as u64;
                return Step::Told { agent, resource, nth, fault: told[pick(told.len())].to_owned() };
            }
            let times = [1, 1, 1, 2, 5][pick(5)];
            Step::Call {
                agent,
                nth: pick(calls as usize) as u64,
                times,
                fault: faults[pick(faults.len())].clone(),
            }
        })
        .collect()
}
