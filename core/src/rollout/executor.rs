//! Executors: what is asked of them, and how long they have.
//!
//! An executor changes a version; here belongs only when it is told to begin, what has to be seen before it is done,
//! and when it has failed. The invariants: the time until the new version is *observed* is bounded, whatever an
//! executor says; no claim fails by its deadline unless its node and its Job were read afresh after it; no Job is started
//! after its deadline, so a finished Job that the server has cleaned up is never run again; and what was asked holds, whatever
//! becomes of the executor meanwhile.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::action::Action;
use super::claim::{AskedExecutor, Claim, ClaimState, Subject};
use super::jobs::{self, JobState, RefusedJob};
use super::round::{Round, after};
use crate::cluster::{Phase, Pod};
use crate::upgrade::Executor;

/// A Job that the server refuses is asked for again for so long from the first refusal; a quota or a webhook may be mended
/// meanwhile.
const REFUSED_FOR: SignedDuration = SignedDuration::from_mins(2);

/// A Job has a pod within a second or two. One that has none for so long is refused it.
const NO_POD_FOR: SignedDuration = SignedDuration::from_mins(1);

/// Kubelets report their state again within this time after kube-apiservers were away.
const TELL_AGAIN: SignedDuration = SignedDuration::from_mins(1);

/// How an executor stands.
pub(super) enum ExecutorState {
    /// At work; one line says what is waited for.
    Working(String),
    /// The server refuses its Job; one line for the claim, and until when it is asked.
    Refused(String, Option<Timestamp>),
    /// It failed, for this reason.
    Failed(String),
}

/// What is seen of what an executor was asked for.
pub(super) enum Effect {
    /// Not all of it; where several things move together, one line says what is left.
    Part(Option<String>),
    /// The new version; this is still waited for, in words that follow "but".
    But(String),
    /// All of it. Only the word of the executor is waited for, because it may go on after that.
    All,
}

/// What the executor of `claim` is asked now.
pub(super) fn asked(round: &Round<'_>, claim: &Claim) -> AskedExecutor {
    by_now(round, claim, round.world.now)
}

/// What the executor of `claim` is asked that was asked at `since`, as far as that can be told now.
fn by_now(round: &Round<'_>, claim: &Claim, since: Timestamp) -> AskedExecutor {
    let executor = round.upgrade.executors.get(&claim.subject.executor);
    let deadline = executor.map_or(Executor::UNKNOWN_DEADLINE, Executor::deadline);
    let job = matches!(executor, Some(Executor::Job { .. })) || round.job_of(claim).is_some();
    AskedExecutor { job, until: after(since, deadline) }
}

/// What was asked of the executor of `claim`.
fn was_asked(round: &Round<'_>, claim: &Claim, since: Timestamp) -> AskedExecutor {
    let recorded = match &claim.state {
        ClaimState::Upgrading { before, .. } => before.asked.clone(),
        _ => None,
    };
    recorded.unwrap_or_else(|| by_now(round, claim, since))
}

/// Until when the executor of `claim` that was asked at `since` has time; `None` where its time is over.
pub(super) fn deadline(round: &Round<'_>, claim: &Claim, since: Timestamp) -> Option<Timestamp> {
    Some(was_asked(round, claim, since).until).filter(|until| round.world.now < *until)
}

/// Whether the executor of `claim` has ended: no Job of it works any more, or, where it moves several components
/// together, its Job is complete. An [`Executor::External`] counts as ended, because it reports nothing.
pub(super) fn has_ended(round: &Round<'_>, claim: &Claim) -> bool {
    if claim.subject.is_of_plane() {
        !was_asked(round, claim, round.world.now).job || round.job_of(claim) == Some(&JobState::Complete)
    } else {
        works_still(round, claim).is_none()
    }
}

/// What is waited for while the Job of `claim` may still change something on its node, whatever is observed there and however
/// late it is: it runs, or its pod does although somebody deleted the Job. In words that follow "but".
pub(super) fn works_still(round: &Round<'_>, claim: &Claim) -> Option<String> {
    let runs = match round.job_of(claim) {
        Some(job) => *job == JobState::Running,
        None => running_pod(round, claim).is_some(),
    };
    runs.then(|| "its Job still runs".to_owned())
}

/// Drives and reads the executor of a claim that is at [`ClaimState::Upgrading`].
pub(super) fn drive(round: &mut Round<'_>, claim: &Claim, since: Timestamp, seen: Effect) -> ExecutorState {
    let Subject { node, to, .. } = &claim.subject;
    let standing = stands(round, claim, since, &seen);
    let all = || format!("{node}: every component is observed at {to}");
    let told = match seen {
        Effect::Part(left) => left,
        Effect::All => Some(all()),
        Effect::But(_) => None,
    };
    match (standing, told) {
        (ExecutorState::Working(line), Some(told)) => ExecutorState::Working(format!("{told}; {line}")),
        (ExecutorState::Failed(why), Some(told)) => ExecutorState::Failed(format!("{why} ({told})")),
        (standing, _) => standing,
    }
}

