//! The bundle that the flags of `tectonic-torcx-bootstrap` amount to, where there is no spec.
//!
//! Inputs: the flags, typed, and what only the caller can know of the machine. Outputs: a bundle of the layout tectonic without the
//! kubelet's files, which are an installer's: what the node finds out, the gate, and the unit that empties docker's folder. The unit that
//! runs the program is the installer's, too.
//! Failures: flags that contradict each other, and an address that is none.

use std::collections::{BTreeMap, BTreeSet};

use bundle::torcx::{
    AddonName, DEFAULT_MANIFEST_URL, KUBELET_ENV_SEED_PATH, KubernetesVersion, MAPPINGS_SEED_PATH, ProfileName,
    UrlTemplate,
};
use bundle::{
    AbsolutePath, Bundle, Downloads, Follow, FollowedAddon, FollowedRelease, Gate, GateFact, Join, Layout,
    MappingsPlace, NodeKind, OsUpdate, Provenance, Provider, Role, Runtime, RuntimeName, RuntimeSource, Secret,
    SeedFallback, Signatures,
};
use spec::Os;

use crate::clean_up::{self, CalledBy};
use crate::error::RenderError;
use crate::follow::{ADDON, DOCKERS_DATA};
use crate::kubelet::KUBELET_UNIT;
use crate::node::finish;
use crate::part::{Part, name, path};

/// Each field but the last ones is a flag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OldFlags {
    /// `--kubeconfig`: of the kubelet, and whom to ask.
    pub kubeconfig: AbsolutePath,
    /// `--torcx-manifest-url`; empty: the address of Tectonic's own time.
    pub torcx_manifest_url: String,
    /// `--torcx-profile`.
    pub torcx_profile: ProfileName,
    /// `--force-kube-version`.
    pub force_kube_version: Option<KubernetesVersion>,
    /// `--no-verify-signatures`.
    pub no_verify_signatures: bool,
    /// `--keyring`.
    pub keyring: Option<AbsolutePath>,
    /// `--version-manifest`; `None`: where an installer leaves it.
    pub version_manifest: Option<AbsolutePath>,
    /// `--kubelet-env-path`.
    pub kubelet_env_path: AbsolutePath,
    /// `--upgrade-os`.
    pub upgrade_os: bool,
    /// `--torcx-skip-setup`.
    pub torcx_skip_setup: bool,
    /// What the machine runs.
    pub os: Os,
    /// Where the kubeconfig says that the API server is.
    pub api_server: String,
    /// Where this very program lies, whatever it is called there.
    pub nodestrap: AbsolutePath,
    /// From the environment: for the scheme of package lists, as [`OldFlags::is_by_https`] says.
    pub proxy: Option<Secret>,
    pub no_proxy: Vec<String>,
}

/// What there is no flag for.
const CLUSTER: &str = "tectonic";
const GROUP: &str = "tectonic-torcx-bootstrap";
/// As long as nobody forces a release.
const RELEASE_OF_THE_CLUSTER: &str = "the release of the cluster";

impl OldFlags {
    fn manifest_url(&self) -> &str {
        match self.torcx_manifest_url.as_str() {
            "" => DEFAULT_MANIFEST_URL,
            written => written,
        }
    }

    /// Which proxy of the environment counts: that for https, or that for http.
    pub fn is_by_https(&self) -> bool {
        !self.manifest_url().starts_with("http://")
    }

    fn follow(&self) -> Result<Follow, RenderError> {
        Ok(Follow {
            release: FollowedRelease {
                forced: self.force_kube_version.clone(),
                kubeconfig: self.kubeconfig.clone(),
                seed: path(KUBELET_ENV_SEED_PATH)?,
                seed_fallback: SeedFallback::Allowed,
                minors: BTreeSet::new(),
            },
            addon: if self.torcx_skip_setup { None } else { Some(self.addon()?) },
            os_update: if self.upgrade_os { OsUpdate::Attempt } else { OsUpdate::Ask },
        })
    }

    fn addon(&self) -> Result<FollowedAddon, RenderError> {
        let refuse = |flag, problem: String| RenderError::OldFlag { flag, problem };
        let manifest_url = UrlTemplate::parse(self.manifest_url());
        Ok(FollowedAddon {
            name: AddonName::new(ADDON)?,
            profile: self.torcx_profile.clone(),
            manifest_url: manifest_url.map_err(|error| refuse("torcx-manifest-url", error.to_string()))?,
            signatures: match (self.no_verify_signatures, &self.keyring) {
                (true, _) => Signatures::Unverified {},
                (false, Some(keyring)) => Signatures::By { keyrings: [keyring.clone()].into() },
                (false, None) => {
                    let problem = "nobody is named who must have signed package lists: name a file of keys, or say \
                                   --no-verify-signatures";
                    return Err(refuse("keyring", problem.to_owned()));
                }
            },
            mappings: MappingsPlace::default(),
            mappings_seed: match &self.version_manifest {
                Some(written) => written.clone(),
                None => path(MAPPINGS_SEED_PATH)?,
            },
            data_folder: Some(path(DOCKERS_DATA)?),
        })
    }
}

