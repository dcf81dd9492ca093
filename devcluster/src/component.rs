//! One control-plane component on one node: a static pod with a real process behind it.
//!
//! Belongs here: what a kubelet does for a static pod (start, restart after a crash, replace, report). Never
//! here: flags (see `role`) and what the mirror pod looks like (see `static_pods`). Invariants: one operation at
//! a time per component; a process that should run and does not is started again; after the cluster is closing,
//! none is started.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use kube::Client;

use crate::assets::Assets;
use crate::clients;
use crate::error::{Error, Result};
use crate::process::{Invocation, Process};
use crate::release::Release;
use crate::role::{Files, Role};
use crate::static_pods::{self, Seen, node_name, pod_name};
use crate::wait::wait_for;

/// How long a component may take until it is ready: generous, for busy machines.
const READY_WITHIN: Duration = Duration::from_secs(90);

/// How long a component may take to end itself; the kubelet's default grace period.
const STOP_WITHIN: Duration = Duration::from_secs(30);

/// What all components of a cluster share.
pub(crate) struct Shared {
    pub(crate) assets: Assets,
    pub(crate) files: Files,
    /// The stand-in for kubelets, through the balancer.
    pub(crate) client: Client,
    /// Its kubeconfig, for clients that go to one component.
    pub(crate) kubeconfig: PathBuf,
    pub(crate) extra_args: Vec<(Role, String)>,
    /// Set when the cluster is being dropped.
    pub(crate) closing: AtomicBool,
}

pub(crate) struct Component {
    pub(crate) role: Role,
    pub(crate) index: usize,
    shared: Arc<Shared>,
    /// Asks this component, at its own address, whether it works.
    probe: Client,
    /// Shared with the balancer.
    healthy: Arc<AtomicBool>,
    /// Held for the moment of a signal only, so that dropping a cluster never waits for an operation.
    process: Mutex<Option<Process>>,
    state: tokio::sync::Mutex<ComponentState>,
}

struct ComponentState {
    release: Release,
    /// Should it run? What `stop` and `start` set.
    wanted: bool,
    restarts: u32,
    started: Timestamp,
    /// What the mirror pod says.
    published: Option<Seen>,
}

impl Component {
    pub(crate) async fn new(role: Role, index: usize, release: Release, shared: Arc<Shared>) -> Result<Self> {
        let url = format!("https://{}", role.address(index));
        let probe = clients::probe(&shared.kubeconfig, &url).await?;
        Ok(Self {
            role,
            index,
            shared,
            probe,
            healthy: Arc::new(AtomicBool::new(false)),
            process: Mutex::new(None),
            state: tokio::sync::Mutex::new(ComponentState {
                release,
                wanted: true,
                restarts: 0,
                started: Timestamp::now(),
                published: None,
            }),
        })
    }

    pub(crate) fn name(&self) -> String {
        pod_name(self.role, self.index)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.role.address(self.index)
    }

