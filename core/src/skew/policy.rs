//! The version skew policy as data, and the one function that applies it to a pair.
//!
//! The source of every rule is kubernetes.io, "Version Skew Policy", and for emulated versions it is KEP-4330, section
//! "Skew". Only minors count. Nothing here knows a cluster. The invariant: a further kube-apiserver never widens what
//! is allowed.

use crate::cluster::Component;
use crate::version::{Effective, Minor};

/// What a rule is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleSubject {
    /// A component, or a person's kubectl, against the kube-apiservers it talks to; kube-apiservers among themselves.
    Component(Component),
    /// A kube-proxy against the kubelet on its node.
    ProxyBesideKubelet,
    /// No pair: a sentence that findings refer to.
    Advice,
}

/// How far a component's minor may be from that of what it is measured against.
#[derive(Debug, PartialEq, Eq)]
pub struct Rule {
    /// Stable short name.
    pub id: &'static str,
    /// Whose minor it limits.
    pub subject: RuleSubject,
    /// It holds only for subjects of a minor before this one.
    pub before: Option<Minor>,
    /// Minors it may be older.
    pub max_older: u16,
    /// Minors it may be newer.
    pub max_newer: u16,
    /// Where the rule is written down, for a person to look up.
    pub source: &'static str,
}

/// The node component's own version decides which limit holds for it, not the control plane's.
const N_MINUS_3_SINCE: Option<Minor> = Some(Minor::new(1, 25));

/// A rule that allows older minors only, and holds for every minor; a caller overrides what differs.
pub(super) const fn rule(
    id: &'static str,
    subject: RuleSubject,
    max_older: u16,
    source: &'static str,
) -> Rule {
    Rule { id, subject, before: None, max_older, max_newer: 0, source }
}

/// A sentence that findings refer to, and that judges no pair.
pub(super) const fn advice(id: &'static str, source: &'static str) -> Rule {
    rule(id, RuleSubject::Advice, 0, source)
}

const fn of(component: Component) -> RuleSubject {
    RuleSubject::Component(component)
}

/// The rules of kubernetes.io. Of several rules for one subject, the first that holds for its minor counts.
static UPSTREAM: [Rule; 11] = [
    Rule {
        max_newer: 1,
        ..rule("R1", of(Component::KubeApiserver), 1, "version skew policy, kube-apiserver in HA clusters")
    },
    Rule {
        before: N_MINUS_3_SINCE,
        ..rule("R2b", of(Component::Kubelet), 2, "version skew policy, kubelet older than 1.25")
    },
    rule("R2", of(Component::Kubelet), 3, "version skew policy, kubelet (n-3 since 1.28, KEP-3935)"),
    Rule {
        before: N_MINUS_3_SINCE,
        ..rule("R3b", of(Component::KubeProxy), 2, "version skew policy, kube-proxy older than 1.25")
    },
    rule("R3", of(Component::KubeProxy), 3, "version skew policy, kube-proxy (n-3 since 1.28, KEP-3935)"),
    Rule {
        before: N_MINUS_3_SINCE,
        max_newer: 2,
        ..rule(
            "R4b",
            RuleSubject::ProxyBesideKubelet,
            2,
            "version skew policy, kube-proxy older than 1.25 and its kubelet",
        )
    },
    Rule {
        max_newer: 3,
        ..rule(
            "R4",
            RuleSubject::ProxyBesideKubelet,
            3,
            "version skew policy, kube-proxy and the kubelet beside it",
        )
    },
    rule("R5", of(Component::KubeControllerManager), 1, "version skew policy, kube-controller-manager"),
    rule("R6", of(Component::KubeScheduler), 1, "version skew policy, kube-scheduler"),
    rule("R7", of(Component::CloudControllerManager), 1, "version skew policy, cloud-controller-manager"),
    Rule { max_newer: 1, ..rule("R8", of(Component::Kubectl), 1, "version skew policy, kubectl") },
];

/// Controllers one minor behind are allowed "to allow live upgrades"; at rest they are expected to match.
pub static CONTROLLERS_MATCH: Rule = advice("R9", "version skew policy, \"are expected to match\"");

/// The page's older sentence on kubelets before an upgrade: "within 2 minor versions of the new API server".
pub static KUBELETS_BEFORE_UPGRADE: Rule =
    rule("O4", RuleSubject::Advice, 2, "version skew policy, kube-apiserver upgrade, prerequisites");

