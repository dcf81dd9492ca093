//! What the preflight is asked.
//!
//! Here belongs what the caller knows and decides; nothing here is found out.

use jiff::{SignedDuration, Timestamp};

use super::super::class::Rules;
use crate::cluster::{Cluster, Node};

/// What the preflight is asked: which nodes are to be drained, how and when.
#[derive(Clone, Debug)]
pub struct Question<'a> {
    /// As it is seen, with its surroundings as far as they were read.
    pub cluster: &'a Cluster,
    /// Those to drain; the others of `cluster` may take their pods.
    pub nodes: Vec<&'a Node>,
    /// How many of `nodes` are drained at a time.
    pub at_once: usize,
    /// What the person who drains decided.
    pub rules: &'a Rules,
    /// How long a node may take, if that is limited.
    pub timeout: Option<SignedDuration>,
    /// The time; for files, when they were written.
    pub now: Timestamp,
}
