//! The Go programs: Kubernetes, etcd, containerd, runc, CNI plugins. Versions only; where modules come from is Go's business.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use super::part::{Part, key, recipe_files};
use super::{
    CNI_PLUGINS_VERSION, CONTAINERD_VERSION, DEPLOYED_ETCD_VERSION, EARLIER_KUBERNETES_VERSION, ETCD_VERSION,
    KUBERNETES_VERSION, OLDEST_KUBERNETES_VERSION, RUNC_VERSION, VERSITYGW_VERSION,
};
use crate::command::run_logged;
use crate::paths::{recipe, repository};

const KUBERNETES_PROGRAMS: [&str; 7] =
    ["kube-apiserver", "kube-controller-manager", "kube-proxy", "kube-scheduler", "kubeadm", "kubectl", "kubelet"];
pub(super) const CONTAINERD_PROGRAMS: [&str; 3] = ["containerd", "containerd-shim-runc-v2", "ctr"];
pub(super) const CNI_PLUGINS: [&str; 4] = ["bridge", "loopback", "host-local", "portmap"];
pub(super) const TORCX_GENERATOR: &str = "torcx-generator";
pub(super) const STRIPPED: &str = "-s -w";

/// What a case of the oldest minor can be checked against: no kubectl and no kubeadm.
const CHECKED_PROGRAMS: [&str; 5] =
    ["kube-apiserver", "kube-controller-manager", "kube-proxy", "kube-scheduler", "kubelet"];

pub(super) fn kubernetes() -> Result<Part> {
    build_of_kubernetes("kubernetes", KUBERNETES_VERSION, recipe("kubernetes"), &KUBERNETES_PROGRAMS, go_build)
}

/// What a node has of an earlier patch. Most of what it needs is in Go's build cache after the newest.
pub(super) fn earlier_kubernetes() -> Result<Part> {
    let programs = &["kubectl", "kubelet"];
    build_of_kubernetes(
        "kubernetes-earlier",
        EARLIER_KUBERNETES_VERSION,
        recipe("kubernetes-earlier"),
        programs,
        go_build,
    )
}

/// The catalogue records its flags; the module is the catalogue's.
pub(super) fn oldest_kubernetes() -> Result<Part> {
    let source = repository().join("tools/catalog/kubernetes-1.30");
    build_of_kubernetes(
        "kubernetes-oldest",
        OLDEST_KUBERNETES_VERSION,
        source,
        &CHECKED_PROGRAMS,
        go_build_as_the_catalogue,
    )
}

/// Built from a module of ours, because `go install` refuses modules with replace lines.
fn build_of_kubernetes(
    name: &'static str,
    version: &str,
    source: PathBuf,
    programs: &'static [&'static str],
    go_build: fn(&Path, &str) -> Command,
) -> Result<Part> {
    let flags = kubernetes_linker_flags(version);
    let mut inputs = recipe_files(&source)?;
    inputs.push(flags.clone().into_bytes());
    Ok(Part {
        name,
        description: format!("building {} programs of Kubernetes {version}, 5 to 10 minutes", programs.len()),
        key: key(&inputs),
        recipe: Box::new(move |folder, log| {
            let packages = programs.iter().map(|program| format!("k8s.io/kubernetes/cmd/{program}"));
            // With a trailing slash Go puts each program into that folder under its own name.
            let mut go = go_build(&source, &flags);
            go.arg("-o").arg(format!("{}/", folder.display())).args(packages);
            run_logged(&mut go, log)
        }),
    })
}

/// Without these the programs call themselves v0.0.0 and refuse to work with each other.
fn kubernetes_linker_flags(version: &str) -> String {
    let package = "k8s.io/component-base/version";
    let mut parts = version.split('.');
    let (major, minor) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    format!("{STRIPPED} -X {package}.gitVersion=v{version} -X {package}.gitMajor={major} -X {package}.gitMinor={minor}")
}

pub(super) fn etcd() -> Result<Part> {
    build_of_etcd(
        "etcd",
        ETCD_VERSION,
        &[("etcd", "go.etcd.io/etcd/server/v3"), ("etcdctl", "go.etcd.io/etcd/etcdctl/v3")],
    )
}

