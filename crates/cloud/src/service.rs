//! A metadata service and how its answers are judged, whatever the platform.
//!
//! | answer | means |
//! |---|---|
//! | no connection, silence, a trickle, an answer cut short | the service or the network is not up yet: asked again |
//! | 404, for what every machine has | the service does not know this machine yet: asked again |
//! | 404, for what a machine may lack | believed once the service has said it for a while |
//! | 401, 408, 410, 429, 5xx, a redirect, a value of another form | something else answers, or it is overloaded: asked again |
//! | 400, 403, 405, more than fits | the service means it: not asked again |

use std::time::Duration;

use fetch::{Answer, Dialogue, Ending, NoAnswer, Patience, Question, Verb, Verdict};

use crate::error::CloudError;
use crate::words::Form;
use crate::{Asking, Identified, Said, USER_DATA_LIMIT};

/// The address that all platforms share.
pub(crate) const LINK_LOCAL: &str = "http://169.254.169.254";
/// For everything but user data.
pub(crate) const DOCUMENT_LIMIT: usize = 64 * 1024;
/// The service is on the same host: more than this to connect is a packet lost or nobody there.
const CONNECT: Duration = Duration::from_secs(2);
const STALL: Duration = Duration::from_secs(3);
const ATTEMPT: Duration = Duration::from_secs(6);
const FIRST_REST: Duration = Duration::from_millis(50);
/// A service that comes up late is noticed within a second.
const LONGEST_REST: Duration = Duration::from_secs(1);
/// For how long a service that knows this machine may say "not found" before that is believed. Services that come up have
/// been seen to answer so for moments.
const ABSENCE: Duration = Duration::from_secs(1);

pub(crate) struct Service<'a> {
    platform: &'static str,
    dialogue: Dialogue<'a>,
}

/// What a question is about.
#[derive(Clone, Copy)]
pub(crate) struct Key<'a> {
    pub(crate) what: &'static str,
    pub(crate) path: &'a str,
    pub(crate) headers: &'a [(&'static str, &'a str)],
    pub(crate) limit: usize,
}

/// An answer of the service, or its word that there is none.
pub(crate) enum Reply<T> {
    Here(T),
    Absent,
    /// 401, to somebody who can do something about it.
    Refused,
}

/// What a 401 means.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The token that was sent may be too old.
    Token,
    /// Something else answers in the place of the service.
    Stranger,
}

/// Whether every machine has it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Presence {
    Always,
    Perhaps,
}

impl<'a> Service<'a> {
    pub(crate) fn new(identified: &Identified, usual: &[&str], asking: &Asking<'a>) -> Result<Self, CloudError> {
        let platform = identified.platform.name();
        let addresses: Vec<String> = match &identified.address {
            Some(address) => vec![address.trim_end_matches('/').to_owned()],
            None => usual.iter().map(|address| (*address).to_owned()).collect(),
        };
        let patience = Patience {
            connect: CONNECT,
            stall: STALL,
            attempt: ATTEMPT,
            overall: asking.deadline,
            first_rest: FIRST_REST,
            longest_rest: LONGEST_REST,
        };
        let dialogue = Dialogue::begin(&addresses, patience, asking.random, asking.tell)
            .map_err(|source| CloudError::Transport { platform, source })?;
        Ok(Self { platform, dialogue })
    }

    pub(crate) fn url(&self, path: &str) -> String {
        self.dialogue.url(path)
    }

    /// `read` makes a value of the body, or says what is wrong with it.
    pub(crate) fn ask<T>(
        &mut self,
        verb: Verb,
        key: &Key<'_>,
        presence: Presence,
        refusal: Refusal,
        read: impl Fn(&Answer) -> Result<T, String>,
    ) -> Result<Reply<T>, CloudError> {
        let question = Question { what: key.what, verb, path: key.path, headers: key.headers, limit: key.limit };
        let judged = self.dialogue.ask(&question, |answer, asked_for| match answer.status {
            200 => match read(answer) {
                Ok(value) => Verdict::Take(Reply::Here(value)),
                Err(problem) => Verdict::Again(problem),
            },
            404 if presence == Presence::Perhaps && asked_for >= ABSENCE => Verdict::Take(Reply::Absent),
            401 if refusal == Refusal::Token => Verdict::Take(Reply::Refused),
            400 | 403 | 405 => Verdict::Stop(format!("it answers {}", answer.status)),
            status => Verdict::Again(format!("it answers {status}")),
        });
        judged.map_err(|answer| self.failed(answer))
    }

    /// For services that have no reason to ask who we are.
    pub(crate) fn get<T>(
        &mut self,
        key: &Key<'_>,
        presence: Presence,
        read: impl Fn(&Answer) -> Result<T, String>,
    ) -> Result<Option<T>, CloudError> {
        match self.ask(Verb::Get, key, presence, Refusal::Stranger, read)? {
            Reply::Here(value) => Ok(Some(value)),
            Reply::Absent | Reply::Refused => Ok(None),
        }
    }

    fn failed(&self, answer: NoAnswer) -> CloudError {
        CloudError::Service {
            platform: self.platform,
            advice: advice(self.platform, answer.ending),
            answer: Box::new(answer),
        }
    }
}

fn advice(platform: &str, ending: Ending) -> &'static str {
    match (ending, platform) {
        (Ending::TooLarge, _) => "see what answers in the place of the service, or make the user data smaller",
        (Ending::Refused, "aws") => {
            "see that the instance metadata endpoint of this instance is turned on (http-endpoint enabled)"
        }
        (Ending::Refused, _) => "see in the platform's console why it refuses this machine",
        (Ending::TimeOver, "aws") => {
            "see whether a route to 169.254.169.254 exists and nothing filters or answers in its place; in a container, \
             the hop limit of the instance metadata must be 2"
        }
        (Ending::TimeOver, _) => {
            "see whether a route to 169.254.169.254 exists and nothing filters or answers in its place, or say in \
             /etc/nodestrap/platform where this machine runs"
        }
    }
}

/// One line of text, of a given form.
pub(crate) fn word(body: &[u8], form: Form) -> Result<String, String> {
    let text = std::str::from_utf8(body).map(str::trim).unwrap_or_default();
    if form(text) { Ok(text.to_owned()) } else { Err("its answer does not have the form of such a value".to_owned()) }
}

/// A value of a document: absent and empty are the same, another form is an error.
pub(crate) fn field(value: Option<&str>, name: &str, form: Form, source: &str) -> Result<Said, String> {
    match value.map(str::trim).unwrap_or_default() {
        "" => Ok(Said::nothing(source)),
        text if form(text) => Ok(Said::new(text, source)),
        _ => Err(format!("{name} in its answer does not have the form of such a value")),
    }
}

pub(crate) fn required(value: Option<&str>, name: &str, form: Form, source: &str) -> Result<Said, String> {
    let said = field(value, name, form, source)?;
    if said.value.is_empty() { Err(format!("its answer has no {name}")) } else { Ok(said) }
}

/// The last part of `projects/1/zones/z`.
pub(crate) fn last_segment(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

pub(crate) fn user_data_key(path: &'static str) -> Key<'static> {
    Key { what: "the user data", path, headers: &[], limit: USER_DATA_LIMIT }
}
