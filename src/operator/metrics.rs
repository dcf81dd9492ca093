//! The operator's metrics: names, labels, and nothing that decides a value.
//!
//! Only this file and those below it use the prometheus crate. The invariants: every label value comes from a closed
//! set or from the caller's rows; each series whose labels are known beforehand exists from the start with 0; a series
//! whose row is gone is removed; and a process that does not lead shows nothing of what only the leader sees.

mod table;
mod upgrades;

use std::time::Duration;

use evenkeel_core::cluster::Component;
use prometheus::process_collector::ProcessCollector;
use prometheus::{
    Encoder, GaugeVec, HistogramOpts, HistogramVec, IntCounterVec, IntGauge, Opts, Registry, TextEncoder,
};

use self::table::{Table, integer, register, show};
pub use self::upgrades::{BlockedNode, UpgradeNodes, Upgrades};
use crate::observe::{PodScope, Source};

/// A controller of the operator; the label `controller`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Controller {
    /// Writes the `ClusterSkewReport`.
    Report,
    /// Drives `ClusterUpgrades`.
    Upgrade,
}

/// How a reconcile ended; the label `result` of its duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReconcileOutcome {
    /// Nothing more to do until something changes.
    Ok,
    /// The reconcile could not conclude yet and runs again after a time.
    Requeue,
    /// The reconcile failed; [`Reason`] says why.
    Error,
}

/// Why a reconcile failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The caches do not show the whole cluster, or are out of date.
    NotReady,
    /// A write lost a race.
    Conflict,
    /// The server refused or did not answer.
    Api,
    /// The process lost its leadership during the reconcile.
    LeadershipLost,
}

/// How the server answered an eviction; the label `result`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Eviction {
    /// The server accepted the eviction.
    Evicted,
    /// The deletion past its budgets was accepted.
    Forced,
    /// A PodDisruptionBudget forbids the eviction now.
    RefusedPdb,
    /// The pod was gone.
    NotFound,
    /// The pod's namespace is being deleted.
    TerminatingNamespace,
    /// An admission webhook refused the eviction or did not answer.
    WebhookDenied,
    /// The server gave any other answer, or none.
    Error,
}

macro_rules! labels {
    ($type:ident { $($variant:ident => $label:literal),+ $(,)? }) => {
        impl $type {
            const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The label's value.
            const fn label(self) -> &'static str {
                match self { $(Self::$variant => $label),+ }
            }
        }
    };
}

labels!(Controller { Report => "report", Upgrade => "upgrade" });
labels!(ReconcileOutcome { Ok => "ok", Requeue => "requeue", Error => "error" });
labels!(Reason {
    NotReady => "not_ready", Conflict => "conflict", Api => "api", LeadershipLost => "leadership_lost",
});
labels!(Eviction {
    Evicted => "evicted", Forced => "forced", RefusedPdb => "refused_pdb", NotFound => "not_found",
    TerminatingNamespace => "terminating_ns", WebhookDenied => "webhook_denied", Error => "error",
});

impl Controller {
    /// Whether a reconcile of this controller can end with `outcome`.
    fn ends_with(self, outcome: ReconcileOutcome) -> bool {
        match self {
            Self::Report => true,
            // An upgrade that waits for a time has nothing more to do until then: its reconcile ends with `Ok`.
            Self::Upgrade => outcome != ReconcileOutcome::Requeue,
        }
    }
}

/// Which build of the program runs; the constant labels of `evenkeel_build_info`.
#[derive(Clone, Copy, Debug)]
pub struct Build<'a> {
    /// The version of the package, without the revision.
    pub version: &'a str,
    /// The git revision, or `unknown`.
    pub revision: &'a str,
    /// The `rust-version` of the package: the oldest Rust that builds it.
    pub rust_version: &'a str,
}

/// How many instances run exactly one version.
#[derive(Clone, Copy, Debug)]
pub struct Instances<'a> {
    /// The component, which is label `component`.
    pub component: Component,
    /// The pool of its nodes; `control-plane` for the control plane.
    pub pool: &'a str,
    /// The whole version; `unknown`, or `other` beyond the versions that have their own row.
    pub version: &'a str,
    /// The minor of that version; `unknown` or `other` likewise.
    pub minor: &'a str,
    /// How many instances are in that row.
    pub count: u64,
}

/// How far one component of one pool is from the kube-apiservers, in minors.
#[derive(Clone, Copy, Debug)]
pub struct Distance<'a> {
    /// The component, which is label `component`.
    pub component: Component,
    /// The pool of its nodes; `control-plane` for the control plane.
    pub pool: &'a str,
    /// The most that any instance is behind the newest kube-apiserver.
    pub behind: i64,
    /// The most that any instance is ahead of the oldest kube-apiserver, of those that are too new.
    pub ahead: i64,
}

