//! Who leads the controllers, and when that was last renewed.
//!
//! Here belong plain values; nothing here judges them. An upgrade reads from them whether the controllers work again
//! after a step of the control plane.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use super::component::Component;

/// Who leads one of the controllers, by its lease, or that nobody does.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Leader {
    /// The controller whose lease it is: the lease has the component's name.
    pub component: Component,
    /// Who holds the lease, in its own words: `<host name>_<random>`, another one for each run. Empty where the last
    /// holder gave it up when it ended, as kube-scheduler does.
    pub holder: Arc<str>,
    /// The Node of that host name, if there is one.
    pub node: Option<Arc<str>>,
    /// When its present holder acquired the lease, or the last one gave it up.
    pub acquired: Option<Timestamp>,
    /// When its holder last renewed it, by the holder's clock: the process worked at that time. A process that has
    /// ended renews nothing, so its last renewal stays here, or the time at which it gave the lease up.
    pub renewed: Timestamp,
}

/// When controllers renewed their leases, by the clock of whoever reads them again and again, and not by the holder's, which
/// may be wrong. Each read asks the server itself: a watch may tell of a renewal long after it was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Renewals {
    read: Option<Timestamp>,
    seen: BTreeMap<Component, Renewal>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Renewal {
    holder: Arc<str>,
    /// In the holder's words.
    renewed: Timestamp,
    /// By our clock, it was renewed after this.
    after: Option<Timestamp>,
}

impl Renewals {
    /// Takes in who leads by a read that was asked for at `now`.
    pub fn were_read(&mut self, leaders: &[Leader], now: Timestamp) {
        let before = std::mem::take(&mut self.seen);
        let seen = leaders.iter().map(|leader| {
            let known = before.get(&leader.component);
            let same = |known: &&Renewal| known.renewed == leader.renewed && known.holder == leader.holder;
            let after = match known {
                Some(known) if same(&known) => known.after,
                // Whoever gives a lease up works no more.
                _ if leader.holder.is_empty() => None,
                // What is another than at the last read was written after that.
                Some(_) => self.read,
                None => None,
            };
            let renewal = Renewal { holder: Arc::clone(&leader.holder), renewed: leader.renewed, after };
            (leader.component, renewal)
        });
        self.seen = seen.collect();
        self.read = Some(now);
    }

    /// When they were last read.
    pub fn read_at(&self) -> Option<Timestamp> {
        self.read
    }

    /// A time after which the lease of `component` was renewed; `None` while no renewal has been seen.
    pub fn after(&self, component: Component) -> Option<Timestamp> {
        self.seen.get(&component)?.after
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_renewal_is_dated_by_the_read_before_it() {
        let component = Component::KubeControllerManager;
        let at = |seconds: i64| Timestamp::from_second(1_800_000_000 + seconds).unwrap();
        let leader = |holder: &str, renewed: i64| Leader {
            component,
            holder: holder.into(),
            node: None,
            acquired: None,
            renewed: at(renewed),
        };
        let mut renewals = Renewals::default();
        // The holder's clock is a day behind, which changes nothing.
        let day = 86_400;
        for (now, holder, renewed, after) in [
            (0, "cp-1_a", -day, None),
            (3, "cp-1_a", -day, None),
            (5, "cp-1_a", 2 - day, Some(at(3))),
            (9, "cp-1_a", 2 - day, Some(at(3))),
            (12, "cp-2_b", 2 - day, Some(at(9))),
            // It gives the lease up, which is no renewal, and another one takes it.
            (13, "", 13 - day, None),
            (14, "", 13 - day, None),
            (15, "cp-1_c", 14 - day, Some(at(14))),
        ] {
            renewals.were_read(&[leader(holder, renewed)], at(now));
            assert_eq!(renewals.after(component), after, "at {now}");
        }
        renewals.were_read(&[], at(16));
        assert_eq!(renewals.after(component), None, "nobody holds it any more");
    }
}
