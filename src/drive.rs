//! The loop that the operator's upgrades and a drain share: look, decide, send, wait, take in answers.
//!
//! Here belongs only when a look is due and when the loop ends. The core decides, and [`crate::act`] sends. The
//! invariants: one look sees all changes of one pause together; a change that comes during a look leads to another
//! look; an answer is taken in as soon as no look is under way; and the loop waits for the answer of every request that
//! was sent, unless a person quits, the work fails, or the leadership is lost, with which the whole loop is dropped.

use std::time::Duration;

use futures::{FutureExt as _, Stream, StreamExt as _};
use tokio::task::{JoinError, JoinSet};
use tokio::time::sleep;

use crate::observe::cache::Changes;

/// The work that the loop drives: an upgrade of the operator, or a drain.
pub(crate) trait Driven {
    /// What becomes of a request.
    type Done: Send + 'static;
    /// Why the work cannot go on.
    type Failure;

    /// The requests that are under way beside the loop.
    fn running(&mut self) -> &mut JoinSet<Self::Done>;

    /// Looks at the cluster once, decides, and begins the requests that follow.
    async fn look(&mut self) -> Result<NextLook, Self::Failure>;

    /// Takes in what became of a request.
    fn take(&mut self, done: Result<Self::Done, JoinError>) -> Result<(), Self::Failure>;

    /// Says what an interrupt means now: somebody wants the work to end.
    fn interrupted(&mut self) -> Result<Interrupt, Self::Failure>;
}

/// What comes after a look.
pub(crate) enum NextLook {
    /// The next one, after this time or as soon as something changes.
    Again(Duration),
    /// None: there is nothing more to do.
    Done,
}

/// What the loop does after an interrupt, which depends on how often and how far.
pub(crate) enum Interrupt {
    /// The loop goes on: the interrupt may have arrived twice.
    Nothing,
    /// The loop goes on with looks until no request is under way.
    Settle,
    /// The loop looks no more, and waits for the answers.
    End,
    /// The loop ends at once, without the answers.
    Quit,
}

/// How the loop ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Conclusion {
    /// Everything that was sent has its answer.
    Settled,
    /// A person did not want to wait for the answers.
    Quit,
}

/// Lets `driven` look whenever `changes` tells of a change and whenever a look is due, with a pause of `between` after
/// each look, until it is done or `interrupts` end it.
///
/// # Errors
/// The first failure of `driven`.
pub(crate) async fn drive<D: Driven>(
    driven: &mut D,
    changes: &Changes,
    between: Duration,
    interrupts: impl Stream<Item = ()>,
) -> Result<Conclusion, D::Failure> {
    let mut changed = changes.subscribe();
    let mut interrupts = std::pin::pin!(interrupts.fuse());
    let mut settles = false;
    loop {
        // An interrupt that came during the pause is handled before another look.
        let mut interrupt = interrupts.next().now_or_never().flatten();
        if interrupt.is_none() {
            changed.mark_unchanged();
            let NextLook::Again(wait) = driven.look().await? else { break };
            if settles && driven.running().is_empty() {
                break;
            }
            tokio::select! {
                biased;
                Some(()) = interrupts.next() => interrupt = Some(()),
                Some(done) = driven.running().join_next() => driven.take(done)?,
                _ = changed.changed() => {}
                () = sleep(wait) => {}
            }
        }
        if interrupt.is_some() {
            match driven.interrupted()? {
                Interrupt::Nothing => {}
                Interrupt::Settle => settles = true,
                Interrupt::End => break,
                Interrupt::Quit => return Ok(Conclusion::Quit),
            }
        }
        let mut pause = std::pin::pin!(sleep(between));
        loop {
            tokio::select! {
                biased;
                Some(done) = driven.running().join_next() => driven.take(done)?,
                () = &mut pause => break,
            }
        }
    }
    while driven.running().join_next().await.is_some() {}
    Ok(Conclusion::Settled)
}

#[cfg(test)]
mod tests {
    use futures::stream;
    use tokio::time::Instant;

    use super::*;

    const BETWEEN: Duration = Duration::from_millis(20);

    /// Looks, sends a request that takes five seconds at its second look, and remembers.
    struct Toy {
        running: JoinSet<&'static str>,
        began: Instant,
        log: Vec<(u128, &'static str)>,
        /// The looks after which it is done.
        looks: usize,
        means: fn() -> Interrupt,
    }

    impl Toy {
        fn new(looks: usize, means: fn() -> Interrupt) -> Self {
            Self { running: JoinSet::new(), began: Instant::now(), log: Vec::new(), looks, means }
        }

        fn note(&mut self, what: &'static str) {
            self.log.push((self.began.elapsed().as_millis(), what));
        }

        fn count(&self, what: &str) -> usize {
            self.log.iter().filter(|(_, logged)| *logged == what).count()
        }
    }

    impl Driven for Toy {
        type Done = &'static str;
        type Failure = String;

        fn running(&mut self) -> &mut JoinSet<&'static str> {
            &mut self.running
        }

