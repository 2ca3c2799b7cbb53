//! containerd's configuration, version 3.

use serde_json::{Value, json};

use super::{Check, default, derived, leaf_text, overlay};
use crate::complete::{CompleteCluster, CompleteKubelet, ConfigNode, ConfigTree, GroupSpec};
use crate::config;
use crate::origin::Setting;
use crate::values::{PodNetwork, Runtime};
use crate::items::{AbsolutePath, Image};

const IMAGES: &str = "io.containerd.cri.v1.images";
const RUNTIME: &str = "io.containerd.cri.v1.runtime";
/// The one plug-in of configuration version 2 that version 3 has split in two.
const OLD_CRI: &str = "io.containerd.grpc.v1.cri";

const SANDBOX: &[&str] = &["plugins", IMAGES, "pinned_images", "sandbox"];
const REGISTRY_CREDENTIALS: &[&str] = &["plugins", IMAGES, "registry", "configs"];
const REGISTRIES: &[&str] = &["plugins", IMAGES, "registry", "config_path"];
const SYSTEMD_CGROUP: &[&str] = &["plugins", RUNTIME, "containerd", "runtimes", "runc", "options", "SystemdCgroup"];
const BIN_DIRS: &[&str] = &["plugins", RUNTIME, "cni", "bin_dirs"];
const CONF_DIR: &[&str] = &["plugins", RUNTIME, "cni", "conf_dir"];
const CNI_CONFIGURATION: &str = "/etc/cni/net.d";

pub(super) struct Inputs<'a> {
    pub(super) group: &'a str,
    pub(super) runtime: Runtime,
    pub(super) spec: &'a GroupSpec,
    pub(super) cluster: &'a CompleteCluster,
    pub(super) kubelet: &'a CompleteKubelet,
    pub(super) sandbox_image: &'a Setting<Image>,
    pub(super) cni_binaries: &'a Setting<AbsolutePath>,
}

pub(super) fn complete_config(inputs: &Inputs<'_>, check: &Check<'_>) -> ConfigTree {
    let systemd = leaf_text(&inputs.kubelet.config, &["cgroupDriver"]) == Some("systemd");
    let user = &inputs.spec.container_runtime.config;
    if inputs.runtime != Runtime::Containerd {
        if let Some(origin) = user.values().find_map(config::origin_of) {
            check.report(
                Some(origin),
                format!("this is a configuration of containerd, and the nodes run {}", inputs.runtime),
                "remove it; what the image's runtime needs can be a file asset",
            );
        }
        return ConfigTree::new();
    }
    check_agreement(inputs, systemd, user, check);
    overlay(ours(inputs, systemd), user, check)
}

fn ours(inputs: &Inputs<'_>, systemd: bool) -> ConfigTree {
    let group = inputs.group;
    let here = |path: &str| vec![format!("nodeGroups.{group}.{path}")];
    let mut ours = ConfigTree::new();
    let mut set = |path: &[&str], setting: Setting<Value>| config::insert(&mut ours, path, setting);
    set(&["version"], default(json!(3), "the version of the configuration that containerd 2 writes"));
    set(
        SANDBOX,
        derived(
            json!(inputs.sandbox_image.value.as_str()),
            here("containerRuntime.sandboxImage"),
            "pinned, so that it is never collected as garbage",
        ),
    );
    set(
        &["plugins", RUNTIME, "containerd", "default_runtime_name"],
        default(json!("runc"), "the runtime that every image brings"),
    );
    set(
        &["plugins", RUNTIME, "containerd", "runtimes", "runc", "runtime_type"],
        default(json!("io.containerd.runc.v2"), "containerd's shim for runc"),
    );
    set(
        SYSTEMD_CGROUP,
        derived(
            json!(systemd),
            here("kubelet.config.cgroupDriver"),
            "the kubelet and the runtime must manage cgroups in the same way",
        ),
    );
    set(
        BIN_DIRS,
        derived(json!([inputs.cni_binaries.value.as_str()]), here("containerRuntime.cniBinaries"), "where the plug-ins are"),
    );
    if !inputs.cluster.registry_mirrors.value.is_empty() {
        set(
            REGISTRIES,
            derived(
                json!("/etc/containerd/certs.d"),
                vec!["cluster.registryMirrors".to_owned()],
                "nodestrap writes the mirrors of each registry there",
            ),
        );
    }
    set(
        CONF_DIR,
        default(json!(CNI_CONFIGURATION), "where CNI DaemonSets and nodestrap write the network's configuration"),
    );
    ours
}

fn say(message: &str, advice: &str) -> (String, String) {
    (message.to_owned(), advice.to_owned())
}

/// What would make a node that looks configured and does not work is refused here, not found out on the node.
fn check_agreement(inputs: &Inputs<'_>, systemd: bool, user: &ConfigTree, check: &Check<'_>) {
    check.agree(
        user,
        &["version"],
        |value| value == &json!(3),
        || {
            say(
                "nodestrap writes version 3 of containerd's configuration",
                "`containerd config migrate` shows the new form",
            )
        },
    );
    check.agree(
        user,
        &["plugins", OLD_CRI],
        |_| false,
        || {
            say(
                "containerd 2 ignores the plug-in \"io.containerd.grpc.v1.cri\" here: version 3 has split it in two",
                "use \"io.containerd.cri.v1.images\" for images and \"io.containerd.cri.v1.runtime\" for the rest",
            )
        },
    );
    check.agree(
        user,
        SANDBOX,
        |value| value == &json!(inputs.sandbox_image.value.as_str()),
        || say("the sandbox image differs from containerRuntime.sandboxImage", "write it in sandboxImage only"),
    );
    check_cgroup_drivers(systemd, user, check);
    check_network(inputs, user, check);
    check.agree(
        user,
        REGISTRY_CREDENTIALS,
        |_| false,
        || {
            say(
                "credentials of registries are not supported in a spec: they would be printed and hashed",
                "use registry.config_path with a hosts.toml in the image, or a credential provider of the kubelet",
            )
        },
    );
}

/// Of every runtime, ours and the user's.
fn check_cgroup_drivers(systemd: bool, user: &ConfigTree, check: &Check<'_>) {
    if let Some(ConfigNode::Branch(runtimes)) = config::find(user, &["plugins", RUNTIME, "containerd", "runtimes"]) {
        for runtime in runtimes.keys() {
            check.agree(
                runtimes,
                &[runtime, "options", "SystemdCgroup"],
                |value| value == &json!(systemd),
                || {
                    let advice = format!("it must be {systemd}, as kubelet.config.cgroupDriver says");
                    ("SystemdCgroup contradicts the kubelet's cgroupDriver".to_owned(), advice)
                },
            );
        }
    }
}

fn check_network(inputs: &Inputs<'_>, user: &ConfigTree, check: &Check<'_>) {
    let contains = |value: &Value| {
        value.as_array().is_some_and(|folders| folders.iter().any(|folder| folder == &json!(inputs.cni_binaries.value.as_str())))
    };
    check.agree(user, BIN_DIRS, contains, || {
        say("bin_dirs does not contain containerRuntime.cniBinaries", "add that folder, or change cniBinaries")
    });
    if inputs.cluster.networking.pod_network.value == PodNetwork::Bridge {
        check.agree(
            user,
            CONF_DIR,
            |value| value == &json!(CNI_CONFIGURATION),
            || {
                say(
                    "the pod network \"bridge\" is configured in /etc/cni/net.d",
                    "leave conf_dir out, or set networking.podNetwork: none",
                )
            },
        );
    }
}
