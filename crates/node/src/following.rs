//! Finds out what a bundle leaves to the node: which release its cluster runs, and which versions of an addon go with that.
//!
//! In: the bundle, the node's disk, whoever can ask the cluster. Out: [`Followed`], each value with its source. Whose word counts is
//! decided in [`crate::cluster_release`]; an answer that the cluster itself gave earlier in the same bootstrap counts before a seed.
//! Reads only. Fails with [`FollowError`], which tells what passes by itself from what a person has to mend.

use std::path::Path;

use bundle::torcx::{AddonName, AddonVersion, KubeletEnv, KubernetesVersion, Minor, RuntimeMappings};
use bundle::{Bundle, FollowedAddon, FollowedRelease};
use cluster::{Access, Answer, ClusterError, ConfigMapKey, GitVersion, Patience};
use engine::ErrorClass;
use host::disk::{Disk, DiskError};

use crate::cluster_release::{
    Asked, Asker, Decided, Seed, SeedSource, Source, Undecided, Wanted, ask_mappings, ask_version, decide,
};
use crate::failure::chain;
use crate::followed::{Followed, Told};
use crate::kubeconfig::{KubeconfigError, parse_access};

/// Kubeconfigs, mappings and environments are far smaller.
const LIMIT: u64 = 1024 * 1024;
const RELEASE: &str = "the version of the cluster";
const MAPPINGS: &str = "the table of runtime mappings";
/// What the gate says of itself is nobody else's to say.
const OWN_VARIABLES: &str = "NODESTRAP_";

#[derive(Debug, thiserror::Error)]
pub enum FollowError {
    #[error("cannot ask the cluster for its version")]
    Kubeconfig(#[source] KubeconfigError),
    #[error("cannot ask the cluster for its version")]
    Cluster(#[source] ClusterError),
    #[error(transparent)]
    Undecided(#[from] Undecided),
    #[error(
        "the cluster runs Kubernetes {release} ({by}), and this bundle was made for {}: write that minor into the spec, render and \
         deliver again", list(.minors)
    )]
    Minor { release: KubernetesVersion, by: String, minors: Vec<Minor> },
    #[error("the ConfigMap of runtime mappings cannot be asked for: {0}")]
    Place(String),
    #[error(transparent)]
    Disk(#[from] DiskError),
}

impl FollowError {
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Undecided(undecided) => undecided.class(),
            _ => ErrorClass::NeedsOperator,
        }
    }
}

