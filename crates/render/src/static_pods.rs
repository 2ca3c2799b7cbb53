//! The components that a kubelet runs as static pods, and the files that they read.
//!
//! A control plane: etcd, API server, controller manager, scheduler, and the DNS controller if there is one, with its
//! certificates, keys and kubeconfigs. Every node: the service proxy, if the cluster has a kubeconfig for it.

use std::collections::BTreeMap;

use bundle::File;
use spec::{
    CompleteCluster, CompleteDnsController, CompleteEtcd, CompleteGroup, CompleteKubeApiserver,
    CompleteKubeControllerManager, CompleteKubeProxy, CompleteKubeScheduler, PkiFolder, Role, Setting,
    render_config_yaml,
};

use crate::error::RenderError;
use crate::kubelet::leaf_text;
use crate::part::{public, secret};
use crate::pod::{Mounts, Pod, Probe, Resources};
use crate::system::is_red_hat_like;

pub(crate) const KUBERNETES_FOLDER: &str = "/etc/kubernetes";
pub(crate) const SUPER_ADMIN: &str = "super-admin.conf";
pub(crate) const MANIFESTS_FOLDER: &str = "/etc/kubernetes/manifests";

type Flags = BTreeMap<String, Setting<String>>;

/// Manifests and what they need, in the folder that the kubelet watches.
pub(crate) fn render_static_pods(cluster: &CompleteCluster, group: &CompleteGroup) -> Result<Vec<File>, RenderError> {
    let folder = folder(group);
    let mut files = Vec::new();
    let mut pods = Vec::new();
    if group.role.value == Role::ControlPlane {
        files.extend(pki_files(&cluster.pki.folder.as_ref().ok_or(RenderError::NoPki)?.value)?);
        files.extend(scheduler_config(&cluster.kube_scheduler)?);
        pods.extend([
            etcd(&cluster.etcd),
            kube_apiserver(&cluster.kube_apiserver, group),
            kube_controller_manager(&cluster.kube_controller_manager, group),
            kube_scheduler(&cluster.kube_scheduler),
        ]);
        pods.extend(dns_controller(&cluster.dns_controller));
    }
    files.extend(write(&pods, folder)?);
    files.extend(render_kube_proxy(cluster, group)?);
    Ok(files)
}

/// The one static pod of nodes of any role.
pub(crate) fn render_kube_proxy(cluster: &CompleteCluster, group: &CompleteGroup) -> Result<Vec<File>, RenderError> {
    let Some(kubeconfig) = &cluster.kube_proxy.kubeconfig else { return Ok(Vec::new()) };
    let mut files = kube_proxy_files(&cluster.kube_proxy, kubeconfig.value.0.expose())?;
    files.extend(write(&[kube_proxy(&cluster.kube_proxy)], folder(group))?);
    Ok(files)
}

fn folder(group: &CompleteGroup) -> &str {
    leaf_text(&group.kubelet.config, &["staticPodPath"]).unwrap_or(MANIFESTS_FOLDER)
}

fn write(pods: &[Pod<'_>], folder: &str) -> Result<Vec<File>, RenderError> {
    let file = |pod: &Pod<'_>| {
        // Nobody but the kubelet needs to read them, and flags may say more about a cluster than its users should know.
        let path = format!("{}/{}.yaml", folder.trim_end_matches('/'), pod.name());
        Ok(File { mode: 0o600, ..public(path, pod.render())? })
    };
    pods.iter().map(file).collect()
}

/// Keys and kubeconfigs are secrets, certificates and the public key are not. Nothing on a node reads `super-admin.conf`: the
/// kubelet joins with a copy that has another name, and people have theirs.
fn pki_files(folder: &PkiFolder) -> Result<Vec<File>, RenderError> {
    let file = |(name, content): (&&str, &spec::Secret)| {
        let content = content.expose().as_bytes();
        match name.rsplit_once('.').map_or("", |(_, suffix)| suffix) {
            "conf" => secret(format!("{KUBERNETES_FOLDER}/{name}"), content),
            "crt" | "pub" => public(format!("{KUBERNETES_FOLDER}/pki/{name}"), content),
            _ => secret(format!("{KUBERNETES_FOLDER}/pki/{name}"), content),
        }
    };
    folder.files().iter().filter(|(name, _)| **name != SUPER_ADMIN).map(file).collect()
}

