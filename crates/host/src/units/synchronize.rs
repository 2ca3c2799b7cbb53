//! Has systemd-journald write down all that was said so far.
//!
//! When a job ends, the last words of its unit may still lie in a socket: journald reads them when it comes to it, and
//! that takes seconds while it moves its files. Only its own word says that it is done; it deals with a question after
//! everything that came before. This is what `journalctl --sync` does.
//!
//! | systemd | asked by | answered by |
//! |---|---|---|
//! | 243 and later | `io.systemd.Journal.Synchronize` on its varlink socket | the reply |
//! | 228 and later | a signal | another content of a file |
//!
//! Best effort: who does not answer in time is not waited for.
#![allow(clippy::disallowed_methods, reason = "this is where the journal of the machine is read")]

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use super::proxies::ManagerProxy;

const VARLINK_SOCKET: &str = "/run/systemd/journal/io.systemd.journal";
const JOURNALD: &str = "systemd-journald.service";
/// `SIGRTMIN+1`, as the C library of systemd counts; that of our binary may count otherwise.
const SYNC_SIGNAL: i32 = 35;
const SYNCED_FILE: &str = "/run/systemd/journal/synced";
const LOOK_INTERVAL: Duration = Duration::from_millis(10);
/// It syncs its files before it answers, and the disk of a first boot is busy.
const ANSWER_DEADLINE: Duration = Duration::from_secs(10);
const REPLY_LIMIT: u64 = 64 * 1024;

/// Only for a systemd of 232 or later, such as one that gives its units invocation ids: an older journald might not know
/// the signal, and die of it.
pub(super) async fn synchronize(manager: &ManagerProxy<'_>) {
    if ask(Path::new(VARLINK_SOCKET), ANSWER_DEADLINE).is_ok() {
        return;
    }
    let before = std::fs::read(SYNCED_FILE).ok();
    if manager.kill_unit(JOURNALD, "main", SYNC_SIGNAL).await.is_err() {
        return;
    }
    let asked = Instant::now();
    while std::fs::read(SYNCED_FILE).ok() == before && asked.elapsed() < ANSWER_DEADLINE {
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
}

/// An error means that nobody is there who understands the question, so that it can be put in another way; silence is no
/// error.
fn ask(socket: &Path, deadline: Duration) -> io::Result<()> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_write_timeout(Some(deadline))?;
    stream.set_read_timeout(Some(deadline))?;
    stream.write_all(b"{\"method\":\"io.systemd.Journal.Synchronize\",\"parameters\":{}}\0")?;
    let mut reply = Vec::new();
    match BufReader::new(stream.take(REPLY_LIMIT)).read_until(0, &mut reply) {
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => return Ok(()),
        read => read?,
    };
    let text = reply.strip_suffix(b"\0").unwrap_or_default();
    let reply: serde_json::Value = serde_json::from_slice(text).map_err(io::Error::from)?;
    if reply.get("error").is_some() { Err(io::ErrorKind::Unsupported.into()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    /// What comes of this reply; `None`: the listener keeps silent.
    fn outcome(reply: Option<&'static [u8]>) -> io::Result<()> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let journald = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut question = Vec::new();
            BufReader::new(stream.try_clone().unwrap()).read_until(0, &mut question).unwrap();
            if let Some(reply) = reply {
                stream.write_all(reply).unwrap();
            } else {
                // Until the other side has had enough.
                let _ = stream.read(&mut [0; 1]);
            }
            question
        });
        let outcome = ask(&path, Duration::from_millis(if reply.is_some() { 60_000 } else { 50 }));
        let question = journald.join().unwrap();
        let question: serde_json::Value = serde_json::from_slice(question.strip_suffix(b"\0").unwrap()).unwrap();
        assert_eq!(question["method"], "io.systemd.Journal.Synchronize");
        outcome
    }

    #[test]
    fn an_answer_or_silence_is_enough_and_anything_else_is_asked_in_another_way() {
        outcome(Some(b"{\"parameters\":{}}\0")).unwrap();
        outcome(None).unwrap();
        let refused = b"{\"error\":\"org.varlink.service.MethodNotFound\",\"parameters\":{}}\0";
        assert_eq!(outcome(Some(refused)).unwrap_err().kind(), io::ErrorKind::Unsupported);
        assert!(outcome(Some(b"")).is_err());
        assert!(outcome(Some(b"hello\0")).is_err());
        assert_eq!(ask(Path::new("/nonexistent"), ANSWER_DEADLINE).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
