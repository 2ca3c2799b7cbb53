//! `tectonic-torcx-bootstrap`: its flags become a bundle, which is applied like any other. No spec and no delivered bundle is needed: the
//! flags, what an installer left under `/etc/kubernetes/installer` and the node's kubeconfig are all there is.
//!
//! Reads: the flags, os-release, the kubeconfig, and of the environment `HTTP_PROXY`, `HTTPS_PROXY` and `NO_PROXY` (in either case), which
//! count for package lists and addons. Exit codes: those of `nodestrap apply`.

use std::ffi::OsString;

use anyhow::{Context as _, anyhow};
use bundle::torcx::{KubernetesVersion, ProfileName};
use bundle::{AbsolutePath, Secret};
use clap::{ArgAction, Parser};
use node::{Adopt, Delivered, NodeHost, read_server};
use render::{OldFlags, bundle_of_flags};
use spec::Os;

use super::Common;
use crate::args::Progress;
use crate::machine;
use crate::node_commands;
use crate::outcome::{Code, Failure, OrFail as _, Outcome};
use crate::show::Screen;

/// Brings the container runtime that goes with the cluster onto a Container Linux, and lets its kubelet start.
#[derive(Parser)]
#[command(name = "tectonic-torcx-bootstrap", version)]
struct Bootstrap {
    #[command(flatten)]
    common: Common,
    /// Where the environment of the kubelet is written, last of all.
    #[arg(long, value_name = "PATH", default_value = "/etc/kubernetes/kubelet.env")]
    kubelet_env_path: String,
    /// Have update_engine look for an update first.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value = "true",
          default_missing_value = "true", action = ArgAction::Set)]
    upgrade_os: bool,
    /// Leave torcx alone.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value = "false",
          default_missing_value = "true", action = ArgAction::Set)]
    torcx_skip_setup: bool,
}

pub(super) fn run(words: impl IntoIterator<Item = OsString>, screen: &Screen) -> Outcome {
    let arguments = Bootstrap::parse_from(words);
    let root = arguments.common.root.clone();
    let host = machine::open(&root)?;
    let flags = arguments.translate(&host)?;
    let bundle = bundle_of_flags(&flags).or_fail(Code::WrongInput)?;
    let deliver = |_: &dyn Fn(&str)| Ok(Delivered::from(bundle.clone()).by_hand());
    node_commands::apply_delivery(&host, &root, &deliver, None, Adopt::No, Progress::Auto, screen)
}

impl Bootstrap {
    fn translate(self, host: &NodeHost) -> Result<OldFlags, Failure> {
        let Self { common, kubelet_env_path, upgrade_os, torcx_skip_setup } = self;
        let kubeconfig = path("kubeconfig", &common.kubeconfig)?;
        let forced =
            (!common.force_kube_version.is_empty()).then(|| KubernetesVersion::parse(&common.force_kube_version));
        let forced = forced.transpose().context("--force-kube-version").or_fail(Code::WrongInput)?;
        let profile = ProfileName::new(common.torcx_profile).context("--torcx-profile").or_fail(Code::WrongInput)?;
        let server = read_server(host.disk.as_ref(), &kubeconfig);
        let program =
            std::env::current_exe().context("cannot tell where this program lies").or_fail(Code::NeedsPerson)?;
        let mut flags = OldFlags {
            torcx_manifest_url: common.torcx_manifest_url,
            torcx_profile: profile,
            force_kube_version: forced,
            no_verify_signatures: common.no_verify_signatures,
            keyring: optional("keyring", &common.keyring)?,
            version_manifest: optional("version-manifest", &common.version_manifest)?,
            kubelet_env_path: path("kubelet-env-path", &kubelet_env_path)?,
            upgrade_os,
            torcx_skip_setup,
            os: system(host)?,
            api_server: server.unwrap_or_else(|| format!("the API server of {kubeconfig}")),
            nodestrap: path("argv[0]", &program.to_string_lossy())?,
            kubeconfig,
            proxy: None,
            no_proxy: environment("NO_PROXY").map(|list| split(&list)).unwrap_or_default(),
        };
        let variable = if flags.is_by_https() { "HTTPS_PROXY" } else { "HTTP_PROXY" };
        flags.proxy = environment(variable).map(Secret::new);
        Ok(flags)
    }
}

fn path(flag: &str, text: &str) -> Result<AbsolutePath, Failure> {
    AbsolutePath::new(text).with_context(|| format!("--{flag}")).or_fail(Code::WrongInput)
}

fn optional(flag: &str, text: &str) -> Result<Option<AbsolutePath>, Failure> {
    if text.is_empty() { Ok(None) } else { path(flag, text).map(Some) }
}

/// Of the systems that had torcx, or have its heirs.
fn system(host: &NodeHost) -> Result<Os, Failure> {
    let release = host.machine.os_release().or_fail(Code::NeedsPerson)?;
    match release.id.as_str() {
        "coreos" => Ok(Os::ContainerLinux),
        "flatcar" => Ok(Os::Flatcar),
        other => {
            Err(anyhow!("tectonic-torcx-bootstrap is for Container Linux and Flatcar, and os-release says {other:?}"))
                .or_fail(Code::WrongInput)
        }
    }
}

/// Programs differ in which spelling they write.
fn environment(name: &str) -> Option<String> {
    let found = std::env::var(name).or_else(|_| std::env::var(name.to_lowercase())).ok();
    found.filter(|value| !value.is_empty())
}

fn split(list: &str) -> Vec<String> {
    list.split(',').map(str::trim).filter(|one| !one.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_have_the_defaults_of_the_old_program_and_take_its_spellings() {
        let parse = |words: &[&str]| Bootstrap::try_parse_from(["tectonic-torcx-bootstrap"].iter().chain(words));
        let plain = parse(&[]).unwrap();
        assert_eq!((plain.upgrade_os, plain.torcx_skip_setup, plain.common.no_verify_signatures), (true, false, false));
        assert_eq!(plain.kubelet_env_path, "/etc/kubernetes/kubelet.env");
        let given = parse(&["--upgrade-os=false", "--torcx-skip-setup", "--no-verify-signatures=true"]).unwrap();
        assert_eq!((given.upgrade_os, given.torcx_skip_setup, given.common.no_verify_signatures), (false, true, true));
        assert!(parse(&["--node-annotation=a/b"]).is_err());
    }

    #[test]
    fn who_is_not_asked_by_the_proxy_is_a_list() {
        assert_eq!(split("10.0.0.0/8, .example.com,,"), ["10.0.0.0/8", ".example.com"]);
    }
}