fn stands(round: &mut Round<'_>, claim: &Claim, since: Timestamp, seen: &Effect) -> ExecutorState {
    let subject = &claim.subject;
    let what = format!("{} from {} to {}", subject.what(), subject.from, subject.to);
    let AskedExecutor { job: by_job, until } = was_asked(round, claim, since);
    let late = round.world.now >= until;
    if late && !confirms(round, claim, by_job, until) {
        let read = if by_job { "the node and the Job are read" } else { "the node is read" };
        return ExecutorState::Working(format!("{what}: its time is over, and {read} once more"));
    }
    let seconds = until.duration_since(since).as_secs();
    if let Effect::But(waits) = seen {
        if late {
            return ExecutorState::Failed(format!("{what} was observed, but {waits} after {seconds} s"));
        }
        round.wake(until);
        return ExecutorState::Working(format!("{what} is observed; {waits}"));
    }
    if !by_job {
        if late {
            return ExecutorState::Failed(format!("{what} was not observed within {seconds} s"));
        }
        round.wake(until);
        return ExecutorState::Working(format!("waits for executor {} to take {what}", subject.executor));
    }
    if !late {
        round.wake(until);
    }
    job(round, claim, &what, since, (late.then_some(seconds), matches!(seen, Effect::All)))
}

/// Whether the node of `claim`, and its Job where it goes `by_job`, were read after its deadline `until`, and long enough after
/// the last gap in what is seen. If not, this asks for a read now, or for another decision at the time when a read is of use.
fn confirms(round: &mut Round<'_>, claim: &Claim, by_job: bool, until: Timestamp) -> bool {
    let (world, node) = (round.world, &claim.subject.node);
    let told = until.max(after(world.freshness.unbroken_since, TELL_AGAIN));
    if world.now < told {
        round.wake(told);
        return false;
    }
    let read =
        if by_job { world.freshness.reread_jobs.get(&claim.uid) } else { world.freshness.reread.get(node) };
    // Where no Node is visible there is none to read; an apiserver is asked all the time.
    let nothing = !by_job && world.cluster.node(node).is_none();
    let confirmed = nothing || read.is_some_and(|at| *at >= told);
    if !confirmed {
        round.actions.push(reread(claim, by_job));
    }
    confirmed
}

/// Reads the node of `claim` and its pods afresh, and with them its Job where it goes `by_job`.
fn reread(claim: &Claim, by_job: bool) -> Action {
    let job = by_job.then(|| (claim.uid.clone(), claim.attempt));
    Action::Reread { node: claim.subject.node.clone(), job }
}

/// Drives and reads the Job of `claim`. `late` is the deadline in seconds, if it is over; `all` is whether everything
/// that the Job was asked for is observed.
fn job(
    round: &mut Round<'_>,
    claim: &Claim,
    what: &str,
    since: Timestamp,
    (late, all): (Option<i64>, bool),
) -> ExecutorState {
    let made = round.job_of(claim);
    let refused = round.world.jobs.refused.get(&claim.uid);
    let too_late = |seen: &str| {
        let observed =
            if all { "observed, but its Job is not complete after" } else { "not observed within" };
        late.map(|seconds| format!("{what} was {observed} {seconds} s: {seen}"))
    };
    match (made, refused) {
        (Some(JobState::Failed(message)), _) => {
            let said = last_words(round, claim).map(|said| format!("; its pod {said}"));
            // The watch of the pods may be behind that of the Jobs.
            let read = round.world.freshness.reread_jobs.get(&claim.uid);
            if said.is_none() && read.is_none_or(|at| *at < since) {
                round.actions.push(reread(claim, true));
                return ExecutorState::Working("its Job failed; what its pod said is read".to_owned());
            }
            ExecutorState::Failed(format!("its Job failed: {message}{}", said.unwrap_or_default()))
        }
        (Some(JobState::Complete), _) => too_late("its Job is complete").map_or_else(
            || ExecutorState::Working(format!("its Job is complete; waits to observe {what}")),
            ExecutorState::Failed,
        ),
        (Some(JobState::Running), _) => runs(round, claim, what, since, &too_late),
        (None, refused) if late.is_some() => {
            let why = refused.map_or_else(|| "it has no Job".to_owned(), is_refused);
            let why = template(round, claim).err().unwrap_or(why);
            ExecutorState::Failed(too_late(&why).unwrap_or_default())
        }
        (None, Some(refused)) if refused.has_lasted(REFUSED_FOR) => {
            ExecutorState::Failed(is_refused(refused))
        }
        (None, _) if let Some(pod) = running_pod(round, claim) => {
            let pod = pod.full_name();
            ExecutorState::Working(format!(
                "{what}: its Job was deleted, and is made again when its pod {pod} has ended"
            ))
        }
        (None, refused) => {
            let template = match template(round, claim) {
                Ok(template) => template,
                Err(why) => return ExecutorState::Refused(why, deadline(round, claim, since)),
            };
            // What is asked for at every change would not be refused any less.
            let sent_at =
                refused.map(|refused| refused.sent_at(round.world.now)).filter(|at| round.world.now < *at);
            match sent_at {
                Some(at) => round.wake(at),
                None => round.actions.push(Action::StartJob {
                    claim: claim.name.clone(),
                    uid: claim.uid.clone(),
                    attempt: claim.attempt,
                    subject: claim.subject.clone(),
                    template,
                }),
            }
            starts(round, what, refused)
        }
    }
}

