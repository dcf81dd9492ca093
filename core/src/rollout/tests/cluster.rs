//! An upgrade of a toy cluster, a second a tick: it carries out the machine's writes, moves pods, computes budgets and
//! upgrades what the machine gives to an executor. After every write it checks the invariants of docs/architecture.md.

mod checks;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use jiff::SignedDuration;

use super::super::*;
use crate::cluster::{Component, Instance, Leader, Owner, Pod, Reach, Selector, Traits};
use crate::drain::DrainOptions;
use crate::fixture::{at, cluster, pod, releases};
use crate::rollout;
use crate::rollout::Freshness;
use crate::toy::ToyCluster;
use crate::upgrade::{AbsentExecutor, Amount, ApprovalMode, Executor, NodeGroup, Progress, Unit, Upgrade};
use crate::version::{KubeVersion, Observed, Unknown};

/// What an executor does that moves the control plane of a node: the components one after the other, each away for two
/// seconds and then ready a second later; it says that it is complete two seconds after the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Good,
    /// It fails after so many components.
    Fails(usize),
    /// It goes on no further after so many components, and says nothing.
    Hangs(usize),
    /// It says that it is complete after so many components, and goes on.
    SaysEarly(usize),
    /// It moves everything, and fails then.
    FailsLast,
    /// It moves everything, and says nothing.
    HangsLast,
}

pub(super) struct Toy {
    pub(super) cluster: ToyCluster,
    pub(super) claims: Vec<Claim>,
    pub(super) upgrade: Upgrade,
    pub(super) progress: Progress,
    pub(super) unreadable: Vec<UnreadableClaim>,
    pub(super) hidden: Vec<(Component, String)>,
    pub(super) absent_executors: Vec<AbsentExecutor>,
    pub(super) refusals: RefusedWrites,
    /// The server refuses writes that begin so.
    pub(super) denied: Option<&'static str>,
    pub(super) freshness: Freshness,
    /// Who leads, where the watch tells late of it.
    pub(super) leaders: Option<Vec<Leader>>,
    pub(super) jobs: Jobs,
    pub(super) gates: Gates,
    /// What the objects of gates are like.
    pub(super) gate: GateFound,
    /// How often they were read.
    pub(super) gate_reads: usize,
    pub(super) log: Vec<String>,
    pub(super) evictions: usize,
    pub(super) refused: usize,
    pub(super) max_in_flight: usize,
    /// The process dies after this many writes: what it remembers is gone.
    pub(super) crash_after: Option<usize>,
    /// The server takes no Job, for this reason.
    pub(super) refuses: Option<String>,
    /// How often it was asked about a Job.
    pub(super) tries: usize,
    /// How many seconds an evicted pod takes to go.
    pub(super) lingers: i64,
    /// How often the kube-apiservers were asked afresh.
    pub(super) asked: usize,
    /// Pods that are not ready stay so.
    pub(super) stays_unready: bool,
    /// Replicas of each workload that are not there and may come.
    pub(super) absent: i32,
    /// The executor never manages this node.
    pub(super) broken: Option<String>,
    /// In which version a component comes that is to go to another one.
    pub(super) comes_as: fn(Component, &KubeVersion) -> KubeVersion,
    /// The Jobs that move kubelets never end.
    pub(super) goes_on: bool,
    /// Jobs get no pods.
    pub(super) podless: bool,
    /// What executors do that move the control plane of a node as a whole.
    pub(super) way: Way,
    /// Components that are away while they are replaced.
    pub(super) away: Vec<Instance>,
    /// The server lets us delete no pod, for this reason.
    pub(super) keeps_pods: Option<String>,
    pub(super) deleted: usize,
    pub(super) memory: Memory,
    pub(super) seconds: i64,
    limit: usize,
    pub(super) desired: BTreeMap<String, i32>,
    pub(super) made: usize,
}

impl UpgradeStatus {
    /// What the upgrade waits for, in words.
    pub(super) fn lines(&self) -> Vec<String> {
        self.waits.iter().map(|waiting| waiting.line.clone()).collect()
    }
}

