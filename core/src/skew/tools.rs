//! What other programs refuse, as data where their rules are rules about skew.
//!
//! Who lets kubeadm, Cluster API or OpenShift change the versions meets their checks as well as the policy's. Here
//! belong those checks, over the same versions and by the same judgement, each with a [`Policy`] that names the limits;
//! nothing here changes what Evenkeel itself allows. The invariant: a check says what that program would, also where
//! that is laxer or stricter than the policy.

use super::policy::{Judgement, Policy, Rule, RuleSubject, Servers, rule};
use crate::cluster::Component;
use crate::version::{Comparison, Effective, KubeVersion, Minor};

const KUBELET: RuleSubject = RuleSubject::Component(Component::Kubelet);

macro_rules! kubelets {
    ($id:literal, $older:literal, $source:literal) => {{
        static RULES: [Rule; 1] = [rule($id, KUBELET, $older, $source)];
        &RULES
    }};
}

/// kubeadm 1.29 and later: kubelets three behind its target, whatever their version.
pub static KUBEADM: Policy =
    Policy::named("kubeadm", kubelets!("kubeadm", 3, "kubeadm, MaximumAllowedMinorVersionKubeletSkew"));

/// kubeadm until 1.28: kubelets one behind its target.
pub static KUBEADM_UNTIL_1_28: Policy = Policy::named(
    "kubeadm-1.28",
    kubelets!("kubeadm", 1, "kubeadm until 1.28, MaximumAllowedMinorVersionKubeletSkew"),
);

/// Cluster API: workers three behind the control plane, whatever their version.
pub static CLUSTER_API: Policy =
    Policy::named("cluster-api", kubelets!("capi", 3, "Cluster API, MachineSet preflight checks"));

/// Cluster API where kubeadm joins the workers: the control plane's minor only.
pub static CLUSTER_API_KUBEADM: Policy =
    Policy::named("cluster-api-kubeadm", kubelets!("capi", 0, "Cluster API, MachineSet preflight checks"));

/// What `openshift` (its own version, not Kubernetes') allows kubelets: of 4.y one or two behind by y mod 2, of 5.y one
/// to three by y mod 3, so that its long-term releases can be reached without the nodes in between.
/// Source: cluster-kube-apiserver-operator, `KubeletVersionSkewController`.
pub fn openshift(openshift: Minor) -> Policy {
    let source = match (openshift.major(), openshift.minor() % 2, openshift.minor() % 3) {
        (..=4, 0, _) | (5.., _, 1) => kubelets!("openshift", 2, "OpenShift, kubelets two minors behind"),
        (5.., _, 2) => kubelets!("openshift", 3, "OpenShift, kubelets three minors behind"),
        _ => kubelets!("openshift", 1, "OpenShift, kubelets one minor behind"),
    };
    Policy::named("openshift", source)
}

impl Policy {
    /// How many minors behind this policy lets a kubelet of that minor be.
    pub fn kubelets_behind(&self, kubelet: Minor) -> Option<u16> {
        Some(self.rule(KUBELET, kubelet)?.max_older)
    }

    fn kubelet(&self, kubelet: Minor, server: Minor) -> Judgement {
        self.judge(KUBELET, kubelet.into(), Servers::from(Effective::plain(server))).1
    }
}

/// What OpenShift says of an upgrade to its next minor: the status and the reason of `KubeletMinorVersionUpgradeable`.
/// A version that cannot be read is `None`.
pub fn openshift_upgradeable(
    ours: Minor,
    server: Minor,
    kubelets: &[Option<Minor>],
) -> (&'static str, &'static str) {
    let (now, next) = (openshift(ours), openshift(ours.next()));
    let known = || kubelets.iter().flatten();
    let is = |wanted: fn(Judgement) -> bool, policy: &Policy, server: Minor| {
        known().any(|kubelet| wanted(policy.kubelet(*kubelet, server)))
    };
    let too_old = |judgement| matches!(judgement, Judgement::TooOld { .. });
    let too_new = |judgement| matches!(judgement, Judgement::TooNew { .. });
    if is(too_old, &now, server) {
        ("False", "KubeletMinorVersionUnsupported")
    } else if is(too_new, &now, server) {
        ("Unknown", "KubeletMinorVersionAhead")
    } else if kubelets.iter().any(Option::is_none) {
        ("Unknown", "KubeletVersionUnknown")
    } else if known().any(|kubelet| *kubelet != server && too_old(next.kubelet(*kubelet, server.next()))) {
        ("False", "KubeletMinorVersionUnsupportedNextUpgrade")
    } else if known().any(|kubelet| *kubelet != server) {
        ("True", "KubeletMinorVersionSupportedNextUpgrade")
    } else {
        ("True", "KubeletMinorVersionsSynced")
    }
}