/// What is told of a Job that runs. `too_late` says so of what is seen, where its time is over.
fn runs(
    round: &mut Round<'_>,
    claim: &Claim,
    what: &str,
    since: Timestamp,
    too_late: &dyn Fn(&str) -> Option<String>,
) -> ExecutorState {
    let failed = || last_words(round, claim).map(|said| format!("its pod {said}"));
    let pod = pod_waits(round, claim).or_else(failed);
    let now = round.world.now;
    let refused_at = after(round.world.jobs.podless_since(claim, now), NO_POD_FOR);
    let podless = pods_of(round, claim).next().is_none();
    let refused = (podless && refused_at <= now).then(|| no_pod(round));
    if let Some(why) = too_late(refused.as_ref().or(pod.as_ref()).map_or("its Job still runs", |why| why)) {
        return ExecutorState::Failed(why);
    }
    if let Some(why) = refused {
        return ExecutorState::Refused(why, deadline(round, claim, since));
    }
    if podless {
        round.wake(refused_at);
    }
    let pod = pod.map_or_else(String::new, |why| format!("; {why}"));
    ExecutorState::Working(format!("waits for the Job that takes {what}{pod}"))
}

/// What is said of a Job that is asked for, and was refused before, if it was.
fn starts(round: &mut Round<'_>, what: &str, refused: Option<&RefusedJob>) -> ExecutorState {
    let Some(refused) = refused else {
        return ExecutorState::Working(format!("starts the Job that takes {what}"));
    };
    let until = Some(refused.lasts_until(REFUSED_FOR)).filter(|until| round.world.now < *until);
    if let Some(until) = until {
        round.wake(until);
    }
    ExecutorState::Refused(is_refused(refused), until)
}

/// The template of the Job that `claim` lacks. The error says why none begins: what the executor was when the node was
/// taken up may be gone, or be something that nobody approved.
fn template(round: &Round<'_>, claim: &Claim) -> Result<Arc<str>, String> {
    let name = &claim.subject.executor;
    let not_named =
        || format!("ClusterUpgrade {} does not name executor {name} any more", round.upgrade.name);
    let absent = || round.world.absent_executors.iter().find(|absent| absent.name == *name);
    let why = match round.upgrade.executors.get(name) {
        Some(Executor::Job { template, .. }) if round.approved() => return Ok(template.clone()),
        Some(Executor::Job { .. }) => "the plan as it is now is not approved".to_owned(),
        Some(Executor::External { .. }) => format!("UpgradeExecutor {name} has no job any more"),
        None => absent().map_or_else(not_named, ToString::to_string),
    };
    Err(format!("its Job has not begun: {why}"))
}

/// What is said of a Job that the server refuses.
fn is_refused(refused: &RefusedJob) -> String {
    format!("its Job is refused: {}", refused.why)
}

/// The pods of a claim's Jobs, as far as they are seen.
fn pods_of<'c>(round: &Round<'c>, claim: &'c Claim) -> impl Iterator<Item = &'c Pod> {
    jobs::pods_of(round.world.cluster, round.world.executors, claim)
}

/// A pod of a claim's Jobs that has not ended.
fn running_pod<'c>(round: &Round<'c>, claim: &'c Claim) -> Option<&'c Pod> {
    pods_of(round, claim).find(|pod| pod.phase != Phase::Finished)
}

/// What is said of a Job without a pod. Who refuses it says so in an event of the Job alone.
fn no_pod(round: &Round<'_>) -> String {
    format!("its Job gets no pod; kubectl -n {} describe jobs says why", round.world.executors)
}

/// Why the pod of a claim's Job does not run, as far as is seen.
fn pod_waits(round: &Round<'_>, claim: &Claim) -> Option<String> {
    let pod = pods_of(round, claim).find(|pod| !pod.ready)?;
    let why = pod.traits().waiting.as_ref()?;
    Some(format!("its pod {} waits: {why}", pod.full_name()))
}

/// What the last pod of a claim's Job that failed said, as far as is seen.
fn last_words(round: &Round<'_>, claim: &Claim) -> Option<String> {
    let said = pods_of(round, claim).filter_map(|pod| Some((pod, pod.traits().last_words.as_ref()?)));
    said.last().map(|(pod, said)| format!("{} said: {said}", pod.full_name()))
}
