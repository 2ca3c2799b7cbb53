//! A bus of our own, and whoever serves on it.
#![allow(dead_code, reason = "each test file uses its part")]

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// A bus daemon that ends with the test.
pub(crate) struct PrivateBus {
    pub(crate) daemon: Child,
    pub(crate) address: String,
    _folder: tempfile::TempDir,
}

impl PrivateBus {
    pub(crate) fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("bus");
        let address = format!("unix:path={}", socket.display());
        let daemon = start_daemon(&address);
        Self { daemon, address, _folder: folder }
    }

    pub(crate) fn units(&self) -> host::units::SystemdUnits {
        host::units::SystemdUnits::new(Some(&self.address))
    }
}

/// Returns when the daemon listens: it says its address then. That its socket exists would be too early, because a
/// socket has a name before it takes connections.
pub(crate) fn start_daemon(address: &str) -> Child {
    let mut daemon = Command::new("dbus-daemon")
        .args(["--session", "--nofork", "--nopidfile", "--nosyslog", "--print-address", "--address", address])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("dbus-daemon (Debian package dbus-daemon) is needed for this test");
    let mut said = String::new();
    BufReader::new(daemon.stdout.take().unwrap()).read_line(&mut said).unwrap();
    assert!(said.starts_with(address), "{said:?}");
    daemon
}

impl Drop for PrivateBus {
    fn drop(&mut self) {
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}

/// Serves on a bus until dropped.
pub(crate) struct Serving {
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Serving {
    pub(crate) fn start(builder: zbus::connection::Builder<'_>) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let connection = runtime.block_on(builder.build()).unwrap();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let thread = std::thread::spawn(move || {
            let _ = runtime.block_on(stopped);
            drop(connection);
        });
        Self { stop: Some(stop), thread: Some(thread) }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        drop(self.stop.take());
        let _ = self.thread.take().map(std::thread::JoinHandle::join);
    }
}