        async fn look(&mut self) -> Result<NextLook, String> {
            self.note("look");
            if self.count("look") == 2 {
                self.running.spawn(async {
                    sleep(Duration::from_secs(5)).await;
                    "answer"
                });
            }
            Ok(if self.count("look") > self.looks {
                NextLook::Done
            } else {
                NextLook::Again(Duration::from_secs(1))
            })
        }

        fn take(&mut self, done: Result<&'static str, JoinError>) -> Result<(), String> {
            self.note(done.map_err(|error| error.to_string())?);
            Ok(())
        }

        fn interrupted(&mut self) -> Result<Interrupt, String> {
            self.note("interrupt");
            Ok((self.means)())
        }
    }

    /// An interrupt after so many seconds, and no more.
    fn after(seconds: u64) -> impl Stream<Item = ()> {
        stream::once(sleep(Duration::from_secs(seconds)))
    }

    #[tokio::test(start_paused = true)]
    async fn it_looks_when_something_changes_and_when_it_is_time() {
        let mut toy = Toy::new(4, || Interrupt::End);
        let changes = Changes::default();
        let told = changes.clone();
        tokio::spawn(async move {
            sleep(Duration::from_millis(300)).await;
            // Both are seen by one look.
            told.bump();
            sleep(Duration::from_millis(5)).await;
            told.bump();
        });
        let end = drive(&mut toy, &changes, BETWEEN, stream::pending()).await;
        assert_eq!(end, Ok(Conclusion::Settled));
        let looks = [(0, "look"), (320, "look"), (1340, "look"), (2360, "look"), (3380, "look")];
        assert_eq!(toy.log, looks, "and what was sent before the end has its answer");
        assert!(toy.running.is_empty());
        assert_eq!(toy.began.elapsed().as_secs(), 5);
    }

    #[tokio::test(start_paused = true)]
    async fn who_settles_looks_on_until_every_answer_is_there() {
        let mut toy = Toy::new(100, || Interrupt::Settle);
        let end = drive(&mut toy, &Changes::default(), BETWEEN, after(2)).await;
        assert_eq!((end, toy.count("answer")), (Ok(Conclusion::Settled), 1));
        assert!(toy.count("look") > 5, "{:?}", toy.log);
    }

    #[tokio::test(start_paused = true)]
    async fn who_ends_looks_no_more_and_waits_for_the_answers() {
        let mut toy = Toy::new(100, || Interrupt::End);
        let end = drive(&mut toy, &Changes::default(), BETWEEN, after(2)).await;
        assert_eq!(end, Ok(Conclusion::Settled));
        assert_eq!(toy.log.last(), Some(&(2000, "interrupt")));
        assert!(toy.running.is_empty() && toy.began.elapsed().as_secs() >= 5);
    }

    #[tokio::test(start_paused = true)]
    async fn who_quits_waits_for_nothing_and_an_interrupt_may_mean_nothing() {
        let mut toy = Toy::new(100, || Interrupt::Quit);
        let end = drive(&mut toy, &Changes::default(), BETWEEN, after(2)).await;
        assert_eq!((end, toy.began.elapsed().as_secs()), (Ok(Conclusion::Quit), 2));
        let mut toy = Toy::new(4, || Interrupt::Nothing);
        let end = drive(&mut toy, &Changes::default(), BETWEEN, after(2)).await;
        assert_eq!((end, toy.count("look")), (Ok(Conclusion::Settled), 5));
    }

    /// Sends eight requests of 20 ms each, and another one with every answer, until it has sent as many as it was to.
    struct Filling {
        running: JoinSet<()>,
        left: usize,
    }

    impl Filling {
        fn fill(&mut self) {
            while self.left > 0 && self.running.len() < 8 {
                self.left -= 1;
                self.running.spawn(sleep(Duration::from_millis(20)));
            }
        }
    }

    impl Driven for Filling {
        type Done = ();
        type Failure = JoinError;

        fn running(&mut self) -> &mut JoinSet<()> {
            &mut self.running
        }

        async fn look(&mut self) -> Result<NextLook, JoinError> {
            self.fill();
            Ok(if self.running.is_empty() { NextLook::Done } else { NextLook::Again(Duration::from_mins(1)) })
        }

        fn take(&mut self, done: Result<(), JoinError>) -> Result<(), JoinError> {
            done?;
            self.fill();
            Ok(())
        }

        fn interrupted(&mut self) -> Result<Interrupt, JoinError> {
            Ok(Interrupt::End)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_taken_in_while_the_next_look_is_waited_for() {
        let (mut filling, begun) = (Filling { running: JoinSet::new(), left: 160 }, Instant::now());
        let between = Duration::from_millis(50);
        let end = drive(&mut filling, &Changes::default(), between, stream::pending()).await;
        assert!(matches!(end, Ok(Conclusion::Settled)), "{end:?}");
        let took = begun.elapsed().as_millis();
        assert!(took < 20 * 20 + 60, "no place was ever free: {took} ms");
    }

    #[tokio::test(start_paused = true)]
    async fn an_interrupt_from_before_comes_before_the_first_look() {
        let mut toy = Toy::new(100, || Interrupt::End);
        let end = drive(&mut toy, &Changes::default(), BETWEEN, after(0)).await;
        assert_eq!((end, toy.log), (Ok(Conclusion::Settled), vec![(0, "interrupt")]));
    }
}
