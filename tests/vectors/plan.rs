//! Cases about plans: Cluster API's chained upgrades, the paths of KEP-3935, and what kubeadm offers.
//!
//! A case becomes a small cluster and an upgrade, and the plan is made and judged by the code of the product. Where a rule
//! of the other tool differs on purpose, the case is not ours only after what ours does instead was seen.

mod setting;

use evenkeel::api::ClusterUpgrade;
use evenkeel_core::plan::{FindingCode, Plan, Planned, Refutation};
use evenkeel_core::version::{KubeVersion, ParseError};
use kube::CustomResourceExt as _;
use serde_json::{Value, json};

use crate::{Case, Outcome};
use setting::{Setting, policy, upgrade};

const CREATE: &str = "a cluster that is still to be made has nothing to upgrade: without a known kube-apiserver a plan \
                      is blocked";
const TWICE: &str = "a plan goes to one version of each minor, and spec.via that names two is refused; without those \
                     stops the plans are the same";
const TWICE_AND_STOPS: &str = "two versions of a minor are named, and stops for workers are listed: a plan has one \
                               version of each minor, and a kubelet moves only where the policy makes it";
const OVER: &str = "no kube-apiserver goes over a minor: where no release of the one between is known, the plan is \
                    blocked until a person names it";
const BUILDS: &str = "builds of one release that no known distribution numbers have no order, and nothing is moved \
                      between them";
const STOPS: &str =
    "nobody lists stops for workers: a kubelet moves only where the policy makes it, with fewer drains";
const BACK: &str = "nobody lists stops for workers; a stop behind where a kubelet is moves nothing back, so it needs \
                    no error";
const NOBODY: &str = "kubelets move by a rule that holds for nodes that join later, so none need be there";
const FAR: &str = "a kubelet that is already too old for the kube-apiservers goes to the target at once: every stop \
                   would be one more drain";
const LIST: &str =
    "release data are no list of what is allowed: a target that they do not know is a person's word";
const STATE: &str = "it is about an earlier upgrade or a hook on Cluster API's objects; a plan starts from what runs, \
                     and another ClusterUpgrade waits until the first is complete";
const OFFER: &str = "kubeadm offers versions to go to; here a person names the target";
const STABLE: &str =
    "kubeadm picks its default version from what the network says; here a person names the target";
const LABEL: &str = "a label stands for another version tomorrow, so it is refused as a target";
const TWO_OBJECTS: &str = "it compares the versions that two of Cluster API's objects ask for; an upgrade has one \
                           target here, and goes by what runs";
const MACHINES: &str = "certificates for a new control-plane machine; Evenkeel makes no machines";

/// Not ours for `why`, once it was seen that ours does what `why` says.
fn differs(why: &'static str, seen: bool, planned: &Planned) -> Outcome {
    if seen { Outcome::NotOurs(why) } else { Outcome::Fail(format!("not as said ({why}): {planned:?}")) }
}

/// Whether a cluster without a control plane is left alone.
fn creates_nothing(planned: &Planned) -> bool {
    let plan = planned.plan();
    plan.hops.is_empty() && plan.blockers().any(|finding| finding.id.is("V1"))
}

fn strings(value: &Value) -> Vec<&str> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

fn versions(texts: &[&str]) -> Option<Vec<KubeVersion>> {
    texts.iter().map(|text| KubeVersion::from_person(text).ok()).collect()
}

/// What the control plane goes to, in order.
fn of_servers(plan: &Plan) -> Vec<&KubeVersion> {
    plan.hops.iter().filter(|hop| !hop.steps.is_empty()).map(|hop| &hop.version).collect()
}

/// What a kubelet at `from` goes to, in order.
fn of_kubelet(plan: &Plan, from: &KubeVersion) -> Vec<KubeVersion> {
    let mut at = from.clone();
    let moving = plan.hops.iter().filter_map(|hop| {
        let moves = hop.kubelets.moves(&at, &hop.version);
        moves.then(|| at = hop.version.clone())?;
        Some(hop.version.clone())
    });
    moving.collect()
}

/// One upgrade that Cluster API plans.
struct Chained<'a> {
    case: &'a Case,
    target: &'a str,
    kubelets: Vec<&'a str>,
    /// The versions of the control plane that somebody provides, and those of the workers.
    provided: Option<[Vec<&'a str>; 2]>,
    known: Vec<&'a str>,
}

