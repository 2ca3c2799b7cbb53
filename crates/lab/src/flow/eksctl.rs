//! eksctl's nodes: images that pass for those of EKS, and a machine that AWS knows.

use std::path::Path;

use anyhow::Result;

use crate::eks_images::{stand_in_for_amazon_linux_2, stand_in_for_ubuntu_of_eks};
use crate::lab::Lab;
use crate::metadata::{Instance, Provider};
use crate::node::{Node, NodeOptions};
use crate::worker_spec::WorkerSpec;

/// The plug-in of the VPC would write one; this is of the lab's own network.
const CNI: &str = r#"{"cniVersion":"1.0.0","name":"lab","plugins":[{"type":"bridge","bridge":"cni0","isGateway":true,"ipMasq":true,"ipam":{"type":"host-local","ranges":[[{"subnet":"10.97.200.0/24"}]],"routes":[{"dst":"0.0.0.0/0"}]}}]}"#;

/// The images that eksctl boots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EksImage {
    AmazonLinux2,
    Ubuntu,
}

impl EksImage {
    /// A common one for such a machine.
    pub fn instance_type(self) -> &'static str {
        match self {
            Self::AmazonLinux2 => "m5.large",
            Self::Ubuntu => "t3.medium",
        }
    }

    /// As people call it.
    fn name(self) -> &'static str {
        match self {
            Self::AmazonLinux2 => "Amazon Linux 2",
            Self::Ubuntu => "Ubuntu",
        }
    }

    /// The name of its system in a spec.
    fn os(self) -> &'static str {
        match self {
            Self::AmazonLinux2 => "al2",
            Self::Ubuntu => "ubuntu",
        }
    }

    /// For [`NodeOptions::before_boot`].
    pub fn make(self, root: &Path) -> Result<()> {
        match self {
            Self::AmazonLinux2 => stand_in_for_amazon_linux_2(root),
            Self::Ubuntu => stand_in_for_ubuntu_of_eks(root),
        }
    }

    pub(super) fn options(
        self,
        lab: &Lab,
        name: &str,
        nodestrap: &Path,
        say: &dyn Fn(&str),
    ) -> Result<NodeOptions<'static>> {
        let user_data = eks_spec(lab, self, "").user_data(nodestrap)?;
        say(&format!("{} bytes of user data for an image that passes for {} of EKS", user_data.len(), self.name()));
        let options = NodeOptions::named(name).user_data(user_data).nodestrap(nodestrap);
        Ok(options.before_boot(move |root| self.make(root)))
    }
}

/// The spec of such a group; `more` are further fields of it.
pub fn eks_spec(lab: &Lab, image: EksImage, more: &str) -> WorkerSpec {
    WorkerSpec {
        // The network of pods is the business of the cluster in this layout.
        service_cidrs: "[10.98.0.0/24], podNetwork: none",
        cluster: "provider: aws\nregion: eu-west-1\nlayout: eksctl\n".to_owned(),
        group: format!(
            "os: {}\n{more}fileAssets:\n- path: /etc/cni/net.d/10-lab.conflist\n  content: |\n    {CNI}\n",
            image.os()
        ),
        ..WorkerSpec::of(lab)
    }
}

/// What AWS knows about the machine.
pub fn eks_instance(node: &Node, kind: &str) -> Instance {
    Instance {
        kind: kind.to_owned(),
        ipv4: Some(node.addresses().v4.to_string()),
        region: "eu-west-1".to_owned(),
        zone: "eu-west-1a".to_owned(),
        ..Instance::of(Provider::Aws)
    }
}
