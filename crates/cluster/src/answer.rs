//! A question that is asked until somebody answers, and the kinds of answers there are.

use std::time::Duration;

use kube::Client;

use crate::access::Access;
use crate::client::{client_for, root_cause};
use crate::tls::{explain_tls, find_tls_error};

const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(4);

/// How long a question is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// For all attempts together.
    pub deadline: Duration,
    /// For one of them.
    pub attempt: Duration,
}

impl Default for Patience {
    /// An API server that is restarted is back within half a minute; one that is not leaves its nodes to what they have.
    fn default() -> Self {
        Self { deadline: Duration::from_secs(30), attempt: Duration::from_secs(10) }
    }
}

/// What came of a question, in terms of what may be made of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer<T> {
    Found(T),
    /// 404: the cluster has no such thing.
    NotThere,
    /// 401 or 403: it does not tell us.
    Refused {
        status: u16,
    },
    /// Nobody answered, or nobody who could (5xx, 408, 429), for as long as was asked.
    Unreachable {
        reason: String,
    },
    /// The server could not prove who it is, and heard no question.
    Untrusted {
        reason: String,
    },
    /// It is there, and not what it should be.
    Malformed {
        reason: String,
    },
}

impl<T> Answer<T> {
    /// Reads what was found; what cannot be read is malformed.
    pub fn read<U>(self, read: impl FnOnce(T) -> Result<U, String>) -> Answer<U> {
        match self {
            Self::Found(found) => read(found).map_or_else(|reason| Answer::Malformed { reason }, Answer::Found),
            Self::NotThere => Answer::NotThere,
            Self::Refused { status } => Answer::Refused { status },
            Self::Unreachable { reason } => Answer::Unreachable { reason },
            Self::Untrusted { reason } => Answer::Untrusted { reason },
            Self::Malformed { reason } => Answer::Malformed { reason },
        }
    }
}

/// Asks again as long as nobody answers. All other answers count at once.
pub(crate) async fn ask<T, F>(access: &Access, patience: Patience, question: impl Fn(Client) -> F) -> Answer<T>
where
    F: Future<Output = Result<T, kube::Error>>,
{
    let (client, server) = client_for(access, patience.attempt);
    let mut last = format!("no answer from {server} within {:?}", patience.attempt.min(patience.deadline));
    let silence = last.clone();
    let asking = async {
        let mut pause = FIRST_PAUSE;
        loop {
            let heard = match tokio::time::timeout(patience.attempt, question(client.clone())).await {
                Ok(Ok(found)) => Answer::Found(found),
                Ok(Err(error)) => interpret(&error),
                Err(_) => Answer::Unreachable { reason: silence.clone() },
            };
            match heard {
                Answer::Unreachable { reason } => last = reason,
                answer => return answer,
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    };
    match tokio::time::timeout(patience.deadline, asking).await {
        Ok(answer) => answer,
        Err(_) => Answer::Unreachable { reason: last },
    }
}

fn interpret<T>(error: &kube::Error) -> Answer<T> {
    if let kube::Error::Api(status) = error {
        let said = || format!("HTTP {}: {}", status.code, status.message);
        return match status.code {
            404 => Answer::NotThere,
            401 | 403 => Answer::Refused { status: status.code },
            408 | 429 | 500.. => Answer::Unreachable { reason: said() },
            _ => Answer::Malformed { reason: said() },
        };
    }
    if let Some(tls @ rustls::Error::InvalidCertificate(_)) = find_tls_error(error) {
        return Answer::Untrusted { reason: explain_tls(tls, "kubeconfig") };
    }
    let reason = root_cause(error);
    match error {
        kube::Error::Service(_) | kube::Error::HyperError(_) => Answer::Unreachable { reason },
        _ => Answer::Malformed { reason },
    }
}
