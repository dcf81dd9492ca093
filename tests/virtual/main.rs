//! Evenkeel's own code on a cluster that does not exist: it meets faults at its requests, deaths at its writes, lost events
//! and people, with what must always hold checked after every write, in virtual time. docs/virtual-cluster.md says how many
//! of each are played.
//!
//! A run is a scenario, a seed and a script of faults. It fails when an invariant is broken or when it ends in another
//! state than the run without faults. A script that fails is made as short as it can be before it is shown;
//! `EVENKEEL_SCRIPT` with what was shown repeats it. `EVENKEEL_CAMPAIGN=long` tries what takes too long for every change.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::struct_excessive_bools, reason = "each is a field of what was written, read on its own")]
#![allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "small numbers")]

mod campaign;
mod deeds;
mod drain;
mod kube_api;
mod replica;
mod report;
mod rights;
mod script;
mod upgrade;

/// With the C library's own nearly half of the time of these runs would be allocation. The program that is tested keeps
/// that: it holds little, and with this one it would hold twice as much.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
