//! The process that keeps a cluster of real nodes, outside of its namespaces.
//!
//! Belongs here: what has to be done on the machine itself, before and after. Never here: the cluster. Invariant: when
//! this process ends by itself, the cluster's processes are dead and its cgroups are gone; whoever kills it leaves empty
//! cgroups, which the next `up` or `down` of that name removes.

use std::ffi::OsString;
use std::process::ExitCode;

use crate::error::{Error, Result};
use crate::real::cgroups::Cgroups;
use crate::real::cluster::RealPlan;
use crate::real::machine;
use crate::{namespace, session::Session};

/// Runs this program again with `args` in namespaces of its own, waits for its end, and removes what outlives those.
pub fn keep(session: &Session, args: &[OsString]) -> Result<ExitCode> {
    let cgroups = Cgroups::of(session.name())?;
    session.note_cgroups(&cgroups)?;
    let status = namespace::unshared(args)?
        .status()
        .map_err(Error::io("starting (is util-linux installed?)", "setpriv"))?;
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
