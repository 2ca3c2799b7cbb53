//! [`UpdateEngine`] over the system bus. A connection lasts one conversation: there are two or three in the life of a node.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures_core::Stream;
use zbus::proxy::{CacheProperties, OwnerChangedStream};

use super::proxy::{ManagerProxy, RawStatus, StatusUpdateStream};
use super::{Attempt, NextOs, Observed, Operation, UpdateEngine, UpdateEngineError, UpdateStatus};
use crate::bus::{SYSTEM_BUS_ADDRESS, is_hung_up, is_nobody, is_trouble, plain_source, wait};

/// It answers in milliseconds, also while it is at work.
const CALL_DEADLINE: Duration = Duration::from_secs(30);
/// Its unit restarts it after a few seconds; longer, and nobody does.
const RETURN_DEADLINE: Duration = Duration::from_secs(30);
/// One that ends so often will not bring an update.
const MAX_RESTARTS: u32 = 5;
const OBSERVE: &str = "status query of update_engine";
const ATTEMPT: &str = "update by update_engine";
const THREAD: &str = "update-engine-bus";

pub struct SystemUpdateEngine {
    address: String,
    return_deadline: Duration,
}

impl SystemUpdateEngine {
    /// `None` is the system bus of this machine; another one is given as `unix:path=/tmp/bus`.
    pub fn new(address: Option<&str>) -> Self {
        let address = address.unwrap_or(SYSTEM_BUS_ADDRESS).to_owned();
        Self { address, return_deadline: RETURN_DEADLINE }
    }

    /// How long one that went away is waited for.
    #[must_use]
    pub fn with_return_deadline(self, return_deadline: Duration) -> Self {
        Self { return_deadline, ..self }
    }

    /// One conversation, connection included, within the deadline.
    fn converse<T: Send, F: Future<Output = Result<T, Failure>> + Send>(
        &self,
        operation: &'static str,
        deadline: Duration,
        last: &Last,
        talk: impl FnOnce(ManagerProxy<'static>) -> F + Send,
    ) -> Result<T, UpdateEngineError> {
        let bus = |source| UpdateEngineError::Bus { address: self.address.clone(), source };
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| bus(error.into()))?;
        let conversation = async {
            let connection = zbus::connection::Builder::address(self.address.as_str()).build().await?;
            talk(ManagerProxy::builder(&connection).cache_properties(CacheProperties::No).build().await?).await
        };
        let ended = wait(&runtime, THREAD, deadline, conversation).map_err(|error| bus(error.into()));
        // An ordinary drop waits, which panics when our caller is itself inside a runtime.
        runtime.shutdown_background();
        match ended? {
            Some(Ok(value)) => Ok(value),
            Some(Err(Failure::Engine(error))) => Err(error),
            Some(Err(Failure::Bus(error))) if is_trouble(&error) => Err(bus(plain_source(error))),
            Some(Err(Failure::Bus(error))) => Err(UpdateEngineError::Call { operation, source: plain_source(error) }),
            None => Err(UpdateEngineError::Deadline { operation, waited: deadline, last: last.show() }),
        }
    }
}

impl UpdateEngine for SystemUpdateEngine {
    fn observe(&self) -> Result<Observed, UpdateEngineError> {
        self.converse(OBSERVE, CALL_DEADLINE, &Last::default(), |manager| async move {
            match manager.get_status().await {
                Ok(raw) => Ok(Observed::Says(parse(raw)?)),
                Err(error) if is_nobody(&error) => Ok(Observed::NoneHere),
                Err(error) => Err(error.into()),
            }
        })
    }

    fn attempt_and_wait(
        &self,
        deadline: Duration,
        look: &mut (dyn FnMut(&UpdateStatus) + Send),
    ) -> Result<NextOs, UpdateEngineError> {
        let last = Last::default();
        let mut tell = |status: &UpdateStatus| {
            last.note(status);
            look(status);
        };
        self.converse(ATTEMPT, deadline, &last, |manager| async {
            let manager = manager;
            let mut owners = manager.inner().receive_owner_changed().await?;
            for life in 0..=MAX_RESTARTS {
                match attempt_in_one_life(&manager, &mut owners, &mut tell).await? {
                    Life::Ended(next) => return Ok(next),
                    Life::Absent if life == 0 => return Ok(NextOs::NoneHere),
                    // A restarted one knows nothing of what it was asked before.
                    Life::Restarted => {}
                    Life::Absent | Life::Gone => self.wait_for_return(&mut owners, &last).await?,
                }
            }
            Err(Failure::Engine(UpdateEngineError::Restless { restarts: MAX_RESTARTS, last: last.show() }))
        })
    }
}

