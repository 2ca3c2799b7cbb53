//! Nodes under the paths and names of other bootstraps, so that what was built around those goes on working.
//!
//! A layout says where the kubelet's files lie, how it starts and which file is its gate. What lies below and beside
//! the kubelet is the same as everywhere.

pub(crate) mod eksctl;
pub(crate) mod tectonic;

#[cfg(test)]
mod tests;

use bundle::{AbsolutePath, Bundle, Downloads, Follow, Gate, Join, PodNetwork, Snap};
use spec::{CompleteCluster, CompleteGroup, CompleteNodeGroup, CompleteSpec, KubeVersion};

use crate::error::RenderError;
use crate::extras::{self, HookInputs};
use crate::kubeconfig::{Credential, render_kubeconfig};
use crate::kubelet::{self, BOOTSTRAP_KUBECONFIG_FLAG, KUBECONFIG_FLAG, NODE_NAME_FLAG, required_flag};
use crate::part::{Part, name, path};
use crate::{node, runtime, system, webhook};

/// From here on kubelets read the one version of credential plug-ins that we write.
const FIRST_WITH_EXEC_V1: KubeVersion = KubeVersion { major: 1, minor: 22, patch: 0 };

/// What one layout decides about a node.
struct Decisions {
    kubelet_unit: &'static str,
    /// Units that reach out, besides the runtime.
    proxied_units: Vec<&'static str>,
    /// The files and units of the kubelet and of what the layout has around it.
    kubelet: Part,
    /// Programs that the image must bring, besides the runtime.
    programs: Vec<AbsolutePath>,
    gate: Gate,
    follow: Option<Follow>,
    downloads: Option<Downloads>,
    pod_network: Option<PodNetwork>,
    snap: Option<Snap>,
}

fn assemble(spec: &CompleteSpec, group: &CompleteNodeGroup, layout: Decisions) -> Result<Bundle, RenderError> {
    let (cluster, group_name, group) = (&spec.cluster, &group.name.value, &group.spec);

    let mut part = system::render_system(cluster, group, &layout.proxied_units)?;
    part.add(runtime::render_runtime(group, &cluster.registry_mirrors.value)?);
    part.add(extras::render_extra_units(&group.units.value)?);
    part.add(layout.kubelet);
    part.files.extend(extras::render_file_assets(group)?);
    let (hook_files, hooks) = extras::render_hooks(&group.hooks.value, &HookInputs::of(cluster, group))?;
    part.files.extend(hook_files);

    let mut required_programs = layout.programs;
    required_programs.extend(runtime::required_program(group));
    Ok(Bundle {
        cluster: spec.name.value.to_string(),
        group: group_name.to_string(),
        kubernetes_version: group.kubernetes_version.value.to_string(),
        node: node::kind(cluster, group),
        required_programs,
        files: part.files,
        units: part.units,
        idle_units: part.idle_units,
        hooks,
        runtime: runtime::describe(group)?,
        // The image of these layouts brings everything.
        trees: Vec::new(),
        extensions: Vec::new(),
        downloads: layout.downloads,
        packages: None,
        follow: layout.follow,
        gate: layout.gate,
        join: join(cluster, group, layout.kubelet_unit)?,
        pod_network: layout.pod_network,
        snap: layout.snap,
        webhook: webhook::render_webhook(&cluster.report),
    })
}

fn join(cluster: &CompleteCluster, group: &CompleteGroup, kubelet_unit: &str) -> Result<Join, RenderError> {
    let kubeconfig = path(required_flag(group, KUBECONFIG_FLAG)?)?;
    let bootstrap_kubeconfig = path(credential_path(group)?)?;
    Ok(Join {
        api_server: cluster.api_server.value.as_str().to_owned(),
        // A kubelet that needs no certificate has joined as soon as it has its kubeconfig.
        client_certificate: match bootstrap_kubeconfig == kubeconfig {
            true => kubeconfig.clone(),
            false => path(kubelet::client_certificate(group))?,
        },
        bootstrap_kubeconfig,
        kubeconfig,
        node_name: group.kubelet.flags.get(NODE_NAME_FLAG).map(|setting| setting.value.clone()),
        kubelet_unit: name(kubelet_unit)?,
    })
}

/// The kubeconfig that we write: what a kubelet shows first, and for good unless it asks for a certificate with it.
fn credential_path(group: &CompleteGroup) -> Result<&str, RenderError> {
    required_flag(group, BOOTSTRAP_KUBECONFIG_FLAG).or_else(|_| required_flag(group, KUBECONFIG_FLAG))
}

fn kubelet_kubeconfig(spec: &CompleteSpec, group: &CompleteGroup) -> Result<Vec<u8>, RenderError> {
    let (join, version) = (&spec.cluster.join, group.kubernetes_version.value);
    let (user, credential) = match (&join.bootstrap_token, &join.exec) {
        (Some(token), _) => ("kubelet-bootstrap", Credential::Token(token.value.expose())),
        (None, Some(exec)) if version >= FIRST_WITH_EXEC_V1 => ("kubelet", Credential::Exec(&exec.value)),
        (None, Some(_)) => return Err(RenderError::ExecTooOld { version: version.to_string() }),
        (None, None) => return Err(RenderError::NoCredential),
    };
    let server = spec.cluster.api_server.value.as_str();
    let authority = join.certificate_authority.value.as_str();
    Ok(render_kubeconfig(spec.name.value.as_str(), server, authority, user, &credential))
}

/// The program that gives credentials, if it is a path: of a bare name only the kubelet's PATH knows where it is.
fn credential_program(spec: &CompleteSpec) -> Result<Option<AbsolutePath>, RenderError> {
    let exec = spec.cluster.join.exec.as_ref().filter(|_| spec.cluster.join.bootstrap_token.is_none());
    let command = exec.map(|exec| exec.value.command.as_str()).filter(|command| command.starts_with('/'));
    command.map(path).transpose()
}

/// The flags of the spec as arguments, sorted: each is free of white space, quotes, backslashes and `$`.
fn arguments(group: &CompleteGroup) -> Result<Vec<String>, RenderError> {
    let line = kubelet::render_arguments(&group.kubelet.flags)?;
    Ok(line.split(' ').filter(|argument| !argument.is_empty()).map(str::to_owned).collect())
}

/// A command line whose words systemd takes as they stand; with variables, or by another name, neither of which
/// `Section::command` has.
pub(crate) fn command_line<'a>(
    key: &'static str,
    program: &str,
    words: impl IntoIterator<Item = &'a str>,
) -> Result<String, RenderError> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._+@%:,=~-".contains(&byte);
    let path = program.strip_prefix('@').unwrap_or(program);
    if !path.bytes().all(plain) {
        return Err(RenderError::ProgramPath { path: path.to_owned() });
    }
    let mut line = program.to_owned();
    for word in words {
        if word.is_empty() || word == ";" || word.contains([' ', '"', '\'', '\\']) {
            let problem = "has a word that is empty or has a blank, a quote or a backslash, which systemd would split";
            return Err(RenderError::UnitValue { key, value: word.to_owned(), problem });
        }
        line.push(' ');
        line.push_str(word);
    }
    Ok(line)
}

/// Variables that systemd's `EnvironmentFile=` and a shell's `source` read alike, in the order given.
pub(crate) fn environment_file<'a>(variables: impl IntoIterator<Item = (&'a str, &'a str)>) -> Vec<u8> {
    let mut text = String::from(
        "# Written by nodestrap from the spec of the cluster; an edit does not survive the next render.\n",
    );
    for (name, value) in variables {
        bundle::gate::write_variable(&mut text, name, value);
    }
    text.into_bytes()
}