pub fn bundle_of_flags(flags: &OldFlags) -> Result<Bundle, RenderError> {
    let follow = flags.follow()?;
    // The kubelet's unit is an installer's, as are its files: it is enabled, and starts anew until its environment is there.
    let mut part = Part::default();
    if follow.addon.is_some() {
        part.add(clean_up::render(flags.nodestrap.as_str(), CalledBy::Name)?);
    }
    let forced = flags.force_kube_version.as_ref();
    finish(Bundle {
        cluster: CLUSTER.to_owned(),
        group: GROUP.to_owned(),
        kubernetes_version: forced
            .map_or(RELEASE_OF_THE_CLUSTER, |forced| forced.as_str().trim_start_matches('v'))
            .to_owned(),
        node: NodeKind { role: Role::Worker, os: flags.os, provider: Provider::Metal, layout: Layout::Tectonic },
        required_programs: Vec::new(),
        files: part.files,
        units: part.units,
        idle_units: Vec::new(),
        hooks: Vec::new(),
        runtime: Runtime {
            name: RuntimeName::Docker,
            unit: name("docker.service")?,
            source: match flags.torcx_skip_setup {
                true => RuntimeSource::Preinstalled,
                false => RuntimeSource::Torcx,
            },
        },
        trees: Vec::new(),
        extensions: Vec::new(),
        downloads: follow.addon.is_some().then(|| Downloads {
            provenance: Provenance::OnNode {},
            certificate_authorities: None,
            no_proxy: if flags.proxy.is_some() { flags.no_proxy.clone() } else { Vec::new() },
            proxy: flags.proxy.clone(),
            s3: None,
        }),
        packages: None,
        follow: Some(follow),
        gate: Gate {
            path: flags.kubelet_env_path.clone(),
            // The installer's seed has the rest.
            environment: BTreeMap::new(),
            facts: [GateFact::KubeletImageTag].into(),
            max_pods: None,
        },
        join: Join {
            api_server: flags.api_server.clone(),
            // Such a kubelet needs no certificate of its own.
            bootstrap_kubeconfig: flags.kubeconfig.clone(),
            kubeconfig: flags.kubeconfig.clone(),
            client_certificate: flags.kubeconfig.clone(),
            kubelet_unit: name(KUBELET_UNIT)?,
            node_name: None,
        },
        pod_network: None,
        snap: None,
        webhook: None,
    })
}

#[cfg(test)]
mod tests {
    use bundle::{CLEAN_UP_UNIT, Start};

    use super::*;

    fn place(path: &str) -> AbsolutePath {
        AbsolutePath::new(path).unwrap()
    }

    /// As the program has them by default.
    fn flags() -> OldFlags {
        OldFlags {
            kubeconfig: place("/etc/kubernetes/kubeconfig"),
            torcx_manifest_url: "https://torcx.example.com/{{.Board}}/{{.OSVersion}}/torcx_manifest.json".to_owned(),
            torcx_profile: ProfileName::new("tectonic").unwrap(),
            force_kube_version: None,
            no_verify_signatures: false,
            keyring: Some(place("/pubring.gpg")),
            version_manifest: None,
            kubelet_env_path: place("/etc/kubernetes/kubelet.env"),
            upgrade_os: true,
            torcx_skip_setup: false,
            os: Os::ContainerLinux,
            api_server: "https://10.0.0.1:443".to_owned(),
            nodestrap: place("/opt/bin/tectonic-torcx-bootstrap"),
            proxy: None,
            no_proxy: vec!["10.0.0.0/8".to_owned()],
        }
    }

    fn bundle(flags: &OldFlags) -> Bundle {
        bundle_of_flags(flags).unwrap_or_else(|error| panic!("{error}"))
    }

    fn addon(flags: &OldFlags) -> FollowedAddon {
        bundle(flags).follow.unwrap().addon.unwrap()
    }