/// The page's precondition on admission webhooks.
pub static WEBHOOKS_BEFORE_UPGRADE: Rule = rule(
    "O5",
    of(Component::KubeApiserver),
    0,
    "version skew policy, kube-apiserver upgrade, admission webhooks",
);

/// The rules a cluster is judged by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// `kubernetes` or `kubernetes-strict`; tests have others.
    pub name: &'static str,
    rules: &'static [Rule],
    /// Whether kubelets three minors below the *target* stop an upgrade of the kube-apiservers.
    ///
    /// The page contradicts itself: its rule allows kubelets at n-3, its list of prerequisites, which is older, wants
    /// them at n-1 or n-2. KEP-3935's own example goes by the rule, and so does the default.
    pub strict: bool,
}

impl Default for Policy {
    fn default() -> Self {
        Self { name: "kubernetes", rules: &UPSTREAM, strict: false }
    }
}

impl Policy {
    /// The default, with the page's prerequisites taken by the letter.
    pub fn strict() -> Self {
        Self { name: "kubernetes-strict", strict: true, ..Self::default() }
    }

    /// The rules of somebody else: those it does not have do not apply.
    pub const fn named(name: &'static str, rules: &'static [Rule]) -> Self {
        Self { name, rules, strict: false }
    }

    /// The rule for `subject` at `minor`, if there is one.
    pub fn rule(&self, subject: RuleSubject, minor: Minor) -> Option<&'static Rule> {
        self.rules
            .iter()
            .find(|rule| rule.subject == subject && rule.before.is_none_or(|before| minor < before))
    }

    /// Judges `subject` against the kube-apiservers it may meet, and says by which rule.
    ///
    /// The ceiling is the oldest kube-apiserver, the floor is measured from the newest: both narrow while
    /// kube-apiservers of two minors serve. An emulating kube-apiserver counts as what it emulates, and for the order
    /// of binaries as what it is: a newer binary cannot be served by an older one even if both emulate the same
    /// (KEP-4330, "API availability").
    pub fn judge(
        &self,
        subject: RuleSubject,
        running: Running,
        servers: Servers,
    ) -> (Option<&'static Rule>, Judgement) {
        let behind = running.emulation.unwrap_or(running.binary).behind(servers.newest_emulated);
        let Some(rule) = self.rule(subject, running.binary) else {
            return (None, Judgement::Within { behind, headroom: 0 });
        };
        if matches!(subject, RuleSubject::Component(Component::KubeApiserver)) {
            return (Some(rule), Judgement::Within { behind, headroom: 0 });
        }
        let effective = running.emulation.unwrap_or(running.binary);
        let floor = servers.floor(rule);
        let (ceiling, effective_ceiling) =
            (servers.oldest.forward(rule.max_newer), servers.emulated.forward(rule.max_newer));
        let judgement = if running.binary > ceiling {
            Judgement::TooNew { ceiling }
        } else if effective > effective_ceiling {
            let controller =
                matches!(subject, RuleSubject::Component(component) if component.is_controller());
            if controller && running.emulation.is_none() {
                Judgement::Undecided { ceiling: effective_ceiling }
            } else {
                Judgement::TooNew { ceiling: effective_ceiling }
            }
        } else if effective < floor {
            Judgement::TooOld { floor: self.least(subject, servers) }
        } else {
            Judgement::Within { behind, headroom: floor.behind(effective) }
        };
        (Some(rule), judgement)
    }

    /// The oldest minor that these kube-apiservers allow `subject` to be, each minor judged by the rule that holds
    /// for it: under 1.28 no kubelet before 1.25 is allowed, and 1.25 is.
    pub fn least(&self, subject: RuleSubject, servers: Servers) -> Minor {
        let mut from = Minor::new(0, 0);
        for rule in self.rules.iter().filter(|rule| rule.subject == subject) {
            let least = servers.floor(rule).max(from);
            match rule.before {
                Some(before) if least >= before => from = before,
                _ => return least,
            }
        }
        servers.newest
    }

    /// The rule that a kube-proxy and the kubelet on its node break together, if they do.
    ///
    /// Wherever both are allowed by the kube-apiservers, so is the pair: it adds something only where no
    /// kube-apiserver's version is known.
    pub fn broken_by_pair(&self, proxy: Minor, kubelet: Minor) -> Option<&'static Rule> {
        let rule = self.rule(RuleSubject::ProxyBesideKubelet, proxy)?;
        let behind = proxy.behind(kubelet);
        (behind > i32::from(rule.max_older) || -behind > i32::from(rule.max_newer)).then_some(rule)
    }

    /// The rule that two kube-apiservers break together, if they do.
    pub fn broken_by_spread(&self, one: Minor, other: Minor) -> Option<&'static Rule> {
        let (oldest, newest) = (one.min(other), one.max(other));
        let rule = self.rule(RuleSubject::Component(Component::KubeApiserver), oldest)?;
        (oldest.behind(newest) > i32::from(rule.max_older)).then_some(rule)
    }
}

