//! containerd's configuration: version 3, or version 2 if the user says so.

use serde_json::{Value, json};

use super::{Check, default, derived, leaf_text, overlay};
use crate::complete::{CompleteCluster, CompleteKubelet, GroupSpec};
use crate::config;
use crate::config_tree::{ConfigNode, ConfigTree};
use crate::items::Hook;
use crate::origin::Setting;
use crate::syntax;
use crate::texts::{AbsolutePath, ComponentVersion, Image};
use crate::values::{PodNetwork, Runtime};

/// Where things stand in a version of the configuration.
struct Places {
    version: u64,
    reason: &'static str,
    sandbox: &'static [&'static str],
    registry_credentials: &'static [&'static str],
    registries: &'static [&'static str],
    runtime: &'static str,
    cni_binaries: &'static str,
}

/// containerd 2.
const THIRD: Places = Places {
    version: 3,
    reason: "the version of the configuration that containerd 2 reads",
    sandbox: &["plugins", "io.containerd.cri.v1.images", "pinned_images", "sandbox"],
    registry_credentials: &["plugins", "io.containerd.cri.v1.images", "registry", "configs"],
    registries: &["plugins", "io.containerd.cri.v1.images", "registry", "config_path"],
    runtime: "io.containerd.cri.v1.runtime",
    cni_binaries: "bin_dirs",
};

/// containerd 2.0 has one folder for CNI plug-ins; 2.1 warns of that, and 2.4 has the list alone.
const THIRD_AT_FIRST: Places = Places { cni_binaries: "bin_dir", ..THIRD };

/// containerd 1, for images that still have it: one plug-in that version 3 has split in two.
const SECOND: Places = Places {
    version: 2,
    reason: "the version of the configuration that containerd 1 reads",
    sandbox: &["plugins", OLD_CRI, "sandbox_image"],
    registry_credentials: &["plugins", OLD_CRI, "registry", "configs"],
    registries: &["plugins", OLD_CRI, "registry", "config_path"],
    runtime: OLD_CRI,
    cni_binaries: "bin_dir",
};

const OLD_CRI: &str = "io.containerd.grpc.v1.cri";