impl Toy {
    pub(super) fn new(nodes: usize, max_unavailable: usize) -> Self {
        let kubelets = vec!["v1.36.4"; nodes];
        let external = Executor::External { deadline: SignedDuration::from_secs(60) };
        let upgrade = Upgrade {
            name: "up".into(),
            uid: "uid-up".into(),
            mode: ApprovalMode::Automatic,
            groups: vec![NodeGroup {
                max_unavailable: Amount::Count(max_unavailable),
                ..NodeGroup::new("all", Selector::default(), "external")
            }],
            drain: DrainOptions::new(SignedDuration::from_secs(40)),
            executors: [("external".into(), external)].into(),
            ..Upgrade::to("v1.37.1".parse().unwrap())
        };
        Self {
            cluster: ToyCluster(cluster(&["v1.36.4", "v1.36.4"], "v1.36.4", &kubelets)),
            claims: Vec::new(),
            upgrade,
            progress: Progress { protected: true, ..Progress::default() },
            unreadable: Vec::new(),
            hidden: Vec::new(),
            absent_executors: Vec::new(),
            refusals: RefusedWrites::default(),
            denied: None,
            leaders: None,
            freshness: Freshness::default(),
            jobs: Jobs::default(),
            gates: Gates::default(),
            gate: GateFound::NoObject,
            gate_reads: 0,
            log: Vec::new(),
            evictions: 0,
            refused: 0,
            max_in_flight: 0,
            crash_after: None,
            broken: None,
            comes_as: |_, asked| asked.clone(),
            goes_on: false,
            podless: false,
            keeps_pods: None,
            deleted: 0,
            refuses: None,
            tries: 0,
            lingers: 2,
            asked: 0,
            stays_unready: false,
            absent: 0,
            way: Way::Good,
            away: Vec::new(),
            memory: Memory::default(),
            seconds: 0,
            limit: max_unavailable,
            desired: BTreeMap::new(),
            made: 0,
        }
    }

    /// `replicas` pods over the nodes, of which a budget wants `desired` healthy.
    pub(super) fn deploy(&mut self, app: &str, replicas: usize, desired: i32) {
        for i in 0..replicas {
            let nodes = self.cluster.nodes();
            let node = nodes[i % nodes.len()].name.clone();
            self.cluster.set_pod(pod(app, i, &node));
        }
        self.desired.insert(app.to_owned(), desired);
        self.cluster.set_budget(crate::fixture::budget(app, 0, 0, desired));
        self.settle_budgets();
    }

    /// So many nodes may be out at once.
    pub(super) fn allow(&mut self, limit: usize) {
        self.limit = limit;
    }

    pub(super) fn pods_of(&self, app: &str) -> Vec<&Pod> {
        self.cluster.pods().filter(|p| p.labels.get("app").is_some_and(|a| a == app)).collect()
    }

