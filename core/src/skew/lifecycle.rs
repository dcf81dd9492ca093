//! Which minors are still maintained, until when, and which patch is the latest.
//!
//! This is data with a date, and not a rule: what is shipped is what was known when this was built, and a caller may
//! bring a newer text of the same form. The time is an argument, because the core has no clock. The invariant: a minor
//! or a patch line that the data does not know gives no finding, and nothing here makes a cluster unsupported by the
//! skew policy.

use std::collections::BTreeMap;

use jiff::civil::Date;
use serde::Deserialize;

use super::assess::Assessment;
use super::findings::{Severity, SkewFinding};
use super::policy::{Rule, advice};
use super::row::Row;
use super::samples::SAMPLES;
use crate::cluster::Component;
use crate::version::{KubeVersion, Minor};

/// The data that is built in.
const SHIPPED: &str = include_str!("releases.json");

/// A minor is reported so many days before its end, so that there is time for an upgrade.
const NOTICE: i32 = 60;

static END_OF_LIFE: Rule = advice("EOL", "kubernetes.io, patch releases: end of life");
static LATEST_PATCH: Rule =
    advice("O0", "version skew policy, supported component upgrade order: latest patch");

/// One minor's life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Life {
    /// The last day of its maintenance.
    pub end_of_life: Date,
    /// The newest release of it that the data knows.
    pub latest: KubeVersion,
}

/// What is known of every minor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Catalogue {
    as_of: Option<Date>,
    minors: BTreeMap<Minor, Life>,
}