fn etcd(etcd: &CompleteEtcd) -> Pod<'_> {
    let mut pod = Pod::new("etcd", etcd.image.value.as_str());
    pod.command(command("etcd", &etcd.flags));
    pod.resources = Some(Resources { cpu: "100m", memory: Some("100Mi") });
    pod.mounts = mounts(&etcd.flags);
    // Without certificates only: a probe has none to show.
    let metrics = etcd.flags.get("listen-metrics-urls").and_then(|urls| urls.value.split(',').next());
    if let Some((host, port)) = metrics.and_then(|url| url.strip_prefix("http://")).and_then(split_port) {
        let probe = |path| Probe::http("HTTP", host, port, path);
        // A member that has run out of space or of peers is not helped by a restart.
        pod.liveness = Some(probe("/health?exclude=NOSPACE&serializable=true"));
        pod.startup = Some(probe("/health?serializable=false"));
    }
    pod
}

fn kube_apiserver<'a>(server: &'a CompleteKubeApiserver, group: &CompleteGroup) -> Pod<'a> {
    let mut pod = Pod::new("kube-apiserver", server.image.value.as_str());
    pod.command(command("kube-apiserver", &server.flags));
    pod.resources = Some(Resources { cpu: "250m", memory: None });
    pod.mounts = mounts(&server.flags);
    add_system_certificates(&mut pod.mounts, group);
    let names = [
        ("dns.alpha.kubernetes.io/internal", &server.internal_name),
        ("dns.alpha.kubernetes.io/external", &server.external_name),
    ];
    for (annotation, name) in names {
        if let Some(name) = name {
            pod.annotations.push((annotation, name.value.as_str()));
        }
    }
    let (host, port) = serving(&server.flags, 6443);
    // Probes come without credentials: where nobody may, all that can be seen is whether somebody listens.
    let anonymous = server.flags.get("anonymous-auth").is_none_or(|flag| flag.value != "false");
    let probe = |path| match anonymous {
        true => Probe::http("HTTPS", host, port, path),
        false => Probe::tcp(host, port),
    };
    pod.liveness = Some(probe("/livez"));
    pod.readiness = Some(probe("/readyz"));
    pod.startup = Some(probe("/livez"));
    pod
}

fn kube_controller_manager<'a>(manager: &'a CompleteKubeControllerManager, group: &CompleteGroup) -> Pod<'a> {
    let mut pod = Pod::new("kube-controller-manager", manager.image.value.as_str());
    pod.command(command("kube-controller-manager", &manager.flags));
    pod.resources = Some(Resources { cpu: "200m", memory: None });
    pod.mounts = mounts(&manager.flags);
    add_system_certificates(&mut pod.mounts, group);
    pod.healthz(serving(&manager.flags, 10257));
    pod
}

fn kube_scheduler(scheduler: &CompleteKubeScheduler) -> Pod<'_> {
    let mut pod = Pod::new("kube-scheduler", scheduler.image.value.as_str());
    pod.command(command("kube-scheduler", &scheduler.flags));
    pod.resources = Some(Resources { cpu: "100m", memory: None });
    pod.mounts = mounts(&scheduler.flags);
    if let Some(path) = leaf_text(&scheduler.config, CLIENT_KUBECONFIG) {
        pod.mounts.file(path);
    }
    pod.healthz(serving(&scheduler.flags, 10259));
    pod
}

const CLIENT_KUBECONFIG: &[&str] = &["clientConnection", "kubeconfig"];

