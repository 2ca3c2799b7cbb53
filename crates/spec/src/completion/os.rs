//! What differs between operating systems.

use crate::values::{DeliveryFormat, Os, Runtime};

pub(super) struct Traits {
    pub(super) kubelet: &'static str,
    /// Where programs of trees are linked from: writable, and looked into by units and people. `None`: nowhere.
    pub(super) programs: Option<&'static str>,
    pub(super) runtime: Runtime,
    /// Where nodestrap lies if the image brings it.
    pub(super) nodestrap_in_image: &'static str,
    /// Where a downloaded nodestrap can be put.
    pub(super) nodestrap_downloaded: &'static str,
    pub(super) delivery: DeliveryFormat,
    /// Forms that its first boot understands; a folder always is one.
    pub(super) deliveries: &'static [DeliveryFormat],
    /// systemd-resolved keeps the real name servers here; `/etc/resolv.conf` points to itself and would loop.
    pub(super) resolv_conf: Option<&'static str>,
    /// The usual folder lies in a read-only `/usr`.
    pub(super) volume_plugins: Option<&'static str>,
}

const RESOLVED: Option<&str> = Some("/run/systemd/resolve/resolv.conf");
const CLOUD_INIT: &[DeliveryFormat] = &[DeliveryFormat::CloudConfig, DeliveryFormat::Mime];

/// A distribution with packages, cloud-init and a writable `/usr`.
const MUTABLE: Traits = Traits {
    kubelet: "/usr/bin/kubelet",
    programs: Some("/usr/local/bin"),
    runtime: Runtime::Containerd,
    nodestrap_in_image: "/usr/bin/nodestrap",
    nodestrap_downloaded: "/usr/local/bin/nodestrap",
    delivery: DeliveryFormat::CloudConfig,
    deliveries: CLOUD_INIT,
    resolv_conf: None,
    volume_plugins: None,
};

pub(super) fn traits(os: Os) -> Traits {
    match os {
        Os::Debian | Os::Al2 | Os::Rhel => MUTABLE,
        Os::Ubuntu | Os::Al2023 => Traits { resolv_conf: RESOLVED, ..MUTABLE },
        Os::Flatcar => Traits {
            kubelet: "/opt/bin/kubelet",
            programs: Some("/opt/bin"),
            nodestrap_in_image: "/opt/bin/nodestrap",
            nodestrap_downloaded: "/opt/bin/nodestrap",
            delivery: DeliveryFormat::Ignition,
            deliveries: &[DeliveryFormat::Ignition, DeliveryFormat::Ignition2],
            resolv_conf: RESOLVED,
            volume_plugins: Some("/opt/libexec/kubernetes/kubelet-plugins/volume/exec"),
            ..MUTABLE
        },
        Os::ContainerLinux => Traits {
            kubelet: "/usr/lib/coreos/kubelet-wrapper",
            programs: None,
            runtime: Runtime::Docker,
            nodestrap_in_image: "/opt/bin/nodestrap",
            nodestrap_downloaded: "/opt/bin/nodestrap",
            delivery: DeliveryFormat::Ignition2,
            deliveries: &[DeliveryFormat::Ignition2],
            resolv_conf: RESOLVED,
            volume_plugins: Some("/var/lib/kubelet/volumeplugins"),
        },
        Os::Rhcos => Traits {
            programs: None,
            runtime: Runtime::CriO,
            delivery: DeliveryFormat::Ignition,
            deliveries: &[DeliveryFormat::Ignition],
            volume_plugins: Some("/etc/kubernetes/kubelet-plugins/volume/exec"),
            ..MUTABLE
        },
    }
}
