//! A client's way to the server, with what goes wrong on it.
//!
//! Here belongs when a request fails and how; what it is answered otherwise is `route`'s. The invariant: a client that
//! crashed gets no answer.

use std::sync::Arc;

use http::{Method, Response};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};

use super::release::Release;
use super::reply::{Body, Reply, broken, print};
use super::request::{self, Request, RequestTarget};
use super::state::Shared;
use super::status::{Failure, Outcome};
use super::{discovery, eviction, watch};
use crate::faults::stream::StreamMode;
use crate::faults::{Call, Fault, Faults};
use crate::models::ControlPlane;
use crate::program::ProgramLife;

/// A client's way to the server: it carries that client's life.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    pub(crate) shared: Shared,
    /// The version that this server plays.
    pub(crate) release: Arc<Release>,
    pub(crate) faults: Faults,
    pub(crate) life: Arc<ProgramLife>,
    /// The `User-Agent` of a client that sends none.
    pub(crate) agent: Arc<str>,
    pub(crate) control: ControlPlane,
    /// The address of the one apiserver that this client talks to; `None` if any of them may answer.
    pub(crate) endpoint: Option<Arc<str>>,
}

impl Server {
    /// Answers a request.
    pub(crate) async fn serve<B>(
        mut self,
        request: http::Request<B>,
    ) -> Result<Response<Body>, std::io::Error>
    where
        B: http_body::Body,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (parts, body) = request.into_parts();
        let body = match Limited::new(body, request::MOST_BYTES).collect().await {
            Ok(body) => body.to_bytes(),
            Err(error) if error.is::<LengthLimitError>() => return print(too_large().into()),
            Err(error) => return Err(std::io::Error::other(error)),
        };
        let mut request = Request::new(&parts, body);
        if request.agent.is_empty() {
            self.agent.as_ref().clone_into(&mut request.agent);
        }
        // A program that is stopped sends nothing.
        self.life.awake().await;
        if let Some(at) = &self.endpoint {
            let Some(version) = self.control.version_at(at) else { return Err(broken()) };
            self.release = Arc::new(Release::new(&version));
        }
        let subject = self.shared.lock().subject(&request);
        if self.life.is_over() {
            return Err(broken());
        }
        let fault = self.faults.next(call(&request, subject.as_ref().ok()));
        let fault = fault.as_ref();
        self.inject_before(fault, &mut request).await?;
        let answer = match fault.and_then(|fault| instead(fault, &request)) {
            Some(failure) => Reply::from(failure),
            None => self.carry_out(request, subject, fault).await?,
        };
        print(self.inject_after(fault, answer).await?)
    }

    /// What goes wrong with a request before it is carried out.
    async fn inject_before(
        &self,
        fault: Option<&Fault>,
        request: &mut Request,
    ) -> Result<(), std::io::Error> {
        match fault {
            Some(Fault::Rewrite(rewrite)) => {
                if let Some(body) = rewrite.apply(&request.body) {
                    request.body = body;
                }
            }
            Some(Fault::ResetBefore) => return Err(broken()),
            Some(Fault::HangBefore) => std::future::pending().await,
            Some(Fault::CrashBefore) => return Err(self.crash()),
            Some(Fault::Delay(time)) => tokio::time::sleep(*time).await,
            Some(Fault::Compact) => {
                let mut state = self.shared.lock();
                let revision = state.store.revision();
                state.store.compact(revision);
            }
            _ => {}
        }
        Ok(())
    }

    /// Carries a request out: now, or when a fault lets it.
    async fn carry_out(
        &self,
        request: Request,
        subject: Outcome<RequestTarget>,
        fault: Option<&Fault>,
    ) -> Result<Reply, std::io::Error> {
        let stale = match fault {
            Some(Fault::Stale(back)) => *back,
            _ => 0,
        };
        let mode = match fault {
            Some(Fault::Bookmarks) => StreamMode::Bookmarks,
            Some(Fault::Silence) => StreamMode::Silence,
            _ => StreamMode::Everything,
        };
        let late = match fault {
            Some(Fault::Late(time)) => Some(*time),
            Some(Fault::Pause(time)) => {
                self.life.pause(*time);
                Some(*time)
            }
            _ => None,
        };
        let answered = if let Some(time) = late {
            let server = self.clone();
            // A task of its own goes on when the client has given the request up.
            let late = tokio::spawn(async move {
                tokio::time::sleep(time).await;
                server.answer(&request, subject, stale, mode).await
            });
            late.await.map_err(std::io::Error::other)?
        } else {
            self.answer(&request, subject, stale, mode).await
        };
        Ok(answered.unwrap_or_else(Reply::from))
    }

    /// What goes wrong with the answer to a request that was carried out.
    async fn inject_after(&self, fault: Option<&Fault>, answer: Reply) -> Result<Reply, std::io::Error> {
        match fault {
            Some(Fault::ResetAfter) => return Err(broken()),
            Some(Fault::HangAfter) => std::future::pending().await,
            Some(Fault::CrashAfter) => return Err(self.crash()),
            Some(Fault::AnswerAfter(code)) => return Ok(refusal(*code).into()),
            _ => {}
        }
        // A program that is stopped gets no answer.
        self.life.awake().await;
        Ok(answer)
    }

    /// Ends the program that asks. Returns the error of its connection.
    fn crash(&self) -> std::io::Error {
        self.life.end();
        self.faults.crash();
        broken()
    }

    /// The same server for another client, which crashes by itself.
    pub(crate) fn afresh(&self) -> Self {
        Self { life: Arc::default(), ..self.clone() }
    }

    async fn answer(
        &self,
        request: &Request,
        subject: Outcome<RequestTarget>,
        stale: u64,
        mode: StreamMode,
    ) -> Outcome<Reply> {
        let subject = match subject {
            Ok(subject) => subject,
            Err(failure) => {
                let state = self.shared.enter(&self.release);
                return match discovery::answer(&state, request) {
                    Some(answer) => Ok(answer),
                    None => Err(failure),
                };
            }
        };
        if request.method == Method::POST
            && let (Some("eviction"), Some(name), "Pod") =
                (subject.subresource.as_deref(), &subject.name, subject.kind.kind.as_str())
        {
            let done = eviction::evict(&self.shared, &self.release, request, &subject, name).await?;
            return Ok(Reply::Value(201, done.into(), Vec::new()));
        }
        if request.method == Method::GET && subject.subresource.is_none() && request.flag("watch") {
            let faults = self.faults.stream(&subject.kind.resource, &request.agent, mode, &self.life);
            return Ok(Reply::Lines(watch::start(&self.shared, request, &subject, faults, stale)?));
        }
        let mut state = self.shared.enter_as(&self.release, &request.agent);
        if stale > 0 && request.method == Method::GET {
            return state.stale(request, &subject, stale);
        }
        state.handle(request, &subject)
    }
}