/// Plans of Cluster API and of KEP-3935.
pub fn made(case: &Case) -> Outcome {
    if case.expects("sequence") {
        return path(case);
    }
    let text = |key| case.text(key);
    let provided = case.inputs.get("providedPlan").filter(|plan| plan.is_object());
    let chained = Chained {
        case,
        target: text("desired").unwrap_or_default(),
        kubelets: ["machineDeploymentMin", "machinePoolMin"].into_iter().filter_map(text).collect(),
        provided: provided
            .map(|plan| ["controlPlanePlan", "workersPlan"].map(|key| plan.get(key).map_or(vec![], strings))),
        known: case.texts("availableVersions"),
    };
    match case.expected.get("result").and_then(Value::as_str) {
        Some("ok") => chained.goes(),
        Some("error") => chained.refused(),
        _ => Outcome::Fail("no result is expected".to_owned()),
    }
}

impl Chained<'_> {
    fn setting(&self, kubelets: &[&str], via: &[&str]) -> Result<Setting, String> {
        let upgrade = upgrade(self.target, via).map_err(|error| error.to_string())?;
        Ok(Setting::new(self.case.text("controlPlane"), kubelets, upgrade, &self.known))
    }

    /// A case that has a plan.
    fn goes(&self) -> Outcome {
        let all = self.case.expected.get("controlPlanePlan").map_or(vec![], strings);
        let servers = last_of_each_minor(&all);
        // Whoever provides a plan names its versions; the target is named anyway.
        let setting = match self.setting(&self.kubelets, &self.named(&servers)) {
            Ok(setting) => setting,
            Err(why) => return Outcome::Fail(why),
        };
        let Some(theirs) = versions(&all) else { return Outcome::Fail("unreadable versions".to_owned()) };
        let outcome = self.compare(&setting, &servers, &theirs);
        if servers == all {
            return outcome;
        }
        match outcome {
            _ if self.setting(&self.kubelets, &self.named(&all)).is_ok() => {
                Outcome::Fail("two of a minor are taken".to_owned())
            }
            Outcome::Pass => Outcome::NotOurs(TWICE),
            Outcome::NotOurs(STOPS) => Outcome::NotOurs(TWICE_AND_STOPS),
            outcome => outcome,
        }
    }

    /// Those of `servers` that a person has to name to get the plan that somebody provides: the target is named anyway.
    fn named<'b>(&self, servers: &[&'b str]) -> Vec<&'b str> {
        let named = servers.iter().filter(|version| self.provided.is_some() && **version != self.target);
        named.copied().collect()
    }

    /// Ours beside `theirs`, `servers` being what of it our control plane is to go to.
    fn compare(&self, setting: &Setting, servers: &[&str], theirs: &[KubeVersion]) -> Outcome {
        let planned = setting.planned();
        let plan = planned.plan();
        let workers = self.workers();
        let judged = setting.judge(&ordered(theirs), &workers);
        let Some(from) = self.case.text("controlPlane") else {
            return differs(CREATE, creates_nothing(&planned), &planned);
        };
        if plan.blockers().any(|finding| finding.id.code == FindingCode::NoRelease) {
            let over = judged.is_err_and(|why| why.iter().any(|why| matches!(why, Refutation::Way(_))));
            return differs(OVER, over, &planned);
        }
        if !planned.refused().is_empty() {
            return Outcome::Fail(format!("refused: {:?}", planned.refused()));
        }
        let same_release = |version: &KubeVersion| {
            from.parse().is_ok_and(|from: KubeVersion| from.satisfies(version) && from != *version)
        };
        if let [only] = theirs
            && same_release(only)
        {
            return differs(BUILDS, of_servers(plan).is_empty(), &planned);
        }
        let got: Vec<String> = of_servers(plan).into_iter().map(ToString::to_string).collect();
        if got != servers {
            return Outcome::Fail(format!("control plane: got {got:?}, expected {servers:?}"));
        }
        if let Err(why) = judged {
            return Outcome::Fail(format!("their plan is refused: {why:?}"));
        }
        self.compare_workers(&planned, &workers)
    }

    /// What their workers go to. Both of their plans are made for the oldest worker of either kind.
    fn workers(&self) -> Vec<KubeVersion> {
        let plans = ["machineDeploymentPlan", "machinePoolPlan"].into_iter();
        let plans = plans.filter_map(|key| self.case.expected.get(key));
        let longest = plans.map(strings).max_by_key(Vec::len).unwrap_or_default();
        versions(&longest).unwrap_or_default()
    }

    fn compare_workers(&self, planned: &Planned, theirs: &[KubeVersion]) -> Outcome {
        let mut fewer = false;
        for kubelet in versions(&self.kubelets).unwrap_or_default() {
            let ours = of_kubelet(planned.plan(), &kubelet);
            // A stop where it is already moves nothing.
            let theirs: Vec<KubeVersion> =
                theirs.iter().filter(|stop| !kubelet.satisfies(stop)).cloned().collect();
            if ours == theirs {
                continue;
            }
            if ours.len() >= theirs.len() || ours.last() != theirs.last() {
                return Outcome::Fail(format!("kubelet at {kubelet}: got {ours:?}, expected {theirs:?}"));
            }
            fewer = true;
        }
        // Cluster API computes a step for every third minor; only a list that somebody wrote has more.
        let listed = self.provided.as_ref().is_some_and(|[_, workers]| !workers.is_empty());
        match (fewer, listed) {
            (false, _) => Outcome::Pass,
            (true, true) => Outcome::NotOurs(STOPS),
            (true, false) => Outcome::Fail("fewer moves than Cluster API computes itself".to_owned()),
        }
    }

    /// A case that Cluster API refuses.
    fn refused(&self) -> Outcome {
        let Ok(setting) = self.setting(&self.kubelets, &[]) else { return Outcome::Pass };
        let planned = setting.planned();
        let Some([servers, workers]) = &self.provided else {
            if !planned.refused().is_empty() {
                return Outcome::Pass;
            }
            let unknown = !self.known.is_empty() && !self.known.contains(&self.target);
            return differs(LIST, unknown, &planned);
        };
        // What cannot be read is refused wherever a person writes it.
        let Some((servers, workers)) = versions(servers).zip(versions(workers)) else { return Outcome::Pass };
        let message = self.case.expected.get("message").and_then(Value::as_str).unwrap_or_default();
        if message.contains("there are no workers") {
            let idle = self.kubelets.iter().all(|kubelet| *kubelet == self.target);
            return differs(NOBODY, idle, &planned);
        }
        // Where no stops of workers are provided, Cluster API finds them: only the control plane can be wrong then.
        let kubelets: &[&str] = if workers.is_empty() { &[] } else { &self.kubelets };
        let setting = match self.setting(kubelets, &[]) {
            Ok(setting) => setting,
            Err(why) => return Outcome::Fail(why),
        };
        if let Err(why) = setting.judge(&ordered(&servers), &workers) {
            let right = why.iter().any(|why| refuted_like(why, message));
            return if right { Outcome::Pass } else { Outcome::Fail(format!("{why:?}, expected {message}")) };
        }
        let kubelets = versions(&self.kubelets).unwrap_or_default();
        let backward = |list: &[KubeVersion]| {
            list.windows(2).any(
                |pair| matches!(pair, [one, other] if one.satisfies(other) || one.minor() > other.minor()),
            )
        };
        if ordered(&servers).len() < servers.len() {
            Outcome::NotOurs(BUILDS)
        } else if message.contains("an intermediate step is required") {
            let once = kubelets.iter().all(|kubelet| of_kubelet(planned.plan(), kubelet).len() <= 1);
            differs(FAR, once && planned.refused().is_empty(), &planned)
        } else {
            differs(BACK, backward(&workers), &planned)
        }
    }
}

