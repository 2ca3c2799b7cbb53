//! A clock that cannot be right keeps the gate shut, and a time client on the node's own bus is believed.
//!
//! All nodes share the clock of this machine, which is never set here. So it is the certificates that are of another time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lab::{LabOptions, Node, WorkerSpec};
use pki::{Authority, Validity};

use crate::support::{GATE, PATIENCE, exists, lab, node, status, user_data};

const BOOTSTRAP: &str = "k8s-node-bootstrap.service";
const BUS: &str = "/run/dbus/system_bus_socket";
const DAY: Duration = Duration::from_secs(86_400);
/// Longer than a node takes to come to its gate, even on a busy machine.
const BEHIND: Duration = Duration::from_secs(120);

fn wait_until_said(machine: &Node, words: &str) {
    let said = |machine: &Node| Ok(machine.journal(BOOTSTRAP).contains(words));
    machine.wait_until(&format!("{words:?} is said"), PATIENCE, said).expect("it says so");
}

#[test]
fn a_node_whose_clock_is_behind_its_certificates_waits_for_it_and_goes_on_by_itself() {
    let Some(lab) = lab(LabOptions::default()) else { return };
    let right = SystemTime::now() + BEHIND;
    let later = Authority::create("of a later time", Validity { start: right, lifetime: DAY }).expect("an authority");
    // The next authority of the cluster beside today's.
    let spec = WorkerSpec::of(&lab);
    let spec = WorkerSpec { authority_pem: [spec.authority_pem.as_str(), later.certificate_pem()].concat(), ..spec };
    let machine = lab.add_node(node("n1", &user_data(&spec))).expect("boots");
    wait_until_said(&machine, "the clock of this machine is wrong");
    wait_until_said(&machine, "the newest certificate of the bundle is not valid before that");
    lab.wait_node_ready("n1", PATIENCE).expect("Ready once the time has come");
    let opened: u64 = machine.run(&["stat", "-c", "%Y", GATE]).expect("a gate").trim().parse().expect("seconds");
    let right = right.duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
    assert!(opened >= right, "the gate opened at {opened}, while the clock was behind until {right}");
}

/// The time as timedated tells of it.
struct TimeDate(Arc<AtomicBool>);

#[zbus::interface(name = "org.freedesktop.timedate1")]
impl TimeDate {
    #[zbus(property, name = "NTPSynchronized")]
    fn ntp_synchronized(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Answers on the bus of the node in the place of its timedated, until it is dropped.
struct StandIn {
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl StandIn {
    fn serve(machine: &Node, is_set: &Arc<AtomicBool>) -> Self {
        // systemd answers before it listens for the bus.
        machine.wait_until("a bus", PATIENCE, |node| exists(node, BUS)).expect("it has a bus");
        let bus = machine.path_from_outside(BUS).expect("a running node");
        let address = format!("unix:path={}", bus.display());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let connection = runtime.block_on(async {
            let builder = zbus::connection::Builder::address(address.as_str());
            let builder = builder.serve_at("/org/freedesktop/timedate1", TimeDate(Arc::clone(is_set)));
            builder.name("org.freedesktop.timedate1").build().await
        });
        let connection = connection.expect("a name on the bus of the node");
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let thread = std::thread::spawn(move || {
            let _ = runtime.block_on(stopped);
            drop(connection);
        });
        Self { stop: Some(stop), thread: Some(thread) }
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        drop(self.stop.take());
        let _ = self.thread.take().map(std::thread::JoinHandle::join);
    }
}

#[test]
fn certificates_that_have_ended_are_expired_for_certain_once_a_time_client_has_set_the_clock() {
    let Some(lab) = lab(LabOptions::default()) else { return };
    // To them, this machine boots a day ahead.
    let ended = Validity { start: SystemTime::now() - 2 * DAY, lifetime: DAY };
    let authority = Authority::create("of an earlier time", ended).expect("an authority");
    let spec = WorkerSpec { authority_pem: authority.certificate_pem().to_owned(), ..WorkerSpec::of(&lab) };
    let options = node("n1", &user_data(&spec)).before_boot(|root| {
        let mask = root.join("etc/systemd/system/systemd-timedated.service");
        Ok(std::os::unix::fs::symlink("/dev/null", mask)?)
    });
    let machine = lab.add_node(options).expect("boots");
    let is_set = Arc::new(AtomicBool::new(false));
    let _time = StandIn::serve(&machine, &is_set);
    wait_until_said(&machine, "wrong clock or expired");
    wait_until_said(&machine, "which no time client is known to have set");
    let journal = machine.journal(BOOTSTRAP);
    assert!(!journal.contains("have expired"), "nobody vouched for the clock yet: {journal}");

    is_set.store(true, Ordering::Relaxed);
    wait_until_said(&machine, "have expired");
    let output = status(&machine).expect("status runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(4), "{text}");
    assert!(text.contains("which a time client has set") && text.contains("renew the certificates"), "{text}");
    assert!(!exists(&machine, GATE).expect("test runs"), "the gate is open over certificates that have ended");
    assert!(!machine.exec(&["pgrep", "-x", "kubelet"]).expect("pgrep").status.success(), "the kubelet must not run");
}
