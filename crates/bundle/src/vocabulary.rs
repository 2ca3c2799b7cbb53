//! The words that a spec, a bundle and a node share: one enum each, written as people write them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A text that is none of the words that are possible there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{text}\" is not one of {}", known.join(", "))]
pub struct UnknownWord {
    pub text: String,
    pub known: Vec<&'static str>,
}

/// Words that are known when nodestrap is built; anything else is refused where it is read.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum $name {
            $($(#[$variant_doc])* #[serde(rename = $text)] $variant),+
        }

        impl $name {
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $text),+
                }
            }
        }

        impl FromStr for $name {
            type Err = UnknownWord;

            fn from_str(text: &str) -> Result<Self, UnknownWord> {
                Self::ALL.iter().copied().find(|word| word.as_str() == text).ok_or_else(|| UnknownWord {
                    text: text.to_owned(),
                    known: Self::ALL.iter().map(|word| word.as_str()).collect(),
                })
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str(self.as_str())
            }
        }
    };
}

words!(
    /// How a unit is kept from running.
    Idleness {
        /// Stopped, and not started at boot; another unit may still start it.
        Disabled = "disabled",
        /// Stopped, and started by nobody.
        Masked = "masked",
    }
);

words!(
    /// What the nodes of a group are for.
    Role {
        ControlPlane = "control-plane",
        Worker = "worker",
    }
);
words!(
    /// The operating system of a node.
    Os {
        Flatcar = "flatcar",
        ContainerLinux = "container-linux",
        Debian = "debian",
        Ubuntu = "ubuntu",
        Al2 = "al2",
        Al2023 = "al2023",
        Rhel = "rhel",
        Rhcos = "rhcos",
    }
);
words!(
    /// Who runs the machines.
    Provider {
        Aws = "aws",
        Gce = "gce",
        Azure = "azure",
        Openstack = "openstack",
        Metal = "metal",
    }
);
words!(
    /// Under which paths and names the files of a node lie.
    Layout {
        /// nodestrap's own.
        Nodestrap = "nodestrap",
        /// Those of eksctl's node bootstrap: `/etc/eksctl`.
        Eksctl = "eksctl",
        /// Those of Tectonic: the kubelet in a wrapper, bootkube, torcx.
        Tectonic = "tectonic",
    }
);
words!(
    /// Which container runtime a node runs.
    RuntimeName {
        Containerd = "containerd",
        CriO = "cri-o",
        /// Of the era before the kubelet lost its Docker client.
        Docker = "docker",
    }
);
words!(
    /// Where the container runtime comes from; [`crate::RuntimeSource`] is the same with what it takes.
    SourceKind {
        /// An addon of Container Linux.
        Torcx = "torcx",
        /// A system extension image.
        Sysext = "sysext",
        /// A versioned folder under `/opt` with an atomic link.
        Tree = "tree",
        /// A package of the distribution.
        Package = "package",
        /// It is part of the image.
        Preinstalled = "preinstalled",
    }
);
words!(
    /// Who installs packages on a system.
    PackageManager {
        Apt = "apt",
        Dnf = "dnf",
    }
);
words!(
    /// A part of a node that is installed by itself.
    Component {
        CniPlugins = "cni-plugins",
        Containerd = "containerd",
        Crictl = "crictl",
        Kubectl = "kubectl",
        Kubelet = "kubelet",
        Runc = "runc",
    }
);
words!(
    /// What a download is.
    ArtefactForm {
        /// The program itself.
        Program = "program",
        /// An archive of several files.
        TarGz = "tar.gz",
        /// An image of a system extension.
        Sysext = "sysext",
    }
);
words!(
    /// A system extension, by the name that systemd knows it by.
    ExtensionName {
        /// containerd and runc.
        Containerd = "containerd",
        /// The kubelet and what goes with it.
        Kubernetes = "kubernetes",
    }
);
words!(
    /// When a hook runs, seen from a step of the bootstrap.
    Slot {
        BeforeFiles = "before-files",
        AfterFiles = "after-files",
        BeforeRuntime = "before-runtime",
        AfterRuntime = "after-runtime",
        BeforeKubelet = "before-kubelet",
        /// The gate is open by then: a failure can no longer keep the kubelet from starting.
        AfterKubelet = "after-kubelet",
    }
);
words!(
    /// What a hook that fails does to the bootstrap.
    Necessity {
        Required = "required",
        Optional = "optional",
    }
);
words!(
    /// What only the node can say, as the variable of the gate that carries it.
    GateFact {
        InstanceId = "INSTANCE_ID",
        InstanceType = "INSTANCE_TYPE",
        /// Of the release that the node follows.
        KubeletImageTag = "KUBELET_IMAGE_TAG",
        MaxPods = "MAX_PODS",
        NodeIp = "NODE_IP",
    }
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_back_and_others_are_named_with_what_is_possible() {
        for os in Os::ALL {
            assert_eq!(os.as_str().parse(), Ok(*os));
            assert_eq!(serde_json::to_string(os).unwrap(), format!("\"{os}\""));
        }
        let refused = "windows".parse::<Role>().unwrap_err();
        assert_eq!(refused.to_string(), "\"windows\" is not one of control-plane, worker");
    }
}