impl SystemUpdateEngine {
    async fn wait_for_return(&self, owners: &mut OwnerChangedStream<'_>, last: &Last) -> Result<(), Failure> {
        let waited = self.return_deadline;
        let returned = async {
            while next(owners).await?.is_none() {}
            Ok::<(), Failure>(())
        };
        match tokio::time::timeout(waited, returned).await {
            Ok(returned) => returned,
            Err(_) => Err(Failure::Engine(UpdateEngineError::Gone { waited, last: last.show() })),
        }
    }
}

/// What became of one process of update_engine while it was waited for.
enum Life {
    Ended(NextOs),
    /// It was not there to begin with.
    Absent,
    Gone,
    /// Another one is there already.
    Restarted,
}

async fn attempt_in_one_life(
    manager: &ManagerProxy<'_>,
    owners: &mut OwnerChangedStream<'_>,
    tell: &mut (dyn FnMut(&UpdateStatus) + Send),
) -> Result<Life, Failure> {
    // Listening starts before the attempt does: what is said in between would be lost, and a check may be over in no time.
    let mut words = manager.receive_status_update().await?;
    let mut attempt = Attempt::default();
    let mut see = |status: UpdateStatus| {
        tell(&status);
        attempt.see(&status)
    };
    let begun = match manager.get_status().await {
        Ok(raw) => parse(raw)?,
        Err(error) if is_nobody(&error) => return Ok(Life::Absent),
        Err(error) if is_hung_up(&error) => return Ok(Life::Gone),
        Err(error) => return Err(error.into()),
    };
    let is_idle = begun.operation == Operation::Idle;
    if let Some(end) = see(begun) {
        return Ok(Life::Ended(end));
    }
    if is_idle {
        match manager.attempt_update().await {
            Ok(()) => {}
            Err(error) if is_nobody(&error) || is_hung_up(&error) => return Ok(Life::Gone),
            Err(error) => return Err(error.into()),
        }
    }
    loop {
        tokio::select! {
            // What it said comes before that it is gone.
            biased;
            status = next_status(&mut words) => if let Some(end) = see(status?) {
                return Ok(Life::Ended(end));
            },
            owner = next(owners) => return Ok(if owner?.is_some() { Life::Restarted } else { Life::Gone }),
        }
    }
}

async fn next_status(words: &mut StatusUpdateStream) -> Result<UpdateStatus, Failure> {
    let signal = next(words).await?;
    let said = signal.args()?;
    parse((said.last_checked, said.progress, said.operation.clone(), said.new_version.clone(), said.new_size))
}

/// A stream ends with its connection only.
async fn next<S: Stream + Unpin>(stream: &mut S) -> Result<S::Item, Failure> {
    let next = poll_fn(|context| Pin::new(&mut *stream).poll_next(context)).await;
    next.ok_or_else(|| zbus::Error::from(std::io::Error::from(std::io::ErrorKind::ConnectionAborted)).into())
}

fn parse((last_checked, progress, word, version, _size): RawStatus) -> Result<UpdateStatus, Failure> {
    UpdateStatus::parse(last_checked, progress, &word, &version).map_err(Failure::Engine)
}

/// What went wrong in a conversation, before the verb is put to it.
enum Failure {
    Engine(UpdateEngineError),
    Bus(zbus::Error),
}

impl From<zbus::Error> for Failure {
    fn from(error: zbus::Error) -> Self {
        Self::Bus(error)
    }
}

/// The last word, for the error of whoever stops waiting.
#[derive(Default)]
struct Last(Mutex<Option<String>>);

impl Last {
    fn note(&self, status: &UpdateStatus) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(status.to_string());
    }

    fn show(&self) -> String {
        let last = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        last.unwrap_or_else(|| "nothing".to_owned())
    }
}
