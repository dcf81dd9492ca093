//! The process that keeps a cluster of real nodes, outside of its namespaces.
//!
//! Belongs here: what has to be done on the machine itself, before and after. Never here: the cluster. Invariant: when
//! this process ends by itself, the cluster's processes are dead and its cgroups are gone; whoever kills it leaves empty
//! cgroups, which the next `up` or `down` of that name removes.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::real::cgroups::Cgroups;
use crate::real::cluster::RealPlan;
use crate::real::machine;
use crate::{namespace, session::Session};

/// The environment variable with the number of a process with which the cluster ends: a test that somebody interrupts takes its
/// cluster along. Without it a cluster lasts until `down`.
pub const OWNER: &str = "DEVCLUSTER_OWNER";
/// So often the owner is looked for.
const LOOK: Duration = Duration::from_millis(500);

/// Runs this program again with `args` in namespaces of its own, waits for its end, and removes what outlives those.
pub fn keep(session: &Session, args: &[OsString]) -> Result<ExitCode> {
    let cgroups = Cgroups::of(session.name())?;
    session.note_cgroups(&cgroups)?;
    let mut cluster = namespace::unshared(args)?
        .spawn()
        .map_err(Error::io("starting (is util-linux installed?)", "setpriv"))?;
    if let Some(owner) = std::env::var_os(OWNER) {
        let owner = Path::new("/proc").join(owner);
        while owner.exists() && cluster.try_wait().map_err(Error::io("waiting for", "the cluster"))?.is_none()
        {
            std::thread::sleep(LOOK);
        }
        if !owner.exists() {
            cluster.kill().map_err(Error::io("ending", "the cluster"))?;
        }
    }
    let status = cluster.wait().map_err(Error::io("waiting for", "the cluster"))?;
    cgroups.remove()?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Fails with one line that says what this machine lacks for real nodes, and how many of them.
pub fn check(session: &Session, plan: &RealPlan) -> Result<()> {
    plan.check()?;
    machine::check(&Cgroups::of(session.name())?)?;
    machine::check_inotify(plan.control_planes, plan.workers)?;
    machine::check_memory(plan.control_planes, plan.workers)
}
