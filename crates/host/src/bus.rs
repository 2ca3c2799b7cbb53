//! What all conversations over the system bus have in common: a thread to have them on, a deadline, and what went wrong.

use std::time::Duration;

use tokio::runtime::Runtime;
use zbus::fdo;

/// Where every distribution puts the system bus. The environment is not asked: it is not ours to trust.
pub(crate) const SYSTEM_BUS_ADDRESS: &str = "unix:path=/run/dbus/system_bus_socket";

/// Runs the future on a thread of its own, since the caller's thread may belong to a runtime, where blocking panics.
/// `None` when the deadline passed.
pub(crate) fn wait<T: Send>(
    runtime: &Runtime,
    thread: &str,
    deadline: Duration,
    future: impl Future<Output = T> + Send,
) -> std::io::Result<Option<T>> {
    std::thread::scope(|scope| {
        let bounded = async { tokio::time::timeout(deadline, future).await.ok() };
        let thread =
            std::thread::Builder::new().name(thread.to_owned()).spawn_scoped(scope, || runtime.block_on(bounded))?;
        thread.join().or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Nobody of that name is on the bus, and nobody can be started for it.
pub(crate) fn is_nobody(error: &zbus::Error) -> bool {
    matches!(error, zbus::Error::FDO(error) if is_nobody_there(error))
}

fn is_nobody_there(error: &fdo::Error) -> bool {
    matches!(error, fdo::Error::ServiceUnknown(_) | fdo::Error::NameHasNoOwner(_))
}

/// It was there, and went away before it answered.
pub(crate) fn is_hung_up(error: &zbus::Error) -> bool {
    matches!(error, zbus::Error::FDO(error) if matches!(**error, fdo::Error::NoReply(_) | fdo::Error::Disconnected(_)))
}

/// The bus itself, or who should answer on it, is not there.
pub(crate) fn is_trouble(error: &zbus::Error) -> bool {
    match error {
        zbus::Error::InputOutput(_) | zbus::Error::Connection(..) | zbus::Error::Handshake(_) => true,
        zbus::Error::FDO(fdo) => is_nobody_there(fdo) || is_hung_up(error) || matches!(**fdo, fdo::Error::NoServer(_)),
        _ => false,
    }
}

/// zbus repeats the cause in its own words and names the address again; the chain shall say each thing once.
pub(crate) fn plain_source(error: zbus::Error) -> Box<dyn std::error::Error + Send + Sync> {
    match error {
        zbus::Error::InputOutput(io) | zbus::Error::Connection(io, _) => {
            Box::new(std::io::Error::new(io.kind(), io.to_string()))
        }
        other => Box::new(other),
    }
}