fn list(minors: &[Minor]) -> String {
    minors.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// Who can ask the API server.
pub trait AskCluster: Send + Sync {
    fn version(&self, access: &Access) -> Result<Asked<GitVersion>, ClusterError>;
    /// A text that it keeps for its nodes.
    fn mappings(&self, access: &Access, place: &ConfigMapKey) -> Result<Asked<String>, ClusterError>;
}

/// Over the network.
pub struct ApiServer;

impl AskCluster for ApiServer {
    fn version(&self, access: &Access) -> Result<Asked<GitVersion>, ClusterError> {
        ask_version(access, Patience::default())
    }

    fn mappings(&self, access: &Access, place: &ConfigMapKey) -> Result<Asked<String>, ClusterError> {
        ask_mappings(access, place, Patience::default(), |text| Ok(text.to_owned()))
    }
}

/// `None`: everything was decided when the bundle was rendered. `known`: what was found out for this bundle before.
pub(crate) fn find_out(
    disk: &dyn Disk,
    cluster: &dyn AskCluster,
    bundle: &Bundle,
    known: Option<&Followed>,
) -> Result<Option<Followed>, FollowError> {
    let Some(follow) = &bundle.follow else { return Ok(None) };
    let look = Look { disk, bundle };
    let seed = look.environment(&follow.release)?;
    let mut asking = Asking { cluster, access: None, silent: None };
    let release = asking.release(&look, &follow.release, &seed).map(told);
    let release = prefer_cluster(release, known.map(|known| &known.release))?;
    let minors = &follow.release.minors;
    if !minors.is_empty() && !minors.contains(&release.value.minor()) {
        let (release, by, minors) = (release.value, release.source, minors.iter().copied().collect());
        return Err(FollowError::Minor { release, by, minors });
    }
    let preferred = match &follow.addon {
        None => None,
        Some(addon) => {
            let preferred = asking.preferred(&look, &follow.release, addon, release.value.minor()).map(told);
            // What goes with another release says nothing of this one.
            let known = known.filter(|known| known.release.value.minor() == release.value.minor());
            Some(prefer_cluster(preferred, known.and_then(|known| known.preferred.as_ref()))?)
        }
    };
    let variables = match seed {
        EnvironmentSeed::Read(seed) => seed.variables().clone(),
        EnvironmentSeed::Absent | EnvironmentSeed::Malformed(_) => Default::default(),
    };
    let variables = variables.into_iter().filter(|(name, _)| !name.starts_with(OWN_VARIABLES)).collect();
    Ok(Some(Followed { bundle: bundle.digest(), release, variables, preferred, addon: None }))
}

fn told<T>(decided: Decided<T>) -> Told<T> {
    let by_cluster = matches!(decided.source, Source::Cluster(_));
    Told { value: decided.value, source: decided.source.to_string(), by_cluster }
}

/// What the cluster said before the reboot is newer than any seed. What it says now counts before both, also that it is not to be
/// trusted.
fn prefer_cluster<T: Clone>(
    now: Result<Told<T>, FollowError>,
    before: Option<&Told<T>>,
) -> Result<Told<T>, FollowError> {
    let Some(before) = before.filter(|before| before.by_cluster) else { return now };
    let is_weaker = match &now {
        Ok(now) => !now.by_cluster && now.source != Source::Forced.to_string(),
        Err(error) => error.class() == ErrorClass::Transient,
    };
    if is_weaker { Ok(before.clone()) } else { now }
}

/// Files as they will be: those of the bundle are not on the disk yet when a node boots first.
struct Look<'a> {
    disk: &'a dyn Disk,
    bundle: &'a Bundle,
}

enum EnvironmentSeed {
    Absent,
    Malformed(String),
    Read(KubeletEnv),
}

impl Look<'_> {
    fn read(&self, path: &Path) -> Result<Option<Vec<u8>>, DiskError> {
        let brought = path.to_str().and_then(|path| self.bundle.file(path));
        match brought.filter(|file| !file.content.is_spent()) {
            Some(file) => Ok(Some(file.content.to_vec())),
            None => self.disk.read(path, LIMIT),
        }
    }

    fn text(&self, path: &str) -> Result<Option<String>, DiskError> {
        Ok(self.read(Path::new(path))?.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
    }

    fn environment(&self, release: &FollowedRelease) -> Result<EnvironmentSeed, DiskError> {
        Ok(match self.text(&release.seed)?.map(|text| KubeletEnv::parse(&text)) {
            None => EnvironmentSeed::Absent,
            Some(Ok(environment)) => EnvironmentSeed::Read(environment),
            Some(Err(error)) => EnvironmentSeed::Malformed(error.to_string()),
        })
    }

    /// With the credentials of the kubelet, once it has any: those that it joined with end some day.
    fn access(&self, release: &FollowedRelease) -> Result<Access, KubeconfigError> {
        let read = |path: &Path| self.read(path);
        let own = &self.bundle.join.kubeconfig;
        if *own != release.kubeconfig
            && let Ok(access) = parse_access(own, &read)
        {
            return Ok(access);
        }
        parse_access(&release.kubeconfig, &read)
    }
}

struct Asking<'a> {
    cluster: &'a dyn AskCluster,
    access: Option<Access>,
    /// Nobody answered the first question: nobody is waited for a second time.
    silent: Option<String>,
}

