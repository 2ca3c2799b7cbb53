//! A line on the machine's console, which a cloud shows from outside when nothing else of a machine can be reached.

use std::io;
use std::path::Path;

use rustix::fs::{Mode, OFlags};

/// A few lines of a terminal; a serial line takes about a tenth of a second for it.
const LONGEST: usize = 1024;

/// Writes at most what the device takes at once: a serial line that nobody drains must not hold the bootstrap.
pub fn write_console(path: &Path, text: &str) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::NOCTTY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::APPEND;
    let console = rustix::fs::open(path, flags, Mode::empty())?;
    rustix::io::write(&console, line(text).as_bytes())?;
    Ok(())
}

/// Its own line whatever was being written, and nothing that steers a terminal.
fn line(text: &str) -> String {
    let shown: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(LONGEST).collect();
    format!("\r\n{shown}\r\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_one_bounded_line_and_makes_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("console");
        assert!(write_console(&path, "x").is_err());
        assert!(!path.exists());
        std::fs::write(&path, "").unwrap();
        write_console(&path, "failed:\u{1b}[31m\nwhy").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "\r\nfailed: [31m why\r\n");
        assert_eq!(line(&"é".repeat(5000)).chars().count(), LONGEST + 4);
    }

    #[test]
    fn a_console_that_nobody_reads_holds_nobody() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("fifo");
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        assert!(write_console(&path, "x").is_err(), "nobody has opened it for reading");
    }
}