/// Whether our judge found what `message`, theirs, is about.
fn refuted_like(why: &Refutation, message: &str) -> bool {
    match why {
        Refutation::Way(_) | Refutation::Skew { .. } => !message.contains("must end with version"),
        Refutation::Unfinished(_) => !message.contains("expecting a version with minor"),
        _ => false,
    }
}

/// `theirs` without the stops that are no step in our order: another build of the release before.
fn ordered(theirs: &[KubeVersion]) -> Vec<KubeVersion> {
    let mut ordered: Vec<KubeVersion> = Vec::new();
    for version in theirs {
        let unordered =
            |last: &KubeVersion| last.release() == version.release() && last.progress(version).is_eq();
        if !ordered.last().is_some_and(unordered) {
            ordered.push(version.clone());
        }
    }
    ordered
}

/// The last of the versions of each minor, which are in order.
fn last_of_each_minor<'a>(texts: &[&'a str]) -> Vec<&'a str> {
    let minor = |text: &str| text.parse().map(|version: KubeVersion| version.minor()).ok();
    let last = texts.iter().zip(texts.iter().skip(1).map(Some).chain([None]));
    last.filter(|(this, next)| next.is_none_or(|next| minor(next) != minor(this)))
        .map(|(this, _)| *this)
        .collect()
}

