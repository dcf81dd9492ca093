//! Somebody outside of the cluster who asks a Service all the time, and counts what got no answer.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use evenkeel_devcluster::TestResult;
use evenkeel_testkit::scenario::until;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Between two requests. They do not wait for each other.
const PACE: Duration = Duration::from_millis(50);
/// What is lost so soon after another request belongs to the same time of trouble.
const SPELL: Duration = Duration::from_secs(5);
/// After this a request is lost.
pub const PATIENCE: Duration = Duration::from_secs(3);

/// Of the requests that it was made for, so many in a hundred have to have been sent.
const SENT: f64 = 75.0;

/// What became of the requests so far.
#[derive(Clone, Default)]
pub struct Asked {
    pub sent: usize,
    /// When each was sent that got no answer, which node it was sent to, and what came instead.
    pub lost: Vec<(Duration, Ipv4Addr, String)>,
}

impl Asked {
    /// For people: how many of how many.
    pub fn summary(&self) -> String {
        format!("{} of {} requests lost", self.lost.len(), self.sent)
    }

    /// Nothing where the Service was asked all the time; who asks nobody loses nothing.
    pub fn too_few(&self, meanwhile: Duration) -> Option<String> {
        let made_for = meanwhile.as_secs_f64() / PACE.as_secs_f64();
        let least = made_for * SENT / 100.0;
        let sent = u32::try_from(self.sent).map_or(f64::MAX, f64::from);
        let line = || format!("{sent} requests in {:.0} s, of {made_for:.0}", meanwhile.as_secs_f64());
        (sent < least || self.sent == 0).then(line)
    }

    /// For people: what came instead of answers, by node, a line for each time in which that went on.
    pub fn losses(&self) -> Vec<String> {
        let mut spells: Vec<(Duration, Duration, Ipv4Addr, &str, usize)> = Vec::new();
        let mut lost: Vec<_> = self.lost.iter().collect();
        lost.sort();
        for (at, node, why) in lost {
            let goes_on = |spell: &&mut (Duration, Duration, Ipv4Addr, &str, usize)| {
                spell.2 == *node && spell.3 == why && *at < spell.1 + SPELL
            };
            match spells.iter_mut().rev().find(goes_on) {
                Some(spell) => (spell.1, spell.4) = (*at, spell.4 + 1),
                None => spells.push((*at, *at, *node, why, 1)),
            }
        }
        let line = |(from, until, node, why, count): (Duration, Duration, Ipv4Addr, &str, usize)| {
            let (from, until) = (from.as_secs_f64(), until.as_secs_f64());
            format!("{from:>5.1} to {until:.1} s  {count} by {node}: {why}")
        };
        spells.into_iter().map(line).collect()
    }
}

#[derive(Clone)]
pub struct Probe {
    asked: Arc<Mutex<Asked>>,
    began: Instant,
}

impl Probe {
    pub fn new(began: Instant) -> Self {
        Self { asked: Arc::default(), began }
    }

    pub fn asked(&self) -> Asked {
        self.asked.lock().map(|asked| asked.clone()).unwrap_or_default()
    }

    /// Asks the port on one node after the other, until the future is dropped.
    pub async fn ask(&self, nodes: &[Ipv4Addr], port: u16) -> std::convert::Infallible {
        let mut pace = tokio::time::interval(PACE);
        for node in nodes.iter().cycle() {
            pace.tick().await;
            let (asked, at, node) = (Arc::clone(&self.asked), self.began.elapsed(), *node);
            tokio::spawn(async move {
                let answer = tokio::time::timeout(PATIENCE, get((node, port).into())).await;
                let answer =
                    answer.unwrap_or_else(|_| Err(format!("no answer for {} s", PATIENCE.as_secs())));
                let Ok(mut asked) = asked.lock() else { return };
                asked.sent += 1;
                if let Err(why) = answer {
                    asked.lost.push((at, node, why));
                }
            });
        }
        std::future::pending().await
    }
}

/// Waits until every node answers on the port: pods are ready a moment before each kube-proxy sends somebody to them.
pub async fn every_node_answers(nodes: &[Ipv4Addr], port: u16) -> TestResult {
    until("every node to answer for the Service", Duration::from_secs(30), async || {
        for node in nodes {
            if !matches!(tokio::time::timeout(PATIENCE, get((*node, port).into())).await, Ok(Ok(()))) {
                return Ok(false);
            }
        }
        Ok(true)
    })
    .await
}

/// One request on a connection of its own, as the least patient clients make them.
async fn get(address: SocketAddr) -> Result<(), String> {
    let mut stream = TcpStream::connect(address).await.map_err(|e| format!("connecting: {e}"))?;
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").await.map_err(|e| format!("asking: {e}"))?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.map_err(|e| format!("reading: {e}"))?;
    let first = answer.lines().next().unwrap_or_default();
    if first.ends_with("200 OK") { Ok(()) } else { Err(format!("answered {first:?}")) }
}

#[test]
fn a_probe_that_asked_nobody_proves_nothing() {
    let too_few = |sent| Asked { sent, lost: Vec::new() }.too_few(Duration::from_secs(100));
    assert_eq!(too_few(0), Some("0 requests in 100 s, of 2000".to_owned()));
    assert_eq!(too_few(1_499), Some("1499 requests in 100 s, of 2000".to_owned()));
    assert_eq!(too_few(1_940), None);
    assert!(Asked::default().too_few(Duration::ZERO).is_some());
}
