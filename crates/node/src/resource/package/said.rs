//! What the words of a package manager say of why it failed. Pure; all of them speak English here (`LC_ALL=C.UTF-8`).

use engine::ErrorClass;

/// Why it failed, as far as waiting or a person can mend it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    /// Another one is at work.
    Locked,
    NotFound,
    Unsigned,
    Unsatisfiable,
    Removal,
    Script,
    /// A repository that does not answer, a full disk, whatever: it is tried again.
    Unknown,
}

/// The first that is found counts. apt says of a lock that it waits for it, too, but then without its "E:".
const SAYINGS: [(&str, Reason); 24] = [
    ("E: Could not get lock", Reason::Locked),
    ("E: Unable to acquire the dpkg frontend lock", Reason::Locked),
    ("lock was locked by another process", Reason::Locked),
    ("can't create transaction lock", Reason::Locked),
    ("is not signed", Reason::Unsigned),
    ("NO_PUBKEY", Reason::Unsigned),
    ("BADSIG", Reason::Unsigned),
    ("EXPKEYSIG", Reason::Unsigned),
    ("REVKEYSIG", Reason::Unsigned),
    ("GPG check FAILED", Reason::Unsigned),
    ("GPG Keys are configured as", Reason::Unsigned),
    ("are already installed but they are not correct for this package", Reason::Unsigned),
    ("remove is disabled", Reason::Removal),
    ("was not found", Reason::NotFound),
    ("Unable to locate", Reason::NotFound),
    ("has no installation candidate", Reason::NotFound),
    ("No match for argument", Reason::NotFound),
    ("unmet dependencies", Reason::Unsatisfiable),
    ("nothing provides", Reason::Unsatisfiable),
    ("conflicting requests", Reason::Unsatisfiable),
    ("cannot install both", Reason::Unsatisfiable),
    ("script subprocess returned error exit status", Reason::Script),
    ("scriptlet failed, exit status", Reason::Script),
    ("Error in POSTTRANS scriptlet", Reason::Script),
];

pub(super) fn reason(words: &str) -> Reason {
    let found = SAYINGS.iter().find(|(saying, _)| words.contains(saying));
    found.map_or(Reason::Unknown, |(_, reason)| *reason)
}

impl Reason {
    pub(super) fn class(self) -> ErrorClass {
        match self {
            Self::Locked | Self::Unknown => ErrorClass::Transient,
            Self::NotFound | Self::Unsigned | Self::Unsatisfiable | Self::Removal | Self::Script => {
                ErrorClass::NeedsOperator
            }
        }
    }

    /// What to do, before it is said where the words are.
    pub(super) fn advice(self) -> &'static str {
        match self {
            Self::Locked => "another package manager is at work",
            Self::NotFound => "no repository has a package of this name and version: correct the spec, or publish it",
            Self::Unsigned => {
                "what came is not signed by the key of its repository: correct packages.repositories, or sign it"
            }
            Self::Unsatisfiable => "packages that are needed are nowhere to be had, or exclude each other",
            Self::Removal => {
                "packages of this machine are in the way, and none is removed: remove them, or name others"
            }
            Self::Script => "a script of a package failed, and does so again until its reason is gone",
            Self::Unknown => "it is tried again",
        }
    }

    /// Whether the machine is as it was: this is said before the first package is touched.
    pub(super) fn is_told_before_anything_changes(self) -> bool {
        match self {
            Self::Locked | Self::NotFound | Self::Unsigned | Self::Unsatisfiable | Self::Removal => true,
            Self::Script | Self::Unknown => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waiting_cannot_mend_is_told_from_what_it_can() {
        for (words, expected) in [
            ("E: Version '1.36.9-1.1' for 'kubelet' was not found", Reason::NotFound),
            ("E: Unable to locate package kubelet", Reason::NotFound),
            ("No match for argument: kubelet-1.36.9-1\nError: Unable to find a match", Reason::NotFound),
            ("W: GPG error: https://p InRelease: … NO_PUBKEY 234654DA9A296436", Reason::Unsigned),
            ("E: The repository 'https://p InRelease' is not signed.", Reason::Unsigned),
            ("Public key for kubelet.rpm is not installed\nError: GPG check FAILED", Reason::Unsigned),
            ("E: Packages need to be removed but remove is disabled.", Reason::Removal),
            ("Problem: conflicting requests\n  - nothing provides libfoo needed by kubelet", Reason::Unsatisfiable),
            (
                "installed kubelet package post-installation script subprocess returned error exit status 1",
                Reason::Script,
            ),
            ("E: Failed to fetch https://p/kubelet.deb  Could not connect", Reason::Unknown),
            ("", Reason::Unknown),
        ] {
            assert_eq!(reason(words), expected, "{words}");
        }
    }

    #[test]
    fn a_lock_that_was_waited_for_is_not_why_it_failed() {
        let waited =
            "Waiting for cache lock: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 12\n";
        let failed = "E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 12 (apt-get)";
        assert_eq!(reason(&[waited, "E: Unable to locate package kubelet"].concat()), Reason::NotFound);
        assert_eq!(reason(&[waited, failed].concat()), Reason::Locked);
    }
}