impl Places {
    fn runc(&self, rest: &[&'static str]) -> Vec<&'static str> {
        [&["plugins", self.runtime, "containerd", "runtimes", "runc"], rest].concat()
    }

    fn cni(&self, name: &'static str) -> [&'static str; 4] {
        ["plugins", self.runtime, "cni", name]
    }

    /// Networks of clusters bring plug-ins of their own, which cannot go into an extension.
    fn folders(&self, folder: &str, plugins_in_extension: bool) -> Value {
        match self.cni_binaries {
            "bin_dirs" if plugins_in_extension => json!([folder, ADDED_PLUGINS]),
            "bin_dirs" => json!([folder]),
            _ => json!(folder),
        }
    }
}

/// Where the pods of a cluster's network put plug-ins.
const ADDED_PLUGINS: &str = "/opt/cni/bin";
const CNI_CONFIGURATION: &str = "/etc/cni/net.d";

pub(super) struct Inputs<'a> {
    pub(super) group: &'a str,
    pub(super) runtime: Runtime,
    /// Where it is known.
    pub(super) version: Option<&'a Setting<ComponentVersion>>,
    pub(super) kubernetes_minor: u32,
    pub(super) spec: &'a GroupSpec,
    pub(super) cluster: &'a CompleteCluster,
    pub(super) kubelet: &'a CompleteKubelet,
    pub(super) sandbox_image: &'a Setting<Image>,
    pub(super) cni_binaries: &'a Setting<AbsolutePath>,
    /// Nothing can be added to their folder.
    pub(super) plugins_in_extension: bool,
    pub(super) hooks: &'a [Hook],
}

pub(super) fn complete_config(inputs: &Inputs<'_>, check: &Check<'_>) -> ConfigTree {
    let systemd = leaf_text(&inputs.kubelet.config, &["cgroupDriver"]) == Some("systemd");
    let user = &inputs.spec.container_runtime.config;
    if inputs.runtime != Runtime::Containerd {
        if let Some(origin) = user.iter().find_map(|(_, node)| config::origin_of(node)) {
            check.report(
                Some(origin),
                format!("this is a configuration of containerd, and the nodes run {}", inputs.runtime),
                "remove it; what the image's runtime needs can be a file asset",
            );
        }
        return ConfigTree::new();
    }
    let old = config::find(user, &["version"]).map(config::node_to_json) == Some(json!(2));
    let release = inputs.version.and_then(|version| named_release(version.value.as_str()));
    let names_one_folder = config::find(user, &THIRD_AT_FIRST.cni("bin_dir")).is_some();
    let places = match release {
        _ if old => &SECOND,
        Some((2, 0)) => &THIRD_AT_FIRST,
        None if names_one_folder => &THIRD_AT_FIRST,
        _ => &THIRD,
    };
    check_agreement(inputs, places, systemd, user, check);
    check_release(inputs, places, release, user, check);
    overlay(ours(inputs, places, systemd), user, check)
}

fn ours(inputs: &Inputs<'_>, places: &Places, systemd: bool) -> ConfigTree {
    let group = inputs.group;
    let here = |path: &str| vec![format!("nodeGroups.{group}.{path}")];
    let mut ours = ConfigTree::new();
    let mut set = |path: &[&str], setting: Setting<Value>| config::insert(&mut ours, path, setting);
    set(&["version"], default(json!(places.version), places.reason));
    set(
        places.sandbox,
        derived(
            json!(inputs.sandbox_image.value.as_str()),
            here("containerRuntime.sandboxImage"),
            "pinned, so that it is never collected as garbage",
        ),
    );
    set(
        &["plugins", places.runtime, "containerd", "default_runtime_name"],
        default(json!("runc"), "the runtime that every image brings"),
    );
    set(&places.runc(&["runtime_type"]), default(json!("io.containerd.runc.v2"), "containerd's shim for runc"));
    set(
        &places.runc(&["options", "SystemdCgroup"]),
        derived(
            json!(systemd),
            here("kubelet.config.cgroupDriver"),
            "the kubelet and the runtime must manage cgroups in the same way",
        ),
    );
    set(
        &places.cni(places.cni_binaries),
        derived(
            places.folders(inputs.cni_binaries.value.as_str(), inputs.plugins_in_extension),
            here("containerRuntime.cniBinaries"),
            "where the plug-ins are",
        ),
    );
    if !inputs.cluster.registry_mirrors.value.is_empty() {
        set(
            places.registries,
            derived(
                json!("/etc/containerd/certs.d"),
                vec!["cluster.registryMirrors".to_owned()],
                "nodestrap writes the mirrors of each registry there",
            ),
        );
    }
    set(
        &places.cni("conf_dir"),
        default(json!(CNI_CONFIGURATION), "where CNI DaemonSets and nodestrap write the network's configuration"),
    );
    ours
}

fn say(message: &str, advice: &str) -> (String, String) {
    (message.to_owned(), advice.to_owned())
}

/// Major and minor: `2.1.4`, `v2.1.4+example`.
fn named_release(version: &str) -> Option<(u32, u32)> {
    let version = version.strip_prefix('v').unwrap_or(version);
    let mut numbers = version.split(|letter: char| !letter.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// containerd 1 does not start with version 3, and no containerd has both ways to name the folder of CNI plug-ins.
fn check_release(
    inputs: &Inputs<'_>,
    places: &Places,
    release: Option<(u32, u32)>,
    user: &ConfigTree,
    check: &Check<'_>,
) {
    if places.version == 2 {
        return;
    }
    if let Some((1, _)) = release {
        let origin = inputs.version.map(|version| &version.origin);
        let advice = match inputs.kubernetes_minor {
            36.. => "name a version of containerd 2, which Kubernetes 1.36 and newer need",
            _ => "write config: {version: 2}",
        };
        check.report(origin, "containerd 1 reads version 2 of its configuration", advice);
    }
    let other = if places.cni_binaries == "bin_dir" { "bin_dirs" } else { "bin_dir" };
    check.agree(
        user,
        &places.cni(other),
        |_| false,
        || {
            say(
                "containerd 2.0 knows bin_dir alone, and newer ones want bin_dirs in its place",
                &format!("write {}, or leave both out", places.cni_binaries),
            )
        },
    );
}

const NEITHER: &str = "nodestrap writes version 3 of containerd's configuration, or version 2 for containerd 1";

/// What would make a node that looks configured and does not work is refused here, not found out on the node.
fn check_agreement(inputs: &Inputs<'_>, places: &Places, systemd: bool, user: &ConfigTree, check: &Check<'_>) {
    let since_36 = inputs.kubernetes_minor >= 36;
    check.agree(
        user,
        &["version"],
        |value| value == &json!(3) || (value == &json!(2) && !since_36),
        || {
            let why =
                if since_36 { "Kubernetes 1.36 and newer need containerd 2, which reads version 3" } else { NEITHER };
            say(why, "`containerd config migrate` shows the new form")
        },
    );
    check.agree(
        user,
        &["plugins", OLD_CRI],
        |_| places.version == 2,
        || {
            say(
                "containerd 2 ignores the plug-in \"io.containerd.grpc.v1.cri\" here: version 3 has split it in two",
                "use \"io.containerd.cri.v1.images\" for images and \"io.containerd.cri.v1.runtime\" for the rest",
            )
        },
    );
    check.agree(
        user,
        places.sandbox,
        |value| value == &json!(inputs.sandbox_image.value.as_str()),
        || say("the sandbox image differs from containerRuntime.sandboxImage", "write it in sandboxImage only"),
    );
    check_cgroup_drivers(places, systemd, user, check);
    check_socket(inputs, user, check);
    check_network(inputs, places, user, check);
    check.agree(
        user,
        places.registry_credentials,
        |_| false,
        || {
            say(
                "credentials of registries are not supported in a spec: they would be printed and hashed",
                "use registry.config_path with a hosts.toml in the image, or a credential provider of the kubelet",
            )
        },
    );
}

/// Where containerd listens unless told otherwise.
pub(super) const SOCKET: &str = "/run/containerd/containerd.sock";
const ADDRESS: &[&str] = &["grpc", "address"];

/// Where the user has it listen.
pub(super) fn written_socket(spec: &GroupSpec) -> Option<&str> {
    leaf_text(&spec.container_runtime.config, ADDRESS)
}

/// Everybody who speaks with containerd must know where.
fn check_socket(inputs: &Inputs<'_>, user: &ConfigTree, check: &Check<'_>) {
    let Some(socket) = written_socket(inputs.spec) else { return };
    check.agree(
        user,
        ADDRESS,
        |_| syntax::validate_absolute_path(socket).is_ok(),
        || (format!("\"{socket}\" is not the path of a socket"), format!("write a path, for example {SOCKET}")),
    );
    // The scheme can be left out, and /var/run is /run.
    let plain = |text: &str| text.strip_prefix("unix://").unwrap_or(text).replacen("/var/run/", "/run/", 1);
    check.agree(
        &inputs.spec.kubelet.config,
        &["containerRuntimeEndpoint"],
        |value| value.as_str().map(plain) == Some(plain(socket)),
        || {
            let message = format!("containerd listens at \"{socket}\", as containerRuntime.config.grpc.address says");
            (message, "leave it out: this field follows from grpc.address".to_owned())
        },
    );
    for hook in inputs.hooks.iter().filter(|hook| hook.container.is_some() && plain(socket) != SOCKET) {
        check.report_item(
            hook.place,
            format!("the container of the hook \"{}\" cannot start: containerd listens at \"{socket}\"", hook.name),
            format!("write a unit, or leave grpc.address out: such hooks ask containerd at {SOCKET}"),
        );
    }
}

/// Of every runtime, ours and the user's.
fn check_cgroup_drivers(places: &Places, systemd: bool, user: &ConfigTree, check: &Check<'_>) {
    if let Some(ConfigNode::Branch(runtimes)) =
        config::find(user, &["plugins", places.runtime, "containerd", "runtimes"])
    {
        for (runtime, _) in runtimes {
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

fn check_network(inputs: &Inputs<'_>, places: &Places, user: &ConfigTree, check: &Check<'_>) {
    let contains = |value: &Value| {
        let wanted = json!(inputs.cni_binaries.value.as_str());
        value == &wanted || value.as_array().is_some_and(|folders| folders.contains(&wanted))
    };
    check.agree(user, &places.cni(places.cni_binaries), contains, || {
        say("this does not contain containerRuntime.cniBinaries", "add that folder, or change cniBinaries")
    });
    if inputs.cluster.networking.pod_network.value == PodNetwork::Bridge {
        check.agree(
            user,
            &places.cni("conf_dir"),
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
