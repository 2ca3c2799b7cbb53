//! Which release the cluster runs, and which runtime goes with it: whose word counts.
//!
//! In: what the cluster answered, what the installer left on this node, and whether that may stand in. Out: a value and where it is
//! from ([`Decided`]), or why there is none ([`Undecided`]). [`decide`] is pure, and one table for both questions:
//! `docs/reference/cluster-release.md`, which a test holds against it. [`ask_version`] and [`ask_mappings`] ask.

use bundle::SeedFallback;
use cluster::{Access, Answer, ClusterError, ConfigMapKey, GitVersion, Patience, block_on};
use engine::ErrorClass;

/// Who asked the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asker {
    /// This node, with its credentials.
    Node,
    /// Somebody who does not say who they are: a cluster tells its version to everybody, unless it is told otherwise.
    Anybody,
}

/// An answer of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked<T> {
    pub answer: Answer<T>,
    pub by: Asker,
}

/// What this node has for a cluster that does not answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seed<T> {
    Found {
        value: T,
        source: SeedSource,
    },
    Absent {
        path: String,
    },
    /// It is there, and not what it should be: to go on would hide a mistake until the day it is needed.
    Malformed {
        path: String,
        reason: String,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SeedSource {
    /// This file, from the time of installation.
    Installer { path: String },
    /// What this nodestrap knows by itself.
    BuiltIn,
}

impl<T> Seed<T> {
    /// Where the installer left nothing.
    #[must_use]
    pub fn or_built_in(self, value: T) -> Self {
        match self {
            Self::Absent { .. } => Self::Found { value, source: SeedSource::BuiltIn },
            other => other,
        }
    }
}

/// Whose word is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted<T> {
    /// The user has said it: nobody is asked.
    Forced(T),
    /// The cluster's.
    Cluster(Asked<T>),
}

/// Where a value is from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    Forced,
    Cluster(Asker),
    /// `because`: why the cluster has not said it.
    Seed {
        source: SeedSource,
        because: String,
    },
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Forced => f.write_str("forced by the user"),
            Self::Cluster(Asker::Node) => f.write_str("the API server"),
            Self::Cluster(Asker::Anybody) => f.write_str("the API server, asked without credentials"),
            Self::Seed { source: SeedSource::Installer { path }, because } => {
                write!(f, "the installer's {path}, because {because}")
            }
            Self::Seed { source: SeedSource::BuiltIn, because } => {
                write!(f, "the table built into nodestrap, because {because}")
            }
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decided<T> {
    pub value: T,
    pub source: Source,
}