/// Why a text is no catalogue.
#[derive(Debug, thiserror::Error)]
pub enum CatalogueError {
    /// It is not of the form.
    #[error("the release data cannot be read: {0}")]
    Form(#[from] serde_json::Error),
    /// An entry does not say which minor it is about.
    #[error("the release data has `{0}` for a minor; write it like 1.37")]
    Minor(String),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CatalogueText {
    as_of: Option<Date>,
    minors: Vec<CatalogueEntry>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CatalogueEntry {
    minor: String,
    end_of_life: Date,
    latest_patch_seen: KubeVersion,
}

impl Catalogue {
    /// What was known when this was built.
    ///
    /// # Errors
    /// None in practice: the text is part of the program, and a test reads it.
    pub fn shipped() -> Result<Self, CatalogueError> {
        Self::read(SHIPPED)
    }

    /// Reads `{"asOf": "2026-11-20", "minors": [{"minor": "1.37", "endOfLife": "2027-10-28", "latestPatchSeen":
    /// "1.37.1"}]}`, of which `asOf` may be missing, and passes over whatever else is in it.
    ///
    /// # Errors
    /// [`CatalogueError`].
    pub fn read(text: &str) -> Result<Self, CatalogueError> {
        let text: CatalogueText = serde_json::from_str(text)?;
        let entry = |entry: CatalogueEntry| -> Result<(Minor, Life), CatalogueError> {
            let minor =
                entry.minor.split_once('.').and_then(|(major, minor)| Minor::from_fields(major, minor));
            let minor = minor.ok_or(CatalogueError::Minor(entry.minor))?;
            Ok((minor, Life { end_of_life: entry.end_of_life, latest: entry.latest_patch_seen }))
        };
        let minors = text.minors.into_iter().map(entry).collect::<Result<_, _>>()?;
        Ok(Self { as_of: text.as_of, minors })
    }

    /// The day on which the data was gathered, if the data says it.
    pub fn as_of(&self) -> Option<Date> {
        self.as_of
    }

    /// The life of that minor, if it is known.
    pub fn life(&self, minor: Minor) -> Option<&Life> {
        self.minors.get(&minor)
    }
}

/// What in a judged cluster is past its end, near it, or behind the latest patch of its minor: one finding for a minor,
/// and one for a version.
pub fn findings(judged: &Assessment, catalogue: &Catalogue, today: Date) -> Vec<SkewFinding> {
    let mut by_minor: BTreeMap<Minor, Vec<&Row>> = BTreeMap::new();
    let mut by_version: BTreeMap<String, Vec<&Row>> = BTreeMap::new();
    for row in &judged.rows {
        if let Some(version) = row.version.known() {
            by_minor.entry(version.minor()).or_default().push(row);
            // Its maker numbers the patches of a cloud-controller-manager: only its minor follows upstream's.
            if row.component != Component::CloudControllerManager {
                by_version.entry(version.to_string()).or_default().push(row);
            }
        }
    }
    let ends = by_minor.iter().filter_map(|(minor, rows)| end(*minor, rows, catalogue, today));
    let patches = by_version.values().filter_map(|rows| patch(rows, catalogue, today));
    ends.chain(patches).collect()
}

/// Whether a finding is of the kind that [`findings`] makes.
pub fn is_about(finding: &SkewFinding) -> bool {
    [END_OF_LIFE.id, LATEST_PATCH.id].contains(&finding.rule.id)
}

fn end(minor: Minor, rows: &[&Row], catalogue: &Catalogue, today: Date) -> Option<SkewFinding> {
    let message = match catalogue.life(minor).map(|life| life.end_of_life) {
        Some(end) if end < today => format!("{minor} has had no upstream maintenance since {end}"),
        Some(end) if (end - today).get_days() <= NOTICE => {
            format!("upstream maintenance of {minor} ends on {end}")
        }
        Some(_) => return None,
        // Minors end in their order, so one from before the data ended before everything that is in it.
        None => {
            let (oldest, life) = catalogue.minors.first_key_value()?;
            let ended = minor < *oldest && life.end_of_life < today;
            let end = ended.then_some(life.end_of_life)?;
            format!("{minor} has had no upstream maintenance since {end} at the latest")
        }
    };
    finding(rows, &END_OF_LIFE, &minor.to_string(), &message, "upgrade to a maintained minor".to_owned())
}

fn patch(rows: &[&Row], catalogue: &Catalogue, today: Date) -> Option<SkewFinding> {
    let version = rows.first()?.version.known()?;
    let Life { end_of_life, latest } = catalogue.life(version.minor())?;
    // After the end no patch is enough, and that was said already.
    if *end_of_life < today {
        return None;
    }
    // A vendor's patches come later than upstream's or not at all, and a build on the way to a release holds the one
    // before it.
    let base = version.released().filter(|_| version.is_of_upstream_patch_line())?;
    if base.release() >= latest.release() {
        return None;
    }
    // The data may be younger than what is judged: a dump of a year ago could not know the patches since.
    let message = match catalogue.as_of.filter(|known| today < *known) {
        Some(known) => format!("{version} is behind {latest}, the latest patch on {known}"),
        None => format!("{version} is behind the latest patch, {latest}"),
    };
    finding(rows, &LATEST_PATCH, &version.to_string(), &message, format!("upgrade to {latest} or later"))
}

fn finding(
    rows: &[&Row],
    rule: &'static Rule,
    what: &str,
    message: &str,
    remedy: String,
) -> Option<SkewFinding> {
    let mut counts: BTreeMap<Component, usize> = BTreeMap::new();
    for row in rows {
        *counts.entry(row.component).or_default() += row.count;
    }
    let mut samples: Vec<_> = rows.iter().flat_map(|row| row.samples.iter().cloned()).collect();
    samples.sort();
    samples.dedup();
    samples.truncate(SAMPLES);
    let who: Vec<_> = counts.iter().map(|(component, count)| format!("{count} {component}")).collect();
    Some(SkewFinding {
        id: format!("{}/{what}", rule.id),
        severity: Severity::Warning,
        rule,
        component: *counts.keys().next()?,
        count: counts.values().sum(),
        samples,
        too_new: false,
        message: format!("{message}: {}", who.join(", ")),
        remedy,
    })
}
