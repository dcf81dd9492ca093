//! The judgement of a cluster, as a report says it: by the skew policy, the dates of releases, the platform, and what
//! was not seen.
//!
//! Here belongs the order of these; each is a rule of its own elsewhere. The invariants: whoever judges a cluster does
//! it with [`judge`], so that the operator and the command line say the same; and what was not seen makes no verdict
//! better.

use evenkeel_core::cluster::Cluster;
use evenkeel_core::skew::lifecycle::{self, Catalogue};
use evenkeel_core::skew::policy::Policy;
use evenkeel_core::skew::{Assessment, Verdict, assess};
use jiff::civil::Date;

use crate::observe::platform::{Platform, advise};

/// By what a cluster is judged.
pub(crate) struct Basis<'a> {
    /// The rules, upstream's or the strict ones.
    pub(crate) policy: &'a Policy,
    /// The platform, whose remedies hold; `None` if it was not recognised.
    pub(crate) platform: Option<Platform>,
    /// When the maintenance of minors ends.
    pub(crate) releases: &'a Catalogue,
    /// The day by which maintenance is judged, in UTC; `None` if nothing is to be said of it.
    pub(crate) today: Option<Date>,
    /// Why components may be missing from the cluster, in one line; `None` if all were seen.
    pub(crate) unseen: Option<&'a str>,
    /// Why the webhooks, which can stand in the way of the next minor, are not known, in one line.
    pub(crate) webhooks: Option<&'a str>,
}

/// Judges `cluster` by `basis`: the findings of the policy with the platform's remedies, findings about versions that are
/// past their end of life, near it or behind the latest patch, and every verdict that holds only if all was seen as
/// `Unknown` where it was not.
pub(crate) fn judge(cluster: &Cluster, basis: &Basis<'_>) -> Assessment {
    let mut judged = advise(assess(cluster, basis.policy), basis.platform);
    if let Some(today) = basis.today {
        let more = lifecycle::findings(&judged, basis.releases, today);
        judged = judged.with(more);
    }
    with_gaps(judged, basis.unseen, basis.webhooks)
}

/// `judged`, with every verdict that holds only if all was seen turned into `Unknown`, and with a blocker of the
/// next minor that says why.
fn with_gaps(mut judged: Assessment, unseen: Option<&str>, webhooks: Option<&str>) -> Assessment {
    if unseen.is_some() && judged.supported == Verdict::True {
        judged.supported = Verdict::Unknown;
    }
    if let Some(why) = unseen.or(webhooks) {
        if judged.next_minor.allowed == Verdict::True {
            judged.next_minor.allowed = Verdict::Unknown;
        }
        judged.next_minor.blockers.push(format!("not everything could be read: {why}"));
    }
    judged
}