/// `what`: such as "the version of the cluster".
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Undecided {
    #[error(
        "{what} is not known: the API server cannot be trusted: {reason}; a seed never stands in for one that cannot"
    )]
    Untrusted { what: &'static str, reason: String },
    #[error("{what} cannot be used as the cluster has it: {reason}; correct it there")]
    Malformed { what: &'static str, reason: String },
    #[error("{what} is not known: {because}, and no seed may stand in (seedFallback: never)")]
    NoFallback { what: &'static str, because: String, passing: Passing },
    #[error("{what} is not known: {because}, and the installer left no {path:?}")]
    NoSeed { what: &'static str, because: String, path: String, passing: Passing },
    #[error("{what} is not known: {because}, and the installer's {path:?} cannot be used: {reason}")]
    MalformedSeed { what: &'static str, because: String, path: String, reason: String },
}

/// Whether the next run may find the cluster otherwise without anybody's doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passing {
    Yes,
    No,
}

impl Undecided {
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::NoFallback { passing: Passing::Yes, .. } | Self::NoSeed { passing: Passing::Yes, .. } => {
                ErrorClass::Transient
            }
            _ => ErrorClass::NeedsOperator,
        }
    }
}

/// Whose word counts. Pure.
pub fn decide<T>(
    what: &'static str,
    wanted: Wanted<T>,
    seed: Seed<T>,
    fallback: SeedFallback,
) -> Result<Decided<T>, Undecided> {
    let Asked { answer, by } = match wanted {
        Wanted::Forced(value) => return Ok(Decided { value, source: Source::Forced }),
        Wanted::Cluster(asked) => asked,
    };
    let (because, passing) = match answer {
        Answer::Found(value) => return Ok(Decided { value, source: Source::Cluster(by) }),
        Answer::Untrusted { reason } => return Err(Undecided::Untrusted { what, reason }),
        Answer::Malformed { reason } => return Err(Undecided::Malformed { what, reason }),
        Answer::NotThere => ("the cluster has none (404)".to_owned(), Passing::No),
        Answer::Refused { status } => (format!("the API server does not tell this node ({status})"), Passing::No),
        Answer::Unreachable { reason } => (format!("the API server cannot be reached: {reason}"), Passing::Yes),
    };
    if fallback == SeedFallback::Never {
        return Err(Undecided::NoFallback { what, because, passing });
    }
    match seed {
        Seed::Found { value, source } => Ok(Decided { value, source: Source::Seed { source, because } }),
        Seed::Absent { path } => Err(Undecided::NoSeed { what, because, path, passing }),
        Seed::Malformed { path, reason } => Err(Undecided::MalformedSeed { what, because, path, reason }),
    }
}

/// Which of two answers counts, where the first was a refusal of the node's credentials. What anybody was told counts, and
/// so does a server that cannot be trusted; otherwise the refusal, which is what a person can mend. Pure.
fn prefer<T>(refusal: Asked<T>, second: Answer<T>) -> Asked<T> {
    match second {
        Answer::Found(_) | Answer::Untrusted { .. } | Answer::Malformed { .. } => {
            Asked { answer: second, by: Asker::Anybody }
        }
        Answer::NotThere | Answer::Refused { .. } | Answer::Unreachable { .. } => refusal,
    }
}

/// Asks the API server for its version: as this node, and, if its credentials are refused, as anybody.
pub fn ask_version(access: &Access, patience: Patience) -> Result<Asked<GitVersion>, ClusterError> {
    let asked = Asked { answer: block_on(cluster::cluster_version(access, patience))?, by: Asker::Node };
    match (&asked.answer, access.without_identity()) {
        (Answer::Refused { .. }, Some(anybody)) => {
            Ok(prefer(asked, block_on(cluster::cluster_version(&anybody, patience))?))
        }
        _ => Ok(asked),
    }
}

/// Asks for a text that the cluster keeps for its nodes; `read` says what is wrong with one that cannot be used.
pub fn ask_mappings<T>(
    access: &Access,
    place: &ConfigMapKey,
    patience: Patience,
    read: impl FnOnce(&str) -> Result<T, String>,
) -> Result<Asked<T>, ClusterError> {
    let answer = block_on(cluster::config_map_text(access, place, patience))?;
    let explain = |reason| format!("ConfigMap {place}: {reason}");
    Ok(Asked { answer: answer.read(|text| read(&text).map_err(explain)), by: Asker::Node })
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHAT: &str = "the version of the cluster";
    const PATH: &str = "/etc/kubernetes/installer/kubelet.env";

    fn reason() -> String {
        "so it is".to_owned()
    }

    /// Each answer that there is, in the words of the reference.
    fn answers() -> [(&'static str, Answer<&'static str>); 7] {
        [
            ("what was asked for", Answer::Found("live")),
            ("nothing, for 30 seconds: no connection, 5xx, 408 or 429", Answer::Unreachable { reason: reason() }),
            ("401: it does not know this node's credentials", Answer::Refused { status: 401 }),
            ("403: this node may not ask", Answer::Refused { status: 403 }),
            ("404: there is no such thing", Answer::NotThere),
            ("its certificate does not verify", Answer::Untrusted { reason: reason() }),
            ("what cannot be read, or lacks what is needed", Answer::Malformed { reason: reason() }),
        ]
    }

    fn seed() -> Seed<&'static str> {
        let source = SeedSource::Installer { path: PATH.to_owned() };
        Seed::Found { value: "seed", source }
    }

    fn absent() -> Seed<&'static str> {
        Seed::Absent { path: PATH.to_owned() }
    }

    fn asked(answer: Answer<&'static str>) -> Wanted<&'static str> {
        Wanted::Cluster(Asked { answer, by: Asker::Node })
    }

    fn outcome(answer: &Answer<&'static str>, seed: Seed<&'static str>, fallback: SeedFallback) -> &'static str {
        match decide(WHAT, asked(answer.clone()), seed, fallback) {
            Ok(decided) => match decided.source {
                Source::Seed { .. } => "the seed",
                Source::Cluster(_) => "the answer",
                Source::Forced => unreachable!(),
            },
            Err(error) => match error.class() {
                ErrorClass::Transient => "exit 3, and tried again",
                _ => "exit 4",
            },
        }
    }

    #[test]
    fn the_reference_has_the_table_as_it_is() {
        let mut table =
            "| the API server says | a seed is there | none is there | `seedFallback: never` |\n|---|---|---|---|\n"
                .to_owned();
        for (words, answer) in answers() {
            let columns =
                [(seed(), SeedFallback::Allowed), (absent(), SeedFallback::Allowed), (seed(), SeedFallback::Never)]
                    .map(|(seed, fallback)| outcome(&answer, seed, fallback));
            table.push_str(&format!("| {words} | {} |\n", columns.join(" | ")));
        }
        let reference = include_str!("../../../docs/reference/cluster-release.md");
        assert!(reference.contains(&table), "docs/reference/cluster-release.md must have this table:\n{table}");
    }

    #[test]
    fn a_forced_value_counts_before_all_others_and_no_seed_stands_beside_an_answer() {
        for fallback in [SeedFallback::Allowed, SeedFallback::Never] {
            for seed in [seed(), absent(), Seed::Malformed { path: PATH.to_owned(), reason: reason() }] {
                let forced = decide(WHAT, Wanted::Forced("forced"), seed.clone(), fallback).unwrap();
                assert_eq!(forced, Decided { value: "forced", source: Source::Forced });
                let live = decide(WHAT, asked(Answer::Found("live")), seed, fallback).unwrap();
                assert_eq!(live, Decided { value: "live", source: Source::Cluster(Asker::Node) });
            }
        }
    }

    #[test]
    fn a_seed_that_cannot_be_read_stops_the_node_and_is_not_replaced_by_the_built_in_table() {
        let broken = Seed::Malformed { path: PATH.to_owned(), reason: reason() }.or_built_in("built in");
        let error = decide(WHAT, asked(Answer::NotThere), broken, SeedFallback::Allowed).unwrap_err();
        assert_eq!(error.class(), ErrorClass::NeedsOperator);
        assert!(error.to_string().ends_with(&format!("the installer's {PATH:?} cannot be used: so it is")), "{error}");
        let decided =
            decide(WHAT, asked(Answer::NotThere), absent().or_built_in("built in"), SeedFallback::Allowed).unwrap();
        assert_eq!(decided.value, "built in");
        let told = "the table built into nodestrap, because the cluster has none (404)";
        assert_eq!(decided.source.to_string(), told);
        assert_eq!(seed().or_built_in("built in"), seed());
    }

    #[test]
    fn whoever_reads_the_outcome_learns_what_to_mend() {
        let told = |answer, seed, fallback| match decide(WHAT, asked(answer), seed, fallback) {
            Ok(decided) => decided.source.to_string(),
            Err(error) => error.to_string(),
        };
        let refused = || Answer::Refused { status: 403 };
        assert_eq!(
            told(refused(), seed(), SeedFallback::Allowed),
            "the installer's /etc/kubernetes/installer/kubelet.env, because the API server does not tell this node (403)"
        );
        assert_eq!(
            told(refused(), seed(), SeedFallback::Never),
            "the version of the cluster is not known: the API server does not tell this node (403), and no seed may \
             stand in (seedFallback: never)"
        );
        assert_eq!(
            told(Answer::Untrusted { reason: reason() }, seed(), SeedFallback::Allowed),
            "the version of the cluster is not known: the API server cannot be trusted: so it is; a seed never stands \
             in for one that cannot"
        );
    }

    #[test]
    fn what_anybody_is_told_counts_where_the_credentials_are_refused() {
        for (_, second) in answers() {
            let refusal = Asked { answer: Answer::Refused { status: 401 }, by: Asker::Node };
            let counts = prefer(refusal.clone(), second.clone());
            match second {
                Answer::Found(_) | Answer::Untrusted { .. } | Answer::Malformed { .. } => {
                    assert_eq!(counts, Asked { answer: second, by: Asker::Anybody });
                }
                _ => assert_eq!(counts, refusal),
            }
        }
    }
}