fn too_large() -> Failure {
    let most = request::MOST_BYTES;
    Failure::new(413, "RequestEntityTooLarge", format!("Request entity too large: limit is {most}"))
}

/// The answer that a fault gives instead of the server.
fn instead(fault: &Fault, request: &Request) -> Option<Failure> {
    let busy = || Failure::new(429, "TooManyRequests", "Too many requests, please try again later.");
    Some(match fault {
        Fault::Refuse(code) => refusal(*code),
        Fault::Throttle { retry_after } => busy().retry_after(*retry_after),
        Fault::Budget { retry_after } => eviction::refused_by_budget(*retry_after),
        Fault::Deny(webhook) => {
            let why = format!("admission webhook \"{webhook}\" denied the request without explanation");
            Failure::new(400, "", why)
        }
        Fault::WebhookDown(webhook) => {
            let why = format!(
                "Internal error occurred: failed calling webhook \"{webhook}\": failed to call webhook: Post \
                 \"https://{webhook}.svc:443/\": dial tcp 10.96.0.1:443: connect: connection refused"
            );
            Failure::new(500, "InternalError", why)
        }
        Fault::TooLarge => {
            let asked = request.param("resourceVersion").and_then(|text| text.parse().ok()).unwrap_or(0);
            Failure::too_large_revision(asked, asked.saturating_sub(1))
        }
        _ => return None,
    })
}

fn refusal(code: u16) -> Failure {
    let (reason, message) = match code {
        400 => ("BadRequest", "the server rejected our request for an unknown reason"),
        403 => ("Forbidden", "forbidden by a fault"),
        404 => ("NotFound", "the server could not find the requested resource"),
        409 => (
            "Conflict",
            "the object has been modified; please apply your changes to the latest version and try again",
        ),
        410 => ("Expired", "the resource version is too old"),
        413 => ("RequestEntityTooLarge", "Request entity too large"),
        422 => ("Invalid", "the server rejected our request due to an error in our request"),
        429 => ("TooManyRequests", "Too many requests, please try again later."),
        503 => ("ServiceUnavailable", "the server is currently unable to handle the request"),
        504 => ("Timeout", "the server was unable to return a response in the time allotted"),
        _ => ("InternalError", "Internal error occurred: a fault"),
    };
    Failure::new(code, reason, message)
}

fn call(request: &Request, subject: Option<&RequestTarget>) -> Call {
    let named = subject.is_some_and(|subject| subject.name.is_some());
    let verb = match request.method {
        Method::GET if request.flag("watch") => "watch",
        Method::GET if named || subject.is_none() => "get",
        Method::GET => "list",
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE if named => "delete",
        _ => "deletecollection",
    };
    Call {
        ordinal: 0,
        nth: 0,
        at: tokio::time::Instant::now(),
        body: request.body.clone(),
        verb,
        resource: subject.map(|subject| subject.kind.resource.to_string()).unwrap_or_default(),
        namespace: subject.and_then(|subject| subject.namespace.clone()),
        name: subject.and_then(|subject| subject.name.clone()),
        subresource: subject.and_then(|subject| subject.subresource.clone()),
        agent: request.agent.clone(),
    }
}
