//! Structured lines for systemd's journal, in its native protocol: one datagram of fields to a well-known socket.
//!
//! In: fields by name. Out: one entry, with a time and an origin that the journal itself adds. Fails when nobody listens or
//! the entry is too large for a datagram; the caller then writes to standard error as everybody does.

use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub(crate) const JOURNAL_SOCKET: &str = "/run/systemd/journal/socket";

/// As in `syslog(3)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    Error = 3,
    Warning = 4,
    Notice = 5,
    Info = 6,
}

pub struct JournalSocket {
    sender: UnixDatagram,
    path: PathBuf,
}

impl JournalSocket {
    /// If our standard error is the journal, as `stream` (the value of `JOURNAL_STREAM`) says, so that nothing is said in
    /// two places.
    pub fn of_standard_error(stream: &str) -> Option<Self> {
        let (device, inode) = stream.split_once(':')?;
        let found = rustix::fs::fstat(io::stderr()).ok()?;
        let is_ours = device.parse() == Ok(found.st_dev) && inode.parse() == Ok(found.st_ino);
        is_ours.then(|| Self::at(Path::new(JOURNAL_SOCKET)).ok()).flatten()
    }

    pub fn at(path: &Path) -> io::Result<Self> {
        let sender = UnixDatagram::unbound()?;
        // A journal that does not read must not hold the bootstrap.
        sender.set_nonblocking(true)?;
        if !path.exists() {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(Self { sender, path: path.to_owned() })
    }

    pub fn send(&self, fields: &[(&str, &str)]) -> io::Result<()> {
        self.sender.send_to(&encode(fields), &self.path).map(drop)
    }
}

/// Lines that a unit said elsewhere. `journalctl -u` shows what root says about the unit that it names as the object.
/// None is lost because journald is slow for a moment, but a journal that does not read is given up at the deadline.
pub(crate) fn say_for_unit(socket: &Path, unit: &str, lines: &[&str], deadline: Duration) -> io::Result<()> {
    let sender = UnixDatagram::unbound()?;
    let identifier = unit.rsplit_once('.').map_or(unit, |(name, _)| name);
    let (priority, start) = ((Priority::Info as u8).to_string(), Instant::now());
    for line in lines {
        // A timeout of zero would be refused; it means that the time is over.
        sender.set_write_timeout(Some(deadline.saturating_sub(start.elapsed())))?;
        let fields = [
            ("MESSAGE", *line),
            ("PRIORITY", &priority),
            ("SYSLOG_IDENTIFIER", identifier),
            ("OBJECT_SYSTEMD_UNIT", unit),
        ];
        sender.send_to(&encode(&fields), socket)?;
    }
    Ok(())
}

/// `NAME=value` and a line feed; a value with line feeds inside goes as `NAME`, a line feed, its length in 64 bits, lowest
/// first, the value and a line feed. A name that the journal would refuse is left out.
fn encode(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut datagram = Vec::new();
    for (name, value) in fields {
        let known = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
        if name.is_empty() || name.len() > 64 || !name.bytes().all(known) || !name.as_bytes()[0].is_ascii_uppercase() {
            continue;
        }
        datagram.extend_from_slice(name.as_bytes());
        if value.contains('\n') {
            datagram.push(b'\n');
            datagram.extend_from_slice(&(value.len() as u64).to_le_bytes());
        } else {
            datagram.push(b'=');
        }
        datagram.extend_from_slice(value.as_bytes());
        datagram.push(b'\n');
    }
    datagram
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_and_many_lines_are_told_apart_by_their_form() {
        assert_eq!(encode(&[("MESSAGE", "a=b"), ("PRIORITY", "3")]), b"MESSAGE=a=b\nPRIORITY=3\n");
        assert_eq!(encode(&[("MESSAGE", "a\nb")]), b"MESSAGE\n\x03\0\0\0\0\0\0\0a\nb\n");
        assert_eq!(encode(&[("MESSAGE", "")]), b"MESSAGE=\n");
    }

    #[test]
    fn names_that_the_journal_refuses_are_left_out() {
        let long = "A".repeat(65);
        assert_eq!(encode(&[("_PID", "1"), ("lower", "1"), ("", "1"), ("A=B", "1"), (&long, "1"), ("1A", "1")]), b"");
    }

    #[test]
    fn an_entry_reaches_the_socket_and_an_absent_one_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        assert!(JournalSocket::at(&path).is_err());
        let listener = UnixDatagram::bind(&path).unwrap();
        JournalSocket::at(&path).unwrap().send(&[("MESSAGE", "hello")]).unwrap();
        let mut buffer = [0; 64];
        let length = listener.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..length], b"MESSAGE=hello\n");
    }

    #[test]
    fn lines_of_a_unit_are_said_about_it_and_a_journal_that_does_not_read_is_given_up() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let say =
            |lines: &[&str], deadline| say_for_unit(&path, "hook.service", lines, Duration::from_millis(deadline));
        assert!(say(&["lost"], 60_000).is_err());
        let listener = UnixDatagram::bind(&path).unwrap();
        say(&["one", "two"], 60_000).unwrap();
        for word in ["one", "two"] {
            let mut buffer = [0; 256];
            let length = listener.recv(&mut buffer).unwrap();
            let rest = "PRIORITY=6\nSYSLOG_IDENTIFIER=hook\nOBJECT_SYSTEMD_UNIT=hook.service\n";
            assert_eq!(String::from_utf8_lossy(&buffer[..length]), format!("MESSAGE={word}\n{rest}"));
        }
        // More than the socket holds.
        assert!(say(&["x"; 100_000], 50).is_err());
    }

    #[test]
    fn another_stream_than_ours_is_not_the_journal() {
        for stream in ["", "1", "1:2", "x:y", "1:2:3"] {
            assert!(JournalSocket::of_standard_error(stream).is_none(), "{stream}");
        }
    }
}
