//! The word to the service manager that started us (`sd_notify(3)`), shown by `systemctl status`.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Sends one status line. `socket` is the value of `NOTIFY_SOCKET`: an absolute path, or `@name` for an abstract one.
pub fn sd_notify(socket: &OsStr, status: &str) -> io::Result<()> {
    let address = match socket.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        [b'/', ..] => SocketAddr::from_pathname(socket)?,
        _ => return Err(io::Error::new(io::ErrorKind::Unsupported, "not a unix socket")),
    };
    // A line break would start the next variable.
    let line = status.replace(['\n', '\r'], " ");
    let sender = UnixDatagram::unbound()?;
    // A service manager that does not read must not hold the bootstrap.
    sender.set_nonblocking(true)?;
    sender.send_to_addr(format!("STATUS={line}").as_bytes(), &address)?;
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