    pub(crate) fn health(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.healthy)
    }

    pub(crate) fn is_healthy(&self) -> bool {
        self.healthy.load(Ordering::Relaxed)
    }

    pub(crate) async fn release(&self) -> Release {
        self.state.lock().await.release
    }

    pub(crate) fn process_id(&self) -> Option<u32> {
        self.process().as_ref().map(Process::id)
    }

    /// The process, without waiting until it is ready.
    pub(crate) async fn launch(&self) -> Result<()> {
        let mut state = self.state.lock().await;
        self.spawn(&mut state)
    }

    /// Waits until a launched component is ready.
    pub(crate) async fn ready(&self) -> Result<()> {
        let what = format!("{} to be ready", self.name());
        let waited = wait_for(&what, READY_WITHIN, async || {
            if let Some(status) = self.process().as_mut().and_then(Process::ended) {
                // A dead process will not become ready: fail at once, with its own words.
                return Ok(Err(format!("ended ({status}) before it was ready")));
            }
            self.check().await.map(Ok)
        })
        .await;
        match waited {
            Ok(Ok(())) => Ok(()),
            Ok(Err(what)) => Err(self.failed(what)),
            Err(timeout) => Err(self.failed(timeout.to_string())),
        }
    }

    /// Replaces the binary by that of another release (or the same one), as a changed static pod manifest does.
    pub(crate) async fn swap(&self, release: Release) -> Result<()> {
        self.shared.assets.require(&[self.role.binary(release)])?;
        let mut state = self.state.lock().await;
        self.end(STOP_WITHIN).await?;
        state.release = release;
        state.wanted = true;
        state.restarts = 0;
        self.spawn(&mut state)?;
        // Through another apiserver, if there is one; otherwise this is made up for below.
        let _early = self.publish(&mut state, false).await;
        self.ready().await?;
        self.publish_until_done(&mut state, true).await
    }

    pub(crate) async fn start(&self) -> Result<()> {
        let mut state = self.state.lock().await;
        state.wanted = true;
        if self.process_id().is_none() {
            self.spawn(&mut state)?;
        }
        self.ready().await?;
        self.publish_until_done(&mut state, true).await
    }

    pub(crate) async fn stop(&self) -> Result<()> {
        let mut state = self.state.lock().await;
        state.wanted = false;
        self.end(STOP_WITHIN).await?;
        // With the last apiserver stopped there is nobody to tell; the mirror pod is put right when one is back.
        let _told = self.publish(&mut state, false).await;
        Ok(())
    }

    /// SIGKILL. The supervisor starts it again, as a kubelet would.
    pub(crate) async fn kill(&self) {
        let _state = self.state.lock().await;
        self.healthy.store(false, Ordering::Relaxed);
        let killed = self.process().take();
        drop(killed);
    }

    pub(crate) async fn set_paused(&self, paused: bool) -> Result<()> {
        // Whoever has the state may be waiting for an answer of this very process: waking it must not wait for them.
        let _state = if paused { Some(self.state.lock().await) } else { None };
        match self.process().as_mut() {
            Some(process) if paused => process.pause(),
            Some(process) => process.resume(),
            None => Err(Error::Usage(format!("{} is not running", self.name()))),
        }
    }

    /// What a kubelet does all the time: probe, restart what died, and keep the mirror pod true.
    pub(crate) async fn supervise(&self) {
        for round in 0_u32.. {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let Ok(mut state) = self.state.try_lock() else {
                // An operation is under way and looks after everything itself.
                continue;
            };
            let _probed = self.check().await;
            let ended = self.process().as_mut().is_none_or(|p| p.ended().is_some());
            if ended && state.wanted {
                state.restarts += 1;
                // What keeps it from starting is in its log; the next round tries again.
                let _started = self.spawn(&mut state);
            }
            if round % 3 == 0 && static_pods::is_gone(&self.shared.client, self.role, self.index).await {
                state.published = None;
            }
            let _told = self.publish(&mut state, self.is_healthy()).await;
        }
    }

    /// Forces the mirror pod to be written for the first time.
    pub(crate) async fn announce(&self) -> Result<()> {
        let mut state = self.state.lock().await;
        self.publish_until_done(&mut state, self.is_healthy()).await
    }

    /// Kills the process without asking anybody; for the end of the cluster.
    pub(crate) fn destroy(&self) {
        let process = self.process().take();
        drop(process);
    }

    async fn check(&self) -> std::result::Result<(), String> {
        let answer = clients::get(&self.probe, self.role.health_path()).await;
        self.healthy.store(answer.is_ok(), Ordering::Relaxed);
        answer.map(|_| ())
    }

    fn spawn(&self, state: &mut ComponentState) -> Result<()> {
        let files = &self.shared.files;
        let extra: Vec<_> =
            self.shared.extra_args.iter().filter(|(r, _)| *r == self.role).map(|(_, a)| a.clone()).collect();
        let invocation = Invocation {
            program: self.shared.assets.path(self.role.binary(state.release))?,
            args: self.role.args(self.index, files, &extra),
            // Identity leases and leader election are named after the host.
            hostname: Some(node_name(self.index)),
            log: files.log(&self.name()),
        };
        let mut slot = self.process();
        if self.shared.closing.load(Ordering::SeqCst) {
            return Err(Error::Usage(format!("{} is not started: the cluster is closing", self.name())));
        }
        *slot = Some(Process::start(&invocation)?);
        state.started = Timestamp::now();
        Ok(())
    }

    async fn end(&self, grace: Duration) -> Result<()> {
        self.healthy.store(false, Ordering::Relaxed);
        let process = self.process().take();
        match process {
            Some(process) => process.stop(grace).await,
            None => Ok(()),
        }
    }

    async fn publish(&self, state: &mut ComponentState, ready: bool) -> Result<()> {
        let seen = Seen { release: state.release, ready, restarts: state.restarts, started: state.started };
        if state.published.as_ref() == Some(&seen) {
            return Ok(());
        }
        let client = &self.shared.client;
        static_pods::publish(client, self.role, self.index, state.published.as_ref(), &seen).await?;
        state.published = Some(seen);
        Ok(())
    }

    /// Publishes through whatever hiccup the API has while apiservers come and go.
    async fn publish_until_done(&self, state: &mut ComponentState, ready: bool) -> Result<()> {
        let what = format!("the mirror pod of {} to be written", self.name());
        wait_for(&what, Duration::from_secs(30), async || {
            self.publish(state, ready).await.map_err(|e| e.to_string())
        })
        .await
    }

    fn failed(&self, what: String) -> Error {
        let tail = self.process().as_ref().map(Process::log_tail).unwrap_or_default();
        Error::Component { name: self.name(), what, tail }
    }

    fn process(&self) -> MutexGuard<'_, Option<Process>> {
        // A panic of a test must not keep the process from being killed.
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
