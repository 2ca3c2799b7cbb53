//! The names by which units and manifests of Tectonic call this program: by the last part of `argv[0]`, a link is not followed.
//!
//! Their flags are translated, and the same engine does the work. To add a name: a variant of [`OldName`], its arguments, one line in
//! each of its functions.

mod bootstrap;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use clap::{ArgAction, Args, CommandFactory as _, FromArgMatches as _, Parser};

use crate::args::{NodeArguments, Output, RootArguments, When};
use crate::hook::{self, Question, Target};
use crate::outcome::Outcome;
use crate::show::Screen;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OldName {
    Bootstrap,
    HookPre,
}

impl OldName {
    /// By which this program was called.
    pub(crate) fn of(program: &OsStr) -> Option<Self> {
        match Path::new(program).file_name()?.to_str()? {
            "tectonic-torcx-bootstrap" => Some(Self::Bootstrap),
            "tectonic-torcx-hook-pre" => Some(Self::HookPre),
            _ => None,
        }
    }

    /// A wrong flag ends the program, as with any other command.
    pub(crate) fn run(self, words: impl IntoIterator<Item = OsString>, screen: &Screen) -> Outcome {
        match self {
            Self::Bootstrap => bootstrap::run(words, screen),
            Self::HookPre => {
                let matches = HookPre::command().get_matches_from(words);
                let common = ignored(&matches);
                let hook = HookPre::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
                hook.run(&common, screen)
            }
        }
    }

    /// There was no choice.
    pub(crate) fn screen() -> Screen {
        Screen::new(Output::Text, When::Auto)
    }
}

/// The flags of both programs.
#[derive(Args)]
pub(crate) struct Common {
    /// Where the API server is, and with which credentials it is asked.
    #[arg(long, value_name = "PATH", default_value = "/etc/kubernetes/kubeconfig")]
    pub(crate) kubeconfig: String,
    /// Accepted: torcx is not run.
    #[arg(long, value_name = "PATH")]
    pub(crate) torcx_bin: Option<PathBuf>,
    /// Of the package lists; empty means the default.
    #[arg(long, value_name = "TEMPLATE", default_value = "")]
    pub(crate) torcx_manifest_url: String,
    /// Where no profile is chosen yet.
    #[arg(long, value_name = "NAME", default_value = "tectonic")]
    pub(crate) torcx_profile: String,
    /// Instead of asking anybody for the release of the cluster.
    #[arg(long, value_name = "VERSION", default_value = "")]
    pub(crate) force_kube_version: String,
    /// Take package lists that nobody has signed.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value = "false",
          default_missing_value = "true", action = ArgAction::Set)]
    pub(crate) no_verify_signatures: bool,
    /// Who must have signed package lists.
    #[arg(long, value_name = "PATH", default_value = "/pubring.gpg")]
    pub(crate) keyring: String,
    /// Which versions go with a release, instead of what the cluster or the installer says.
    #[arg(long, value_name = "PATH", default_value = "")]
    pub(crate) version_manifest: String,
    /// Accepted: as much is said as ever.
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    pub(crate) verbose: String,
    /// The folder that stands for the machine; every path lies under it.
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub(crate) root: PathBuf,
}

/// Flags that say what the node's own bundle says, too.
const OF_THE_BUNDLE: [&str; 6] = [
    "torcx_manifest_url",
    "torcx_profile",
    "force_kube_version",
    "no_verify_signatures",
    "keyring",
    "version_manifest",
];

/// Those that were given, as people type them.
fn ignored(matches: &clap::ArgMatches) -> Vec<String> {
    let is_given = |id: &&&str| matches.value_source(id) == Some(clap::parser::ValueSource::CommandLine);
    OF_THE_BUNDLE.iter().filter(is_given).map(|id| format!("--{}", id.replace('_', "-"))).collect()
}