    pub(super) fn world(&self) -> World<'_> {
        World {
            cluster: &self.cluster,
            claims: &self.claims,
            unreadable: &self.unreadable,
            jobs: &self.jobs,
            gates: &self.gates,
            hidden: &self.hidden,
            absent_executors: &self.absent_executors,
            refused: &self.refusals,
            freshness: &self.freshness,
            memory: &self.memory,
            executors: "executors",
            now: at(self.seconds),
        }
    }

    /// The plan from here.
    pub(super) fn planned(&self) -> crate::plan::Planned {
        rollout::planned(&self.upgrade, &self.progress, self.world(), releases())
    }

    /// What the plan from here has decided.
    pub(super) fn decided(&self) -> Decision {
        decide(&self.planned(), &self.upgrade, &self.progress, self.world())
    }

    pub(super) fn status(&self) -> UpgradeStatus {
        self.decided().status
    }

    pub(super) fn phase(&self) -> rollout::UpgradePhase {
        self.status().phase
    }

    pub(super) fn log_head(&self, lines: usize) -> String {
        self.log.iter().filter(|l| !l.starts_with("Evict")).take(lines).fold(
            String::new(),
            |mut text, line| {
                writeln!(text, "{line}").unwrap();
                text
            },
        )
    }

    /// How many kubelets' claims are at `state`.
    pub(super) fn kubelets(&self, state: &str) -> usize {
        let kubelets = self.claims.iter().filter(|c| c.subject.component == Component::Kubelet);
        kubelets.filter(|c| c.state.name() == state).count()
    }

    pub(super) fn kubelets_in_flight(&self) -> usize {
        ["Claimed", "Draining", "Upgrading"].iter().map(|state| self.kubelets(state)).sum()
    }

    /// Ticks until nothing has been written and nothing moved for a while, or `limit` seconds.
    pub(super) fn run_to_the_end(&mut self, limit: usize) {
        let mut quiet = 0;
        for _ in 0..limit {
            let before = self.log.len();
            self.tick();
            quiet = if self.log.len() == before { quiet + 1 } else { 0 };
            let status = self.status();
            if status.phase == rollout::UpgradePhase::Completed || quiet > 100 {
                break;
            }
        }
    }

    pub(super) fn run_until(&mut self, limit: usize, done: impl Fn(&Self) -> bool) {
        for _ in 0..limit {
            if done(self) {
                return;
            }
            self.tick();
        }
        panic!("not reached in {limit} s:\n{}", self.log.join("\n"));
    }

    /// Time passes and nothing happens.
    pub(super) fn pass(&mut self, seconds: i64) {
        self.seconds += seconds;
    }

    /// One second: decide, write, let the cluster go on.
    pub(super) fn tick(&mut self) {
        self.seconds += 1;
        let decision = self.look();
        self.freshness.absences.see(decision.status.away.clone(), at(self.seconds));
        let blocked = (!decision.status.preflight.is_empty()).then(|| self.upgrade.uid.clone());
        self.freshness.blocked.see(blocked, at(self.seconds));
        self.freshness.undrainable.see(decision.status.undrainable.clone(), at(self.seconds));
        let UpgradeStatus { from, started, seen, hidden, lasting, way, hop, soaks, .. } = decision.status;
        let before = self.progress.clone();
        self.progress = Progress { from, started, seen, hidden, lasting, soaks, via: way, hop, ..before };
        self.refusals.forget(&self.claims, at(self.seconds));
        for action in decision.actions {
            let denied =
                |write: &Write| self.denied.is_some_and(|denied| write.to_string().starts_with(denied));
            if let Some(write) = action.write("up").filter(denied) {
                self.log.push(format!("Refused {write}"));
                self.refusals.refused(write, "no".to_owned(), at(self.seconds));
                continue;
            }
            self.apply(action);
            self.check();
            if self.crash_after == Some(self.log.len()) {
                self.memory = Memory::default();
                break;
            }
        }
        self.executors();
        self.workloads();
        self.settle_budgets();
        self.forget_seen();
    }

    fn claim(&mut self, name: String, subject: Subject) {
        assert!(self.claims.iter().all(|c| *c.name != *name), "{name} exists");
        self.log.push(format!("Claim {name}"));
        self.made += 1;
        self.claims.push(Claim {
            uid: format!("uid-{}", self.made).into(),
            name: name.into(),
            resource_version: "1".into(),
            created: Some(at(self.seconds)),
            upgrade: "up".into(),
            upgrade_uid: "uid-up".into(),
            ending: false,
            finalizers: Vec::new(),
            subject,
            state: ClaimState::Claimed,
            attempt: 1,
            message: String::new(),
            blockers: Vec::new(),
        });
    }

    fn apply(&mut self, action: Action) {
        match action {
            Action::Claim { name, subject } => self.claim(name, subject),
            Action::ReadGate { object } => {
                self.gate_reads += 1;
                self.gates.was_read(object, self.gate.clone(), at(self.seconds));
            }
            Action::Cordon { node, mark } => {
                assert!(self.claims.iter().any(|c| c.mark() == mark), "the claim comes first");
                self.log.push(format!("Cordon {}", node.name));
                self.cluster.cordon(&node, &mark);
            }
            Action::Uncordon { node, mark, taints } => {
                self.log.push(format!("Uncordon {}", node.name));
                self.cluster.uncordon(&node, &mark);
                if let Some(taints) = taints {
                    self.taint(&node.name, &taints);
                }
            }
            Action::Taint { node, taints } => {
                self.taint(&node.name, &taints);
                let on = self.cluster.node(&node.name).unwrap().outdated_for.is_some();
                self.log.push(format!("{} {}", if on { "Taint" } else { "Untaint" }, node.name));
            }
            Action::Evict(permit) => self.evict(&permit),
            Action::Delete(forced) => self.force(&forced),
            Action::Record { claim, state, attempt, message, blockers, drained, .. } => {
                self.log.push(format!("Record {claim} {}", state.name()));
                if let Some(drained) = drained {
                    self.is_drained(&drained);
                }
                let live = self.claims.iter_mut().find(|c| c.name == claim).unwrap();
                (live.state, live.attempt, live.message, live.blockers) = (state, attempt, message, blockers);
            }
            Action::Release { claim, .. } => {
                self.log.push(format!("Release {claim}"));
                self.claims.retain(|c| c.name != claim);
            }
            Action::HandOver { node } => {
                self.log.push(format!("HandOver {}", node.name));
                self.cluster.change_node(&node.name, |live| {
                    (live.cordoned_by, live.unschedulable) = (None, true);
                });
            }
            Action::AskApiservers | Action::ReadAttachments | Action::ReadLeases | Action::Reread { .. } => {
                self.read(action);
            }
            Action::Protect => self.progress.protected = true,
            Action::Unprotect => {
                self.log.push("Unprotect".to_owned());
                self.progress.protected = false;
            }
            Action::TryJob { executor, .. } => {
                let Some(Executor::Job { template, .. }) = self.upgrade.executors.get(&executor) else {
                    unreachable!("{executor} has no Job")
                };
                self.tries += 1;
                let refused = self.refuses.clone();
                let template = template.clone();
                self.jobs.was_tried(executor, template, refused, at(self.seconds));
            }
            Action::StartJob { uid, attempt, claim, .. } => {
                self.log.push(format!("StartJob {claim}"));
                match &self.refuses {
                    Some(why) => self.jobs.was_refused(uid, why.clone(), at(self.seconds)),
                    None => _ = self.jobs.made.insert((uid, attempt), JobState::Running),
                }
            }
            Action::ReleaseOrphan { .. } => unreachable!("no claim of the toy vanishes"),
        }
    }

    fn read(&mut self, action: Action) {
        let now = at(self.seconds);
        match action {
            Action::AskApiservers => {
                self.asked += 1;
                self.cluster.change_instances(|instance| instance.probed = instance.probed.map(|_| now));
            }
            Action::ReadAttachments => {
                self.log.push("ReadAttachments".to_owned());
                self.freshness.attachments = now;
            }
            Action::ReadLeases => {
                let leaders = self.leaders.as_deref().unwrap_or(self.cluster.leaders());
                self.freshness.renewals.were_read(leaders, now);
            }
            Action::Reread { node, job } => {
                self.log.push(format!("Reread {node}"));
                self.freshness.reread_jobs.extend(job.map(|(claim, _)| (claim, now)));
                self.freshness.reread.insert(node, now);
            }
            _ => unreachable!("{action:?} is a write"),
        }
    }

    /// Every Job that runs has a pod.
    fn job_pods(&mut self) {
        self.cluster.retain_pods(|pod| !pod.name.starts_with("of-job"));
        let claims = self.claims.iter().filter(|claim| {
            let job = self.jobs.made.get(&(claim.uid.clone(), claim.attempt));
            job == Some(&JobState::Running) && !self.podless
        });
        let pods: Vec<Pod> = claims
            .map(|claim| {
                let traits = Traits { executor_of: Some(claim.uid.clone()), ..Traits::default() };
                let (api_version, kind, name) = ("batch/v1".into(), "Job".into(), claim.uid.clone());
                Pod {
                    namespace: "executors".into(),
                    name: format!("of-job-{}", claim.uid).into(),
                    uid: format!("of-job-{}", claim.uid).into(),
                    owner: Some(Arc::new(Owner { api_version, kind, uid: name.clone(), name })),
                    special: Some(Arc::new(traits)),
                    ..pod("of-job", 0, &claim.subject.node)
                }
            })
            .collect();
        for pod in pods {
            self.cluster.set_pod(pod);
        }
    }

    /// What an executor is given for two seconds, it has done.
    fn executors(&mut self) {
        self.job_pods();
        let now = at(self.seconds);
        for claim in self.claims.clone() {
            let ClaimState::Upgrading { since, .. } = claim.state else { continue };
            if claim.subject.is_of_plane() {
                self.work_on_plane(&claim, now.duration_since(since).as_secs());
                continue;
            }
            let due = now.duration_since(since).as_secs() >= 2;
            if !due || self.broken.as_deref() == Some(&*claim.subject.node) {
                continue;
            }
            let job = self.jobs.made.get_mut(&(claim.uid.clone(), claim.attempt));
            if let Some(job) = job.filter(|job| **job == JobState::Running && !self.goes_on) {
                *job = JobState::Complete;
            }
            let version = Observed::Known((self.comes_as)(claim.subject.component, &claim.subject.to));
            if claim.subject.component == Component::Kubelet {
                let done = |i: &Instance| {
                    let deployed = i.component == Component::CloudControllerManager && i.reach == Reach::Any;
                    let goes_by_itself = deployed && self.upgrade.control_plane.unit == Unit::Node
                        || matches!(i.version, Observed::Unknown(Unknown::OwnNumber(_)));
                    goes_by_itself || i.version.minor() >= version.minor()
                };
                assert!(
                    self.cluster.instances().iter().all(done),
                    "kubelet work before the control plane is done"
                );
                self.cluster.change_node(&claim.subject.node, |node| {
                    (node.kubelet, node.ready, node.heartbeat) = (version, true, Some(now));
                });
            } else {
                let of = &claim.subject;
                self.cluster.change_instances(|instance| {
                    if instance.component == of.component && instance.node.as_ref() == Some(&of.node) {
                        instance.version = version.clone();
                        instance.incarnation = format!("{}-new", of.node).into();
                    }
                });
            }
        }
    }

    fn forget_seen(&mut self) {
        let live: Vec<_> =
            self.cluster.pods().filter(|p| p.deleting().is_none()).map(|p| p.uid.clone()).collect();
        let refuses = self.keeps_pods.is_some();
        self.memory
            .pods
            .retain(|uid, of| live.contains(uid) && (refuses || !matches!(of, PodMemory::NotDeleted { .. })));
    }
}