impl Asking<'_> {
    fn release(
        &mut self,
        look: &Look<'_>,
        follow: &FollowedRelease,
        environment: &EnvironmentSeed,
    ) -> Result<Decided<KubernetesVersion>, FollowError> {
        let path = follow.seed.to_string();
        let seed = match environment {
            EnvironmentSeed::Absent => Seed::Absent { path },
            EnvironmentSeed::Malformed(reason) => Seed::Malformed { path, reason: reason.clone() },
            EnvironmentSeed::Read(environment) => match environment.version() {
                Ok(value) => Seed::Found { value, source: SeedSource::Installer { path } },
                Err(error) => Seed::Malformed { path, reason: error.to_string() },
            },
        };
        let wanted = match &follow.forced {
            Some(version) => Wanted::Forced(version.clone()),
            None => {
                let access = look.access(follow).map_err(FollowError::Kubeconfig)?;
                let Asked { answer, by } = self.cluster.version(&access).map_err(FollowError::Cluster)?;
                self.access = Some(access);
                if let Answer::Unreachable { reason } = &answer {
                    self.silent = Some(reason.clone());
                }
                let read =
                    |version: GitVersion| KubernetesVersion::parse(version.as_str()).map_err(|error| error.to_string());
                Wanted::Cluster(Asked { answer: answer.read(read), by })
            }
        };
        Ok(decide(RELEASE, wanted, seed, follow.seed_fallback)?)
    }

    fn preferred(
        &mut self,
        look: &Look<'_>,
        release: &FollowedRelease,
        addon: &FollowedAddon,
        minor: Minor,
    ) -> Result<Decided<Vec<AddonVersion>>, FollowError> {
        let read = |text: &str| preferred_of(text, minor, &addon.name);
        let path = addon.mappings_seed.to_string();
        let seed = match look.text(&path)?.map(|text| read(&text)) {
            Some(Ok(value)) => Seed::Found { value, source: SeedSource::Installer { path } },
            Some(Err(reason)) => Seed::Malformed { path, reason },
            None => match RuntimeMappings::built_in().preferred(minor, &addon.name) {
                Ok(value) => Seed::Found { value: value.to_vec(), source: SeedSource::BuiltIn },
                Err(error) => Seed::Malformed {
                    path,
                    reason: format!("it is not there, and of those built into nodestrap: {error}"),
                },
            },
        };
        let asked = self.ask_mappings(look, release, addon)?;
        let place = &addon.mappings;
        let explain = |reason| format!("ConfigMap {}/{}, key {}: {reason}", place.namespace, place.name, place.key);
        let answer = asked.answer.read(|text| read(&text).map_err(explain));
        Ok(decide(MAPPINGS, Wanted::Cluster(Asked { answer, by: asked.by }), seed, release.seed_fallback)?)
    }

    fn ask_mappings(
        &mut self,
        look: &Look<'_>,
        release: &FollowedRelease,
        addon: &FollowedAddon,
    ) -> Result<Asked<String>, FollowError> {
        if let Some(reason) = &self.silent {
            return Ok(Asked { answer: Answer::Unreachable { reason: reason.clone() }, by: Asker::Node });
        }
        let place = &addon.mappings;
        let place = ConfigMapKey::new(&place.namespace, &place.name, &place.key).map_err(FollowError::Place)?;
        let access = match (self.access.take(), &release.forced) {
            (Some(access), _) => access,
            (None, forced) => match (look.access(release), forced) {
                (Ok(access), _) => access,
                // Whoever forces a release may have no cluster to ask.
                (Err(error), Some(_)) => {
                    let answer = Answer::Unreachable { reason: chain(&error) };
                    return Ok(Asked { answer, by: Asker::Node });
                }
                (Err(error), None) => return Err(FollowError::Kubeconfig(error)),
            },
        };
        self.cluster.mappings(&access, &place).map_err(FollowError::Cluster)
    }
}

fn preferred_of(text: &str, minor: Minor, addon: &AddonName) -> Result<Vec<AddonVersion>, String> {
    let mappings = RuntimeMappings::parse(text).map_err(|error| error.to_string())?;
    mappings.preferred(minor, addon).map(<[AddonVersion]>::to_vec).map_err(|error| error.to_string())
}
