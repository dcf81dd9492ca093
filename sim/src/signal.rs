//! Wakes whoever waits for something to change.
//!
//! The invariant: those that wait are woken in the order in which they began to wait, so that runs of one seed are
//! equal. tokio's `watch` wakes in an order drawn by lot.

use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

/// What is changed.
#[derive(Clone, Debug)]
pub(crate) struct Signal(broadcast::Sender<()>);

impl Default for Signal {
    fn default() -> Self {
        // How often it changed interests nobody.
        Self(broadcast::Sender::new(1))
    }
}

impl Signal {
    /// Wakes everybody who waits.
    pub(crate) fn give(&self) {
        // It is no error that nobody waits.
        let _ = self.0.send(());
    }

    pub(crate) fn subscribe(&self) -> Waiter {
        Waiter(self.0.subscribe())
    }
}

/// Who waits for a [`Signal`].
#[derive(Debug)]
pub(crate) struct Waiter(broadcast::Receiver<()>);

impl Waiter {
    /// Waits until the signal was given since this last returned, or since [`Self::look`]; `false` when nobody can give it
    /// any more.
    pub(crate) async fn changed(&mut self) -> bool {
        let told = self.0.recv().await;
        self.look();
        !matches!(told, Err(RecvError::Closed))
    }

    /// Forgets what was given until now, because everything is looked at next.
    pub(crate) fn look(&mut self) {
        self.0 = self.0.resubscribe();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[tokio::test]
    async fn those_that_wait_are_woken_in_their_order() {
        let (signal, woken) = (Signal::default(), Arc::new(Mutex::new(Vec::new())));
        let mut tasks = tokio::task::JoinSet::new();
        for name in 0..20 {
            let (mut waiter, woken) = (signal.subscribe(), Arc::clone(&woken));
            tasks.spawn(async move {
                assert!(waiter.changed().await);
                woken.lock().unwrap().push(name);
            });
        }
        tokio::task::yield_now().await;
        signal.give();
        signal.give();
        while tasks.join_next().await.is_some() {}
        assert_eq!(*woken.lock().unwrap(), (0..20).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn what_was_given_while_nobody_waited_is_told_once() {
        let signal = Signal::default();
        let mut waiter = signal.subscribe();
        signal.give();
        signal.give();
        assert!(waiter.changed().await);
        signal.give();
        waiter.look();
        drop(signal);
        assert!(!waiter.changed().await);
    }
}