/// Whether a kubelet or kube-proxy may go from one to the other without a drain: inside a minor, and never across one.
/// Source: version skew policy, kubelet upgrade ("in-place minor version upgrades of the kubelet are not supported");
/// KEP-3935 for patches.
pub fn may_update_in_place(from: Minor, to: Minor) -> bool {
    from == to
}

/// What a component runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Running {
    /// The minor of the binary.
    pub binary: Minor,
    /// What it behaves as, where it says so. Kubelets, kube-proxies and kubectl do not emulate.
    pub emulation: Option<Minor>,
}

impl From<Minor> for Running {
    fn from(binary: Minor) -> Self {
        Self { binary, emulation: None }
    }
}

/// The kube-apiservers a component may meet: in an HA cluster behind one address, all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Servers {
    /// The oldest binary: nothing that talks to it may be newer.
    pub oldest: Minor,
    /// The newest binary: the next minor is the one after it.
    pub newest: Minor,
    /// The oldest that one of them behaves as.
    pub emulated: Minor,
    /// The newest that one of them behaves as.
    pub newest_emulated: Minor,
    /// The oldest controller that all of them work with: the newest of their oldest compatible minors.
    pub compatible: Minor,
}

impl Servers {
    /// Of these kube-apiservers; `None` of none.
    ///
    /// One whose version is not known can only narrow what is allowed, so a violation found without it stays one.
    pub fn of(servers: impl IntoIterator<Item = Effective>) -> Option<Self> {
        servers.into_iter().map(Self::from).reduce(|all, one| Self {
            oldest: all.oldest.min(one.oldest),
            newest: all.newest.max(one.newest),
            emulated: all.emulated.min(one.emulated),
            newest_emulated: all.newest_emulated.max(one.newest_emulated),
            compatible: all.compatible.max(one.compatible),
        })
    }

    /// These kube-apiservers while they go over to `target` one by one: what this allows is also allowed afterwards.
    #[must_use]
    pub fn during(self, target: Minor) -> Self {
        let target = Self::from(Effective::plain(target));
        Self {
            newest: self.newest.max(target.newest),
            newest_emulated: self.newest_emulated.max(target.newest_emulated),
            compatible: self.compatible.max(target.compatible),
            ..self
        }
    }

    /// Whether one of them behaves as a minor older than every binary: an upgrade in two steps that is not complete.
    pub fn emulates(self) -> bool {
        self.emulated < self.oldest
    }

    /// The newest of them, as a person reads it: `1.37`, or `1.37 (emulating 1.36)`.
    pub fn told(self) -> String {
        if self.newest_emulated == self.newest {
            self.newest.to_string()
        } else {
            format!("{} (emulating {})", self.newest, self.newest_emulated)
        }
    }

    /// The oldest minor that `rule` lets talk to them. KEP-4330 counts from the oldest compatible version, which
    /// without emulation is the minor before the server's: a controller may be that, a kubelet two below it.
    fn floor(self, rule: &Rule) -> Minor {
        match rule.max_older.checked_sub(1) {
            Some(further) => self.compatible.back(further),
            None => self.newest,
        }
    }
}

impl From<Effective> for Servers {
    fn from(server: Effective) -> Self {
        Self {
            oldest: server.binary(),
            newest: server.binary(),
            emulated: server.emulation(),
            newest_emulated: server.emulation(),
            compatible: server.min_compat(),
        }
    }
}

/// Where a minor stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// Neither too old nor too new.
    Within {
        /// Minors behind what the newest kube-apiserver behaves as.
        behind: i32,
        /// How many more minors the newest kube-apiserver may go before this one must move.
        headroom: i32,
    },
    /// Older than this, the oldest that is allowed.
    TooOld {
        /// The oldest minor that the rule allows beside these servers.
        floor: Minor,
    },
    /// Newer than this, the newest that is allowed.
    TooNew {
        /// The newest minor that the rule allows beside these servers.
        ceiling: Minor,
    },
    /// A controller newer than what a kube-apiserver emulates, which may itself emulate that: allowed if it does.
    Undecided {
        /// The newest minor that is allowed without a doubt.
        ceiling: Minor,
    },
}