/// How many instances break one rule.
#[derive(Clone, Copy, Debug)]
pub struct Violations<'a> {
    /// The component, which is label `component`.
    pub component: Component,
    /// The pool of its nodes; `control-plane` for the control plane.
    pub pool: &'a str,
    /// The rule's name.
    pub rule: &'a str,
    /// `Unsupported`, `AtLimit` or `Warning`.
    pub severity: &'a str,
    /// How many instances; 0 for a rule that is kept, so that an alert on it does not lose its series.
    pub count: u64,
}

/// When the upstream maintenance of a minor ends that runs in the cluster.
#[derive(Clone, Copy, Debug)]
pub struct EndOfLife<'a> {
    /// The minor, such as `1.37`.
    pub minor: &'a str,
    /// The end, in seconds since 1970.
    pub unix_seconds: i64,
}

fn built(build: &Build<'_>) -> prometheus::Result<IntGauge> {
    let info = Opts::new("evenkeel_build_info", "What was built; always 1.")
        .const_label("version", build.version)
        .const_label("revision", build.revision)
        .const_label("rust_version", build.rust_version);
    IntGauge::with_opts(info)
}

fn reconcile_duration() -> prometheus::Result<HistogramVec> {
    // A reconcile of the report takes milliseconds; one of an upgrade waits for answers of the API.
    let buckets = vec![0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0];
    let duration = HistogramOpts::new("evenkeel_reconcile_duration_seconds", "How long one reconcile took.");
    HistogramVec::new(duration.buckets(buckets), &["controller", "result"])
}

/// Every metric of the program. The setters take the values to show, and never fail.
pub struct Metrics {
    registry: Registry,
    leader: IntGauge,
    reconcile_duration: HistogramVec,
    reconcile_errors: IntCounterVec,
    collector_success: GaugeVec,
    collector_errors: IntCounterVec,
    report_success: GaugeVec,
    end_of_life: Table<1>,
    instances: Table<4>,
    behind: Table<2>,
    ahead: Table<2>,
    behind_limit: Table<1>,
    violations: Table<4>,
    upgrades: Upgrades,
    evictions: IntCounterVec,
}

impl Metrics {
    /// All metrics; every series whose labels are known beforehand begins at 0. The sources are those that the observer
    /// watches for `scope`.
    ///
    /// # Errors
    /// When two metrics have the same name, or a name is not one that Prometheus allows.
    pub fn new(build: &Build<'_>, scope: PodScope) -> prometheus::Result<Self> {
        let registry = Registry::new();
        let r = &registry;
        r.register(Box::new(ProcessCollector::for_self()))?;
        register(r, built(build)?)?.set(1);
        let counter =
            |name, help, labels: &[&str]| register(r, IntCounterVec::new(Opts::new(name, help), labels)?);
        let gauge = |name, help, label| register(r, GaugeVec::new(Opts::new(name, help), &[label])?);
        let metrics = Self {
            leader: register(r, IntGauge::new("evenkeel_leader", "1 while this process holds the Lease.")?)?,
            reconcile_duration: register(r, reconcile_duration()?)?,
            reconcile_errors: counter(
                "evenkeel_reconcile_errors_total",
                "Reconciles that failed.",
                &["controller", "reason"],
            )?,
            collector_success: gauge(
                "evenkeel_collector_last_success_timestamp_seconds",
                "When the source last told anything; 0 before it did.",
                "source",
            )?,
            collector_errors: counter(
                "evenkeel_collector_errors_total",
                "How often a source became unusable.",
                &["source"],
            )?,
            report_success: gauge(
                "evenkeel_report_last_success_timestamp_seconds",
                "When the ClusterSkewReport last was what the cluster is; 0 before this process found that. Stands still while it is suspended.",
                "report",
            )?,
            end_of_life: Table::new(
                r,
                "evenkeel_kubernetes_minor_eol_timestamp_seconds",
                "When the upstream maintenance of a minor that runs here ends.",
                ["minor"],
            )?,
            instances: Table::new(
                r,
                "evenkeel_component_instances",
                "How many instances run exactly this version.",
                ["component", "pool", "version", "minor"],
            )?,
            behind: Table::new(
                r,
                "evenkeel_component_minor_versions_behind",
                "The most minors that any instance is behind the newest kube-apiserver.",
                ["component", "pool"],
            )?,
            ahead: Table::new(
                r,
                "evenkeel_component_minor_versions_ahead",
                "The most minors that an instance is ahead of the oldest kube-apiserver, which must be 0; what the policy allows, or does not decide, is 0.",
                ["component", "pool"],
            )?,
            behind_limit: Table::new(
                r,
                "evenkeel_component_minor_versions_behind_limit",
                "How many minors the skew policy allows the component to be behind.",
                ["component"],
            )?,
            violations: Table::new(
                r,
                "evenkeel_violations",
                "How many instances break the rule.",
                ["component", "pool", "rule", "severity"],
            )?,
            upgrades: Upgrades::new(r)?,
            evictions: counter("evenkeel_evictions_total", "Evictions that were tried.", &["result"])?,
            registry,
        };
        metrics.begin_at_zero(scope);
        Ok(metrics)
    }

