//! The few methods and properties of systemd's D-Bus interface that a bootstrap needs.
//! Reference: `org.freedesktop.systemd1(5)`.

use zbus::{OwnedObjectPath, Variant, proxy};

/// A unit that comes along with another one; we have none.
pub(super) type Companion<'a> = (&'a str, Vec<(&'a str, Variant<'a>)>);

/// Kind of change, the link, its target: what `EnableUnitFiles` did.
pub(super) type Change = (String, String, String);

#[proxy(
    default_service = "org.freedesktop.systemd1",
    default_path = "/org/freedesktop/systemd1",
    interface = "org.freedesktop.systemd1.Manager"
)]
pub(super) trait Manager {
    /// Without this systemd sends us no signals.
    fn subscribe(&self) -> zbus::Result<()>;
    fn load_unit(&self, name: &str) -> zbus::Result<OwnedObjectPath>;
    fn start_unit(&self, name: &str, mode: &str) -> zbus::Result<OwnedObjectPath>;
    fn start_transient_unit(
        &self,
        name: &str,
        mode: &str,
        properties: &[(&str, Variant<'_>)],
        companions: &[Companion<'_>],
    ) -> zbus::Result<OwnedObjectPath>;
    fn unref_unit(&self, name: &str) -> zbus::Result<()>;
    fn restart_unit(&self, name: &str, mode: &str) -> zbus::Result<OwnedObjectPath>;
    /// systemd itself knows whether a unit can be reloaded, and restarts it otherwise.
    fn reload_or_restart_unit(&self, name: &str, mode: &str) -> zbus::Result<OwnedObjectPath>;
    fn reset_failed_unit(&self, name: &str) -> zbus::Result<()>;
    fn stop_unit(&self, name: &str, mode: &str) -> zbus::Result<OwnedObjectPath>;
    fn disable_unit_files(&self, files: &[&str], runtime: bool) -> zbus::Result<Vec<Change>>;
    fn enable_unit_files(&self, files: &[&str], runtime: bool, force: bool) -> zbus::Result<(bool, Vec<Change>)>;
    fn get_unit_file_state(&self, file: &str) -> zbus::Result<String>;
    fn reload(&self) -> zbus::Result<()>;
    /// `whom`: `main` is the process that is the service.
    fn kill_unit(&self, name: &str, whom: &str, signal: i32) -> zbus::Result<()>;

    #[zbus(signal)]
    fn job_removed(&self, id: u32, job: OwnedObjectPath, unit: String, result: String) -> zbus::Result<()>;
}

/// Answers for every time client: it asks the kernel, which each of them tells when it has set the clock.
/// Reference: `org.freedesktop.timedate1(5)`.
#[proxy(
    default_service = "org.freedesktop.timedate1",
    default_path = "/org/freedesktop/timedate1",
    interface = "org.freedesktop.timedate1"
)]
pub(super) trait TimeDate {
    #[zbus(property(emits_changed_signal = "false"), name = "NTPSynchronized")]
    fn ntp_synchronized(&self) -> zbus::Result<bool>;
}

#[proxy(default_service = "org.freedesktop.systemd1", interface = "org.freedesktop.systemd1.Unit")]
pub(super) trait Unit {
    /// Its own name, where the one asked for may be an alias.
    #[zbus(property(emits_changed_signal = "false"))]
    fn id(&self) -> zbus::Result<String>;
    #[zbus(property(emits_changed_signal = "false"))]
    fn load_state(&self) -> zbus::Result<String>;
    #[zbus(property(emits_changed_signal = "false"))]
    fn active_state(&self) -> zbus::Result<String>;
    /// The state in the words of its kind of unit.
    #[zbus(property(emits_changed_signal = "false"))]
    fn sub_state(&self) -> zbus::Result<String>;
    /// Sixteen bytes that name the current or last run of the unit; none if there was none.
    #[zbus(property(emits_changed_signal = "false"), name = "InvocationID")]
    fn invocation_id(&self) -> zbus::Result<Vec<u8>>;
    #[zbus(property(emits_changed_signal = "false"))]
    fn need_daemon_reload(&self) -> zbus::Result<bool>;
    /// The job that is queued or runs for it; number 0 if there is none.
    #[zbus(property(emits_changed_signal = "false"))]
    fn job(&self) -> zbus::Result<(u32, OwnedObjectPath)>;
}