/// The etcd of the control planes that nodestrap renders.
pub(super) fn deployed_etcd() -> Result<Part> {
    build_of_etcd("etcd-deployed", DEPLOYED_ETCD_VERSION, &[("etcd", "go.etcd.io/etcd/server/v3")])
}

fn build_of_etcd(name: &'static str, version: &str, programs: &'static [(&str, &str)]) -> Result<Part> {
    let source = recipe(name);
    let mut inputs = recipe_files(&source)?;
    inputs.push(STRIPPED.into());
    Ok(Part {
        name,
        description: format!("building etcd {version}, about a minute"),
        key: key(&inputs),
        recipe: Box::new(move |folder, log| {
            for (program, package) in programs {
                run_logged(go_build(&source, STRIPPED).arg("-o").arg(folder.join(program)).arg(package), log)?;
            }
            Ok(())
        }),
    })
}

pub(super) fn runtime() -> Part {
    Part {
        name: "runtime",
        description: format!(
            "building containerd {CONTAINERD_VERSION}, runc {RUNC_VERSION} and CNI plugins, 2 minutes"
        ),
        key: key(&[CONTAINERD_VERSION, RUNC_VERSION, CNI_PLUGINS_VERSION, STRIPPED, "seccomp static"]),
        recipe: Box::new(|folder, log| {
            let containerd =
                |program: &str| format!("github.com/containerd/containerd/v2/cmd/{program}@v{CONTAINERD_VERSION}");
            let plugin =
                |path: &str| format!("github.com/containernetworking/plugins/plugins/{path}@v{CNI_PLUGINS_VERSION}");
            let programs = CONTAINERD_PROGRAMS.map(containerd);
            run_logged(go_install(folder, STRIPPED).args(programs), log)?;
            let plugins = ["main/bridge", "main/loopback", "ipam/host-local", "meta/portmap"].map(plugin);
            run_logged(go_install(folder, STRIPPED).args(plugins), log)?;
            // Without seccomp every sandbox fails; static, because the node has another libc than this machine may have.
            let mut runc = go_install(folder, &format!("{STRIPPED} -extldflags=-static"));
            runc.env("CGO_ENABLED", "1").args(["-tags", "seccomp"]);
            run_logged(runc.arg(format!("github.com/opencontainers/runc@v{RUNC_VERSION}")), log)
        }),
    }
}

pub(super) fn object_store() -> Part {
    Part {
        name: "object-store",
        description: format!("building versitygw {VERSITYGW_VERSION}, 2 minutes"),
        key: key(&[VERSITYGW_VERSION, STRIPPED]),
        recipe: Box::new(|folder, log| {
            let package = format!("github.com/versity/versitygw/cmd/versitygw@v{VERSITYGW_VERSION}");
            run_logged(go_install(folder, STRIPPED).arg(package), log)
        }),
    }
}

/// A program of ours that needs nothing but Go's own library.
pub(super) fn torcx_generator() -> Result<Part> {
    let source = recipe("torcx-generator");
    let mut inputs = recipe_files(&source)?;
    inputs.push(STRIPPED.into());
    Ok(Part {
        name: "torcx-generator",
        description: "building what stands in for torcx, some seconds".into(),
        key: key(&inputs),
        recipe: Box::new(move |folder, log| {
            run_logged(go_build(&source, STRIPPED).arg("-o").arg(folder.join(TORCX_GENERATOR)).arg("."), log)
        }),
    })
}

pub(super) fn go_build(module: &Path, linker_flags: &str) -> Command {
    let mut go = Command::new("go");
    go.current_dir(module).env("CGO_ENABLED", "0").args(["build", "-trimpath", "-ldflags", linker_flags]);
    go
}

/// As the catalogue's README builds the same modules, so that whoever comes second finds the work in Go's build cache.
pub(super) fn go_build_as_the_catalogue(module: &Path, linker_flags: &str) -> Command {
    let mut go = go_build(module, linker_flags);
    go.env_remove("CGO_ENABLED");
    go
}

pub(super) fn go_install(folder: &Path, linker_flags: &str) -> Command {
    let mut go = Command::new("go");
    go.env("CGO_ENABLED", "0").env("GOBIN", folder).args(["install", "-trimpath", "-ldflags", linker_flags]);
    go
}