    #[test]
    fn defaults_are_a_bundle_that_is_read_back() {
        let made = bundle(&flags());
        assert_eq!(Bundle::parse(made.to_json().as_bytes()).unwrap(), made);
        let follow = made.follow.as_ref().unwrap();
        assert_eq!((&follow.release.forced, follow.os_update), (&None, OsUpdate::Attempt));
        assert_eq!((follow.release.minors.len(), follow.release.seed_fallback), (0, SeedFallback::Allowed));
        assert_eq!((made.gate.environment.len(), &made.gate.facts), (0, &[GateFact::KubeletImageTag].into()));
        let addon = follow.addon.as_ref().unwrap();
        assert_eq!(addon.mappings_seed, "/etc/kubernetes/installer/runtime-mappings.yaml");
        assert_eq!(addon.data_folder.as_ref().unwrap(), "/var/lib/docker");
        assert_eq!(addon.signatures, Signatures::By { keyrings: [place("/pubring.gpg")].into() });
        assert_eq!((made.runtime.source, made.node.os), (RuntimeSource::Torcx, Os::ContainerLinux));
        let units: Vec<(&str, Start)> = made.units.iter().map(|unit| (unit.name.as_str(), unit.start)).collect();
        assert_eq!(units, [(CLEAN_UP_UNIT, Start::ByOthers)], "the kubelet's is an installer's");
        assert!(made.files.iter().all(|file| file.path.contains("clean-runtime-data")), "{:?}", made.files);
    }

    /// By its name it would be taken for the old program, whose flags it does not get there.
    #[test]
    fn the_unit_that_empties_a_folder_calls_the_program_by_its_own_name() {
        let made = bundle(&flags());
        let file = made.file("/etc/systemd/system/nodestrap-clean-runtime-data.service").unwrap();
        let text = file.content.text().unwrap();
        let command = "\nExecStart=@/opt/bin/tectonic-torcx-bootstrap nodestrap clean-runtime-data\n";
        assert!(text.contains(command), "{text}");
    }

    #[test]
    fn each_flag_is_heeded() {
        let forced = KubernetesVersion::parse("v1.9.6+coreos.0").unwrap();
        let changed = OldFlags {
            kubeconfig: place("/etc/kubelet/kubeconfig"),
            torcx_profile: ProfileName::new("mine").unwrap(),
            force_kube_version: Some(forced.clone()),
            no_verify_signatures: true,
            keyring: None,
            version_manifest: Some(place("/etc/mappings.yaml")),
            kubelet_env_path: place("/etc/kubelet.env"),
            upgrade_os: false,
            os: Os::Flatcar,
            proxy: Some(Secret::new("http://proxy.example.com:3128")),
            ..flags()
        };
        let made = bundle(&changed);
        let follow = made.follow.as_ref().unwrap();
        assert_eq!((follow.release.forced.as_ref(), follow.os_update), (Some(&forced), OsUpdate::Ask));
        assert_eq!((made.kubernetes_version.as_str(), made.node.os), ("1.9.6+coreos.0", Os::Flatcar));
        for place in [&follow.release.kubeconfig, &made.join.kubeconfig, &made.join.bootstrap_kubeconfig] {
            assert_eq!(*place, "/etc/kubelet/kubeconfig");
        }
        assert_eq!(made.gate.path, "/etc/kubelet.env");
        let addon = addon(&changed);
        assert_eq!((addon.profile.as_str(), addon.signatures), ("mine", Signatures::Unverified {}));
        assert_eq!(addon.mappings_seed, "/etc/mappings.yaml");
        let downloads = made.downloads.unwrap();
        assert_eq!(downloads.proxy.unwrap().expose(), "http://proxy.example.com:3128");
        assert_eq!(downloads.no_proxy, ["10.0.0.0/8"]);
    }

    /// The bucket is gone; but who says nothing means it, and is told so when it does not answer.
    #[test]
    fn an_empty_address_is_that_of_tectonics_time() {
        let silent = OldFlags { torcx_manifest_url: String::new(), ..flags() };
        assert!(addon(&silent).manifest_url.is_dead() && silent.is_by_https());
        let plain = OldFlags { torcx_manifest_url: "http://torcx.example.com/{{.Board}}".to_owned(), ..flags() };
        assert!(!plain.is_by_https());
    }

    #[test]
    fn without_torcx_there_is_nothing_to_download_and_nothing_to_empty() {
        let skipped = OldFlags { torcx_skip_setup: true, keyring: None, ..flags() };
        let made = bundle(&skipped);
        assert_eq!((made.follow.unwrap().addon, made.downloads), (None, None));
        assert_eq!((made.runtime.source, made.units.len(), made.files.len()), (RuntimeSource::Preinstalled, 0, 0));
    }

    #[test]
    fn what_cannot_be_meant_names_its_flag() {
        let nobody = OldFlags { keyring: None, ..flags() };
        let template = OldFlags { torcx_manifest_url: "https://torcx.example.com/{{.Channel}}".to_owned(), ..flags() };
        for (flags, said) in [(nobody, "--keyring"), (template, "--torcx-manifest-url")] {
            let error = bundle_of_flags(&flags).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
        let gate = OldFlags { kubelet_env_path: place("/etc/systemd/system"), ..flags() };
        assert!(matches!(bundle_of_flags(&gate), Err(RenderError::Bundle { .. })));
    }
}
