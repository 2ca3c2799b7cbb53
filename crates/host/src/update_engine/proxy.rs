//! update_engine's D-Bus interface. Reference: `dbus_constants.h` and `UpdateEngine.xml` of its sources, which disagree on the path
//! of the object: all clients use this one.

use zbus::proxy;

/// When it checked last, how far it is, at what, with which version, and how large that is.
pub(super) type RawStatus = (i64, f64, String, String, i64);

#[proxy(
    default_service = "com.coreos.update1",
    default_path = "/com/coreos/update1",
    interface = "com.coreos.update1.Manager"
)]
pub(super) trait Manager {
    fn attempt_update(&self) -> zbus::Result<()>;
    fn get_status(&self) -> zbus::Result<RawStatus>;

    #[zbus(signal)]
    fn status_update(
        &self,
        last_checked: i64,
        progress: f64,
        operation: String,
        new_version: String,
        new_size: i64,
    ) -> zbus::Result<()>;
}
