//! The word to the service manager that started us (`sd_notify(3)`), shown by `systemctl status`.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// What else the service manager is told with a status line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// Done: for units of `Type=notify`, others ignore it.
    Ready,
    /// Do not take us for hung before this has passed, whatever `TimeoutStartSec=` says.
    Working(Duration),
}

/// Sends one status line. `socket` is the value of `NOTIFY_SOCKET`: an absolute path, or `@name` for an abstract one.
pub fn sd_notify(socket: &OsStr, status: &str) -> io::Result<()> {
    send(socket, &format!("STATUS={}", one_line(status)))
}

/// The same, with a word about how long it will take.
pub fn sd_notify_with(socket: &OsStr, status: &str, readiness: Readiness) -> io::Result<()> {
    let word = match readiness {
        Readiness::Ready => "READY=1".to_owned(),
        Readiness::Working(time) => format!("EXTEND_TIMEOUT_USEC={}", time.as_micros()),
    };
    send(socket, &format!("STATUS={}\n{word}", one_line(status)))
}

/// A line break would start the next variable.
fn one_line(status: &str) -> String {
    status.replace(['\n', '\r'], " ")
}

fn send(socket: &OsStr, message: &str) -> io::Result<()> {
    let address = match socket.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        [b'/', ..] => SocketAddr::from_pathname(socket)?,
        _ => return Err(io::Error::new(io::ErrorKind::Unsupported, "not a unix socket")),
    };
    let sender = UnixDatagram::unbound()?;
    // A service manager that does not read must not hold the bootstrap.
    sender.set_nonblocking(true)?;
    sender.send_to_addr(message.as_bytes(), &address)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(socket: &UnixDatagram) -> String {
        let mut buffer = [0; 200];
        let length = socket.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..length].to_vec()).unwrap()
    }

    #[test]
    fn reaches_path_and_abstract_sockets() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let by_path = UnixDatagram::bind(&path).unwrap();
        sd_notify(path.as_os_str(), "step 3\nREADY=1").unwrap();
        assert_eq!(received(&by_path), "STATUS=step 3 READY=1");
        sd_notify_with(path.as_os_str(), "s", Readiness::Ready).unwrap();
        assert_eq!(received(&by_path), "STATUS=s\nREADY=1");
        sd_notify_with(path.as_os_str(), "s", Readiness::Working(Duration::from_secs(2))).unwrap();
        assert_eq!(received(&by_path), "STATUS=s\nEXTEND_TIMEOUT_USEC=2000000");

        let name = format!("nodestrap-test-{}", std::process::id());
        let by_name = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        sd_notify(OsStr::new(&format!("@{name}")), "x").unwrap();
        assert_eq!(received(&by_name), "STATUS=x");
    }

    #[test]
    fn says_when_nobody_listens() {
        assert!(sd_notify(OsStr::new("/nonexistent/socket"), "x").is_err());
        assert!(sd_notify(OsStr::new("vsock:2:1234"), "x").is_err());
    }
}
