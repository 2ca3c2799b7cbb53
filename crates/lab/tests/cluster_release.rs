//! The real API server says which release it is and which runtimes go with it, to a node by its own kubeconfig.

// Tests are all effects.
#![allow(clippy::disallowed_methods)]

use std::time::Duration;

use bundle::SeedFallback;
use cluster::{Access, Answer, ConfigMapKey, GitVersion, Identity, Patience};
use host::disk::RootedDisk;
use lab::{Lab, LabOptions, repository, wait_until};
use node::cluster_release::{Asked, Asker, Seed, SeedSource, Source, Wanted, ask_mappings, ask_version, decide};

const KUBECONFIG: &str = "/var/lib/kubelet/kubeconfig";
const WHAT: &str = "the table of runtimes";
/// RBAC is read by the API server from a watch of its own.
const RBAC_DEADLINE: Duration = Duration::from_secs(60);
const MAPPINGS: &str = "kind: VersionManifestV1\nversions:\n  k8s:\n    1.10: {docker: [\"17.03\"]}\n";

fn text(access: &Access, name: &str) -> anyhow::Result<Asked<String>> {
    let place = ConfigMapKey::new("tectonic-system", name, "runtime-mappings.yaml").map_err(anyhow::Error::msg)?;
    Ok(ask_mappings(access, &place, Patience::default(), |text| Ok(text.to_owned()))?)
}

/// Who asks, each as it can be made anew on the thread that asks.
#[derive(Clone)]
enum Who {
    Node(std::path::PathBuf),
    Bearer { server: &'static str, authority: String, token: String },
}

impl Who {
    fn access(&self) -> anyhow::Result<Access> {
        match self {
            Self::Node(root) => Ok(node::read_access(&RootedDisk::open(root)?, KUBECONFIG)?),
            Self::Bearer { server, authority, token } => {
                Ok(Access::new(server, Some(authority.as_bytes()), &Identity::Token(token.clone()))?)
            }
        }
    }

    fn mappings(&self, lab: &Lab, name: &'static str) -> Answer<String> {
        let who = self.clone();
        lab.in_hub(move || text(&who.access()?, name)).expect("asked").answer
    }

    fn version(&self, lab: &Lab) -> Asked<GitVersion> {
        let who = self.clone();
        lab.in_hub(move || Ok(ask_version(&who.access()?, Patience::default())?)).expect("asked")
    }
}

#[test]
fn a_node_reads_the_one_config_map_that_the_shipped_role_lets_it_read_and_no_other() {
    if !lab::require() {
        return;
    }
    const NAME: &str = "tectonic-torcx-runtime-mappings";
    let lab = Lab::up(LabOptions::default()).expect("lab");
    let node = lab.add_plain_node("n1").expect("node");
    lab.kubectl(&["create", "namespace", "tectonic-system"]).expect("namespace");
    for name in [NAME, "another"] {
        let literal = format!("--from-literal=runtime-mappings.yaml={MAPPINGS}");
        lab.kubectl(&["create", "configmap", name, "--namespace=tectonic-system", &literal]).expect("ConfigMap");
    }
    let bearer = |token: &str| Who::Bearer {
        server: lab.api_server_url(),
        authority: lab.ca_pem().to_owned(),
        token: token.to_owned(),
    };
    let nodes = [Who::Node(node.root()), bearer(lab.bootstrap_token())];

    for who in &nodes {
        let version = who.version(&lab);
        assert!(matches!(&version, Asked { answer: Answer::Found(_), by: Asker::Node }), "{version:?}");
        assert_eq!(who.mappings(&lab, NAME), Answer::Refused { status: 403 }, "without the role");
    }
    let seed = Seed::Found { value: String::new(), source: SeedSource::BuiltIn };
    let refused = Wanted::Cluster(Asked { answer: Answer::Refused { status: 403 }, by: Asker::Node });
    let decided = decide(WHAT, refused, seed, SeedFallback::Allowed).expect("the seed stands in");
    assert!(
        matches!(decided.source, Source::Seed { .. }),
        "without the role nobody would notice: {:?}",
        decided.source
    );

    let role = repository().join("dist/kubernetes/runtime-mappings.yaml");
    lab.kubectl(&["apply", "-f", &role.display().to_string()]).expect("the role is one");
    for who in &nodes {
        let found = Answer::Found(MAPPINGS.to_owned());
        wait_until("the mappings", RBAC_DEADLINE, || Ok((who.mappings(&lab, NAME) == found).then_some(())))
            .expect("with the role");
        assert_eq!(who.mappings(&lab, "another"), Answer::Refused { status: 403 }, "that one only");
    }
    lab.kubectl(&["delete", "configmap", NAME, "--namespace=tectonic-system"]).expect("deleted");
    assert_eq!(nodes[0].mappings(&lab, NAME), Answer::NotThere);

    let unknown = bearer("abcdef.0123456789abcdef").version(&lab);
    assert!(matches!(&unknown, Asked { answer: Answer::Found(_), by: Asker::Anybody }), "{unknown:?}");
}