/// A path of KEP-3935: its minors, under the policy that the case names.
fn path(case: &Case) -> Outcome {
    let skew = case.inputs.get("maxNodeSkew").and_then(Value::as_u64);
    let Some(policy) = skew.and_then(policy) else { return Outcome::Fail("no such policy".to_owned()) };
    let full = |key| case.text(key).map(|minor| format!("v{minor}.0")).unwrap_or_default();
    let (servers, nodes, target) = (full("controlPlane"), full("nodes"), full("target"));
    let Ok(upgrade) = upgrade(&target, &[]) else { return Outcome::Fail("unreadable target".to_owned()) };
    let known: Vec<String> = (0..100).map(|minor| format!("v1.{minor}.0")).skip(1).collect();
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    let planned = Setting::new(Some(&servers), &[&nodes], upgrade, &known).by(policy).planned();
    if !planned.refused().is_empty() {
        return Outcome::Fail(format!("refused: {:?}", planned.refused()));
    }
    let Ok(nodes) = nodes.parse::<KubeVersion>() else { return Outcome::Fail("unreadable".to_owned()) };
    let moved = of_kubelet(planned.plan(), &nodes);
    let mut sequence = Vec::new();
    for hop in &planned.plan().hops {
        let minor = hop.version.minor();
        sequence.extend((!hop.steps.is_empty()).then(|| format!("cp {minor}")));
        sequence.extend(moved.contains(&hop.version).then(|| format!("nodes {minor}")));
    }
    Outcome::of(&json!({"sequence": sequence}), &case.expected)
}

/// Whether the schema of our object takes `text` as a target: the `v` and the major are demanded there.
fn schema_takes(text: &str) -> bool {
    let object = serde_json::to_value(ClusterUpgrade::crd()).unwrap();
    let field =
        "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/version/x-kubernetes-validations";
    let rule = object.pointer(field).and_then(|rules| rules[0]["rule"].as_str()).unwrap();
    assert!(rule.starts_with("self.matches('^v1[.]"), "another rule: {rule}");
    text.starts_with("v1.")
}

/// Cluster API's check of a new target.
pub fn target(case: &Case) -> Outcome {
    let understood = ["from", "to", "availableVersions", "externalPlan"];
    if case
        .inputs
        .as_object()
        .is_some_and(|inputs| inputs.keys().any(|key| !understood.contains(&key.as_str())))
    {
        return Outcome::NotOurs(STATE);
    }
    let result = |taken| Outcome::of(&json!({"result": if taken { "ok" } else { "error" }}), &case.expected);
    let to = case.text("to").unwrap_or_default();
    let (true, Ok(upgrade)) = (schema_takes(to), upgrade(to, &[])) else { return result(false) };
    let known = case.texts("availableVersions");
    let wanted = case.expected.get("result").and_then(Value::as_str) == Some("ok");
    let unlisted = !known.is_empty() && !known.contains(&to);
    let from = case.text("from").filter(|from| !from.is_empty());
    let Some(from) = from else {
        if wanted {
            let planned = Setting::new(None, &[], upgrade, &known).planned();
            return differs(CREATE, creates_nothing(&planned), &planned);
        }
        // Ours is asked as if the cluster were there, one minor behind.
        let before = format!("v{}.0", upgrade.version.minor().back(1));
        let planned = Setting::new(Some(&before), &[], upgrade, &known).planned();
        return differs(LIST, unlisted && planned.refused().is_empty(), &planned);
    };
    let planned = Setting::new(Some(from), &[], upgrade.clone(), &known).planned();
    if case.flag("externalPlan") && !planned.refused().is_empty() {
        // What an external plan brings is what a person names.
        let via = (0..upgrade.version.minor().minor()).map(|minor| format!("v1.{minor}.0").parse().unwrap());
        let upgrade = evenkeel_core::upgrade::Upgrade { via: via.collect(), ..upgrade };
        return result(Setting::new(Some(from), &[], upgrade, &[]).planned().refused().is_empty());
    }
    if !wanted && unlisted && planned.refused().is_empty() {
        return Outcome::NotOurs(LIST);
    }
    result(planned.refused().is_empty())
}

/// What kubeadm finds that there is to go to.
pub fn discovery(case: &Case) -> Outcome {
    if let Some(label) = case.text("label") {
        return match KubeVersion::from_person(label) {
            Err(ParseError::Label | ParseError::Malformed) => Outcome::NotOurs(LABEL),
            other => Outcome::Fail(format!("{label} is read as {other:?}")),
        };
    }
    let Some(kubelets) = case.inputs.get("kubelets").and_then(Value::as_object) else {
        return Outcome::NotOurs(if case.expects("chosen") { STABLE } else { OFFER });
    };
    let to = case.text("target").unwrap_or_default();
    let Ok(upgrade) = upgrade(to, &[]) else { return Outcome::Fail("unreadable target".to_owned()) };
    let texts: Vec<&str> = kubelets.keys().map(String::as_str).collect();
    let planned = Setting::new(Some(to), &texts, upgrade, &[]).planned();
    let moves = |text: &&str| text.parse().is_ok_and(|from| !of_kubelet(planned.plan(), &from).is_empty());
    Outcome::of(&json!({"available": texts.iter().any(moves)}), &case.expected)
}

/// What Cluster API's control plane waits for between its steps.
pub fn gate(case: &Case) -> Outcome {
    let machines = case.inputs.get("certificates").is_some();
    Outcome::NotOurs(if machines { MACHINES } else { TWO_OBJECTS })
}