/// Prepares a Container Linux for the operating system that boots next.
#[derive(Parser)]
#[command(name = "tectonic-torcx-hook-pre", version)]
struct HookPre {
    #[command(flatten)]
    common: Common,
    /// The annotation that is set to true if the next boot is prepared.
    #[arg(long, value_name = "KEY", default_value = "")]
    node_annotation: String,
    /// The name of the Node; or else the variable NODE.
    #[arg(long, value_name = "NAME", default_value = "")]
    node_name: String,
    /// Do not end, and ask again at least once a minute; 0: end with the first answer.
    #[arg(long, value_name = "SECONDS", default_value_t = 0, allow_negative_numbers = true)]
    sleep: i64,
}

impl HookPre {
    /// The node's own bundle says what is to be prepared.
    fn run(self, ignored: &[String], screen: &Screen) -> Outcome {
        let Self { common, node_annotation, node_name, sleep } = self;
        let annotation = (!node_annotation.is_empty()).then(|| hook::key(&node_annotation)).transpose()?;
        if !ignored.is_empty() {
            screen.remark(&format!("not followed: {}; the bundle of this node says it", ignored.join(", ")));
        }
        let name = hook::name_of_node(Some(node_name).filter(|name| !name.is_empty()));
        let question = Question {
            node: NodeArguments { bundle: None, root: RootArguments { root: common.root } },
            kubeconfig: Some(common.kubeconfig),
            target: annotation.map(|annotation| Target { annotation, name, while_label: None }),
        };
        hook::repeat(hook::pause(u64::try_from(sleep).unwrap_or(0)), screen, || question.ask(screen))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_part_of_the_name_decides() {
        for name in ["tectonic-torcx-hook-pre", "/usr/bin/tectonic-torcx-hook-pre", "./tectonic-torcx-hook-pre"] {
            assert_eq!(OldName::of(OsStr::new(name)), Some(OldName::HookPre), "{name}");
        }
        let bootstrap = OldName::of(OsStr::new("/opt/bin/tectonic-torcx-bootstrap"));
        assert_eq!(bootstrap, Some(OldName::Bootstrap));
        for name in ["nodestrap", "", "/", "..", "tectonic-torcx-hook-pre/..", "tectonic-torcx-hook-prefix"] {
            assert_eq!(OldName::of(OsStr::new(name)), None, "{name}");
        }
    }

    fn parse(words: &[&str]) -> Result<(HookPre, Vec<String>), clap::Error> {
        let matches = HookPre::command().try_get_matches_from(["hook"].iter().chain(words))?;
        let ignored = ignored(&matches);
        HookPre::from_arg_matches(&matches).map(|hook| (hook, ignored))
    }

    #[test]
    fn every_flag_of_the_old_program_is_taken_and_no_other() {
        let (hook, ignored) = parse(&[]).unwrap();
        assert_eq!(hook.common.kubeconfig, "/etc/kubernetes/kubeconfig");
        assert_eq!((hook.common.torcx_profile.as_str(), hook.common.keyring.as_str()), ("tectonic", "/pubring.gpg"));
        assert!(hook.node_annotation.is_empty() && hook.sleep == 0 && ignored.is_empty());
        let (hook, ignored) = parse(&[
            "--kubeconfig=/k",
            "--torcx-bin=/usr/bin/torcx",
            "--torcx-manifest-url=",
            "--torcx-profile=p",
            "--force-kube-version=v1.9.6",
            "--no-verify-signatures",
            "--keyring=/r",
            "--version-manifest=/v",
            "--verbose=debug",
            "--node-annotation=a/b",
            "--node-name=n1",
            "--sleep=-1",
        ])
        .unwrap();
        assert!(hook.common.no_verify_signatures && hook.sleep == -1 && hook.node_name == "n1");
        assert_eq!(hook.node_annotation, "a/b");
        assert_eq!(ignored.len(), OF_THE_BUNDLE.len(), "{ignored:?}");
        assert!(!parse(&["--no-verify-signatures=false"]).unwrap().0.common.no_verify_signatures);
        for unknown in ["--upgrade-os", "--kubelet-env-path=/k", "--nonsense", "word"] {
            assert!(parse(&[unknown]).is_err(), "{unknown}");
        }
    }
}