/// Only if the scheduler is told of it.
fn scheduler_config(scheduler: &CompleteKubeScheduler) -> Result<Option<File>, RenderError> {
    let Some(path) = scheduler.flags.get("config").map(|flag| flag.value.as_str()) else { return Ok(None) };
    let content = render_config_yaml("kubescheduler.config.k8s.io/v1", "KubeSchedulerConfiguration", &scheduler.config);
    public(path, content).map(Some)
}

/// Its credentials, if any, are files that its command names.
fn dns_controller(controller: &CompleteDnsController) -> Option<Pod<'_>> {
    let mut pod = Pod::new("dns-controller", controller.image.as_ref()?.value.as_str());
    let words: Vec<String> = controller.command.value.iter().map(ToString::to_string).collect();
    for word in words.iter().skip(1) {
        let value = word.split_once('=').map_or(word.as_str(), |(_, value)| value);
        if value.starts_with('/') {
            pod.mounts.flag("", value);
        }
    }
    pod.command(words);
    pod.resources = Some(Resources { cpu: "50m", memory: None });
    Some(pod)
}

fn kube_proxy(proxy: &CompleteKubeProxy) -> Pod<'_> {
    let mut pod = Pod::new("kube-proxy", proxy.image.value.as_str());
    pod.command(command("/usr/local/bin/kube-proxy", &proxy.flags));
    // It writes rules of the kernel, and some of its modules are loaded on demand.
    pod.privileged = true;
    pod.mounts = mounts(&proxy.flags);
    pod.mounts.folder("/lib/modules");
    pod.mounts.lock("/run/xtables.lock");
    if let Some(path) = leaf_text(&proxy.config, CLIENT_KUBECONFIG) {
        pod.mounts.file(path);
    }
    pod
}

fn kube_proxy_files(proxy: &CompleteKubeProxy, kubeconfig: &str) -> Result<Vec<File>, RenderError> {
    let mut files = Vec::new();
    if let Some(path) = leaf_text(&proxy.config, CLIENT_KUBECONFIG) {
        files.push(secret(path, kubeconfig)?);
    }
    if let Some(path) = proxy.flags.get("config") {
        let content = render_config_yaml("kubeproxy.config.k8s.io/v1alpha1", "KubeProxyConfiguration", &proxy.config);
        files.push(public(path.value.as_str(), content)?);
    }
    Ok(files)
}

fn command(program: &str, flags: &Flags) -> Vec<String> {
    let mut words = Vec::with_capacity(flags.len() + 1);
    words.push(program.to_owned());
    words.extend(flags.iter().map(|(flag, setting)| ["--", flag, "=", &setting.value].concat()));
    words
}

/// What the flags name, and nothing else of the node.
fn mounts(flags: &Flags) -> Mounts {
    let mut mounts = Mounts::default();
    for (flag, setting) in flags {
        mounts.flag(flag, &setting.value);
    }
    mounts
}

/// For what the component asks besides the API server, such as a provider or a login service.
fn add_system_certificates(mounts: &mut Mounts, group: &CompleteGroup) {
    mounts.folder("/etc/ssl/certs");
    if is_red_hat_like(group.os.value) {
        // Where the links in that folder lead to.
        mounts.folder("/etc/pki/ca-trust");
    }
}

/// Where probes find a component: the loopback address, unless it listens at one address only.
fn serving(flags: &Flags, default_port: u16) -> (&str, u16) {
    let host = match flags.get("bind-address").map(|flag| flag.value.as_str()) {
        None | Some("" | "0.0.0.0" | "::") => "127.0.0.1",
        // Probes cannot expand variables.
        Some(variable) if variable.contains('$') => "127.0.0.1",
        Some(address) => address,
    };
    let port = flags.get("secure-port").and_then(|flag| flag.value.parse().ok());
    (host, port.unwrap_or(default_port))
}

fn split_port(authority: &str) -> Option<(&str, u16)> {
    let (host, port) = authority.trim_end_matches('/').rsplit_once(':')?;
    Some((host.trim_start_matches('[').trim_end_matches(']'), port.parse().ok()?))
}
