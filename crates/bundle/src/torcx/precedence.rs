//! Whose word counts: what somebody forces, else what the cluster says now, else what an installer sowed, else what nodestrap
//! was built with. One rule for the version and for the mappings; what a given answer is worth is for those to say who asked.

use std::fmt;

/// In the order in which they are believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// A flag, or a field of the spec.
    Forced,
    /// The API server, now.
    Live,
    /// A file of the installer's on this node.
    Seed,
    /// A table of nodestrap's own.
    BuiltIn,
}

/// What one source says; texts are for people, and name the place that was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer<T> {
    Said {
        value: T,
        place: String,
    },
    /// Nobody was there to answer, and whoever comes next may.
    Nothing {
        why: String,
    },
    /// Something is wrong that nobody else's answer makes right: a certificate that does not verify, mappings that are damaged.
    Refused {
        why: String,
    },
}

/// Whether a file of the installer's counts where the API server does not answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SeedFallback {
    #[default]
    Allowed,
    /// A seed may be years old: better no node than one of a release that the cluster left behind.
    Never,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved<T> {
    pub value: T,
    pub source: Source,
    pub place: String,
    /// Sources that come first, and why each has nothing to say.
    pub passed_over: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoAnswer {
    #[error("{whose} cannot be believed about {what}, and nobody else is asked then: {why}")]
    Refused { what: &'static str, whose: Source, why: String },
    #[error("nobody says {what}: {}{}", passed_over.join("; "), seed.remark())]
    Nobody { what: &'static str, passed_over: Vec<String>, seed: SeedFallback },
}

/// The first of the sources that says something. `answers` are given in any order, one a source at most; sources that were not
/// asked are not among them.
pub fn first_answer<T>(
    what: &'static str,
    mut answers: Vec<(Source, Answer<T>)>,
    seed: SeedFallback,
) -> Result<Resolved<T>, NoAnswer> {
    answers.sort_by_key(|(source, _)| *source);
    let mut passed_over = Vec::new();
    for (source, answer) in answers {
        if source > Source::Live && seed == SeedFallback::Never {
            break;
        }
        match answer {
            Answer::Said { value, place } => return Ok(Resolved { value, source, place, passed_over }),
            Answer::Refused { why } => return Err(NoAnswer::Refused { what, whose: source, why }),
            Answer::Nothing { why } => passed_over.push(format!("{source}: {why}")),
        }
    }
    Err(NoAnswer::Nobody { what, passed_over, seed })
}

impl SeedFallback {
    fn remark(self) -> &'static str {
        match self {
            Self::Allowed => "",
            Self::Never => "; what an installer left must not be used (seedFallback: never)",
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Forced => "what was forced",
            Self::Live => "the API server",
            Self::Seed => "the installer's file",
            Self::BuiltIn => "nodestrap's own table",
        })
    }
}