/// Which unstable targets kubeadm was told to take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unstable {
    /// None.
    #[default]
    Refused,
    /// `--allow-release-candidate-upgrades`.
    Candidates,
    /// `--allow-experimental-upgrades`.
    All,
}

/// Why `kubeadm upgrade apply` would stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// `--force` goes over it.
    pub skippable: bool,
    /// What it is.
    pub why: &'static str,
}

/// What `kubeadm upgrade apply <target>` says before it begins, of these versions. Majors take no part in it.
/// Source: kubeadm `phases/upgrade/policy.go`, `EnforceVersionPolicies`. Its floor of one minor below itself is left
/// out: that minor is far below any target that is one above a cluster it manages.
pub fn kubeadm_upgrade(
    policy: &Policy,
    [cluster, kubeadm, target]: [&KubeVersion; 3],
    kubelets: &[KubeVersion],
    unstable: Unstable,
) -> Vec<Refusal> {
    let [from, own, to] = [cluster, kubeadm, target].map(|version| version.minor().minor());
    let pre_release = target.pre_release();
    let mut refusals = Vec::new();
    let mut refuse = |when: bool, skippable: bool, why: &'static str| {
        if when {
            refusals.push(Refusal { skippable, why });
        }
    };
    let unreleased = !pre_release.is_empty();
    refuse(to > from.saturating_add(1), unreleased, "the target skips a minor");
    refuse(to.saturating_add(1) < from, unreleased, "the target is more than one minor down");
    if kubeadm.compare(target) == Comparison::Less {
        let minor = to > own;
        refuse(true, unreleased || !minor, "kubeadm is older than the target");
    }
    refuse(own > to, true, "kubeadm is of a newer minor than the target");
    let taken = match unstable {
        Unstable::Refused => false,
        Unstable::Candidates => pre_release.starts_with("rc"),
        Unstable::All => true,
    };
    refuse(unreleased && !taken, true, "the target is unstable");
    let too_old = |kubelet: &KubeVersion| {
        matches!(policy.kubelet(kubelet.minor(), target.minor()), Judgement::TooOld { .. })
    };
    refuse(kubelets.iter().any(too_old), true, "a kubelet would be too old");
    refusals
}

/// Whether `kubeadm join` takes a kubelet: not below its floor, and not of a newer minor than the control plane, where
/// that is known. Source: kubeadm `preflight/checks.go`, `KubeletVersionCheck`.
pub fn kubeadm_takes_kubelet(
    kubelet: &KubeVersion,
    control_plane: Option<&KubeVersion>,
    floor: &KubeVersion,
) -> bool {
    kubelet.compare(floor) != Comparison::Less
        && control_plane.is_none_or(|server| kubelet.minor() <= server.minor())
}

/// A worker that Cluster API is asked to make.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Worker {
    /// The version its MachineSet asks for.
    pub version: Option<KubeVersion>,
    /// The control plane's `spec.version`.
    pub control_plane: Option<KubeVersion>,
    /// The control plane is being made, or on its way to another version.
    pub control_plane_moves: bool,
    /// kubeadm joins it.
    pub kubeadm: bool,
    /// A topology manages its cluster.
    pub managed: bool,
    /// The checks that its annotation skips.
    pub skip: Vec<String>,
}

/// The check that holds the creation of `worker`, if one does.
/// Source: Cluster API, `machineset_preflight.go`.
pub fn cluster_api_holds(worker: &Worker) -> Option<&'static str> {
    let runs = |check: &str| !worker.skip.iter().any(|skipped| skipped == check || skipped == "All");
    let server = worker.control_plane.as_ref()?;
    if worker.control_plane_moves && runs("ControlPlaneIsStable") {
        return Some("ControlPlaneIsStable");
    }
    let version = worker.version.as_ref()?;
    let outside = |policy: &Policy| {
        !matches!(policy.kubelet(version.minor(), server.minor()), Judgement::Within { .. })
    };
    let checks = [
        ("KubernetesVersionSkew", outside(&CLUSTER_API)),
        ("KubeadmVersionSkew", worker.kubeadm && outside(&CLUSTER_API_KUBEADM)),
        ("ControlPlaneVersionSkew", worker.managed && version != server),
    ];
    checks.into_iter().find(|(check, holds)| *holds && runs(check)).map(|(check, _)| check)
}