    fn begin_at_zero(&self, scope: PodScope) {
        for controller in Controller::ALL {
            for outcome in ReconcileOutcome::ALL.iter().filter(|outcome| controller.ends_with(**outcome)) {
                let _ = self.reconcile_duration.with_label_values(&[controller.label(), outcome.label()]);
            }
            for reason in Reason::ALL {
                let _ = self.reconcile_errors.with_label_values(&[controller.label(), reason.label()]);
            }
        }
        for source in Source::of(scope) {
            let _ = self.collector_success.with_label_values(&[source.name()]);
            let _ = self.collector_errors.with_label_values(&[source.name()]);
        }
        let _ = self.report_success.with_label_values(&[crate::api::report::NAME]);
        for result in Eviction::ALL {
            let _ = self.evictions.with_label_values(&[result.label()]);
        }
    }

    /// Every metric in Prometheus' text format 0.0.4.
    ///
    /// # Errors
    /// When a metric cannot be encoded.
    pub fn text(&self) -> prometheus::Result<String> {
        let mut text = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut text)?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// Shows whether this process holds the Lease. When it does not, every row that only a leader shows is removed: the
    /// next leader shows its own, and an alert would take both for one cluster. Nothing of the term may run any more.
    pub fn leader(&self, leads: bool) {
        self.leader.set(i64::from(leads));
        if !leads {
            self.forget();
        }
    }

    /// Removes every row of a judgement and of an upgrade.
    fn forget(&self) {
        // Every field is named, so that whoever adds one decides what becomes of it.
        let Self {
            end_of_life,
            instances,
            behind,
            ahead,
            behind_limit,
            violations,
            upgrades,
            // Of the process, whether it leads or not; and counts, which never fall.
            registry: _,
            leader: _,
            reconcile_duration: _,
            reconcile_errors: _,
            collector_success: _,
            collector_errors: _,
            evictions: _,
            // The newest of all replicas counts: what a former leader wrote was written. Without it, nobody would tell how
            // old a report is that the next leader cannot write.
            report_success: _,
        } = self;
        end_of_life.clear();
        instances.clear();
        behind.clear();
        ahead.clear();
        behind_limit.clear();
        violations.clear();
        upgrades.clear();
    }

    /// Counts a reconcile that ended with `outcome` after `took`.
    pub fn reconciled(&self, controller: Controller, outcome: ReconcileOutcome, took: Duration) {
        let labels = [controller.label(), outcome.label()];
        self.reconcile_duration.with_label_values(&labels).observe(took.as_secs_f64());
    }

    /// Counts a reconcile that failed for `reason`.
    pub fn reconcile_failed(&self, controller: Controller, reason: Reason) {
        self.reconcile_errors.with_label_values(&[controller.label(), reason.label()]).inc();
    }

    /// Shows that `source` last told anything at `unix_seconds`.
    pub fn collected(&self, source: Source, unix_seconds: f64) {
        self.collector_success.with_label_values(&[source.name()]).set(unix_seconds);
    }

    /// Counts that `source` became unusable.
    pub fn collect_failed(&self, source: Source) {
        self.collector_errors.with_label_values(&[source.name()]).inc();
    }

    /// Shows that `report` was last written, or found to be right, at `unix_seconds`.
    pub fn reported(&self, report: &str, unix_seconds: f64) {
        self.report_success.with_label_values(&[report]).set(unix_seconds);
    }

    /// Shows when the maintenance of each running minor ends; replaces what was shown before.
    pub fn end_of_life(&self, rows: &[EndOfLife<'_>]) {
        show(&self.end_of_life, rows, |row| ([row.minor], row.unix_seconds));
    }

    /// Shows how many instances run each version; replaces what was shown before.
    pub fn instances(&self, rows: &[Instances<'_>]) {
        show(&self.instances, rows, |row| {
            ([row.component.name(), row.pool, row.version, row.minor], integer(row.count))
        });
    }

    /// Shows how far components are from the kube-apiservers; replaces what was shown before.
    pub fn distances(&self, rows: &[Distance<'_>]) {
        show(&self.behind, rows, |row| ([row.component.name(), row.pool], row.behind));
        show(&self.ahead, rows, |row| ([row.component.name(), row.pool], row.ahead));
    }

    /// Shows how many minors each component may be behind; replaces what was shown before.
    pub fn limits(&self, rows: &[(Component, i64)]) {
        show(&self.behind_limit, rows, |(component, minors)| ([component.name()], *minors));
    }

    /// Shows how many instances break each rule; replaces what was shown before.
    pub fn violations(&self, rows: &[Violations<'_>]) {
        show(&self.violations, rows, |row| {
            ([row.component.name(), row.pool, row.rule, row.severity], integer(row.count))
        });
    }

    /// The gauges of upgrades.
    pub const fn upgrades(&self) -> &Upgrades {
        &self.upgrades
    }

    /// Counts an eviction by the server's answer to it.
    pub fn evicted(&self, result: Eviction) {
        self.evictions.with_label_values(&[result.label()]).inc();
    }
}

#[cfg(test)]
mod tests;
