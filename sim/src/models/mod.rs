//! What runs in a cluster besides its API: controllers, scheduler, kubelets.
//!
//! A model is told which objects changed, a little later, and takes one small step for each: it reads the store,
//! decides, and writes through the same rules as a request. All run in one task, in the order of time and then of
//! arrival, so that one seed gives one history. HTTP never belongs here, nor does a clock of its own.

mod claim;
mod control;
mod daemons;
mod deployments;
mod disruption;
mod endpoints;
mod garbage;
mod jobs;
mod kubelets;
mod lifecycle;
mod model;
mod namespaces;
mod objects;
mod pods;
mod replicas;
mod scheduler;
mod sets;
mod stepper;

pub use control::{COMPONENTS, ControlPlane};
pub(crate) use kubelets::returned;
pub use kubelets::{Deed, Kubelets, Times};
pub(crate) use objects::condition;
pub(crate) use stepper::run;
