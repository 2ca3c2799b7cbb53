//! What a node needs below Kubernetes: kernel, time, trust, proxy. The same for every layout.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use bundle::{File, KERNEL_UNIT, Start, TIME_UNITS, TRUST_UNIT, sha256_hex};
use spec::{
    CompleteCluster, CompleteGroup, CompleteProxy, CompleteTrust, Host, Keyring, Line, ModuleName, Os, SysctlName,
    TrustedAuthority,
};

use crate::error::RenderError;
use crate::kubelet::KUBELET_UNIT;
use crate::layout::environment_file;
use crate::part::{Part, name, public, secret, unit, unit_file};
use crate::runtime;
use crate::unit::{Failure, Section, UnitFile, arguments};

/// What nodestrap needs: a kernel that lacks it does not stop the boot.
const OWN_SYSCTLS_PATH: &str = "/etc/sysctl.d/90-nodestrap.conf";
/// What the user asks for, which wins.
const USER_SYSCTLS_PATH: &str = "/etc/sysctl.d/91-nodestrap-user.conf";
/// The same of modules.
const OWN_MODULES_PATH: &str = "/etc/modules-load.d/nodestrap.conf";
const USER_MODULES_PATH: &str = "/etc/modules-load.d/nodestrap-user.conf";
/// Where a proxy wants a password; else units have the variables themselves.
const PROXY_PATH: &str = "/etc/nodestrap/proxy.env";
/// Of a certificate, in the name of its file: enough to tell the few from each other that a name has in its life.
const DIGEST_DIGITS: usize = 8;
const HEADER: &str = "# Written by nodestrap from the spec of the cluster; an edit does not survive the next render.\n";

/// What completion sets by itself; everything else is the user's.
const OWN_SYSCTLS: [(&str, &str); 2] = [("net.ipv4.ip_forward", "1"), ("net.ipv6.conf.all.forwarding", "1")];
const OWN_MODULES: [&str; 2] = ["br_netfilter", "overlay"];

/// Everything of this module, with its units in the order in which they are started: trust, kernel, time.
///
/// `proxied` are the units that reach out, besides the runtime's.
pub(crate) fn render_system(
    cluster: &CompleteCluster,
    group: &CompleteGroup,
    proxied: &[&str],
) -> Result<Part, RenderError> {
    let runtime_unit = runtime::unit_name(group.container_runtime.name.value);
    let mut part = render_trust(&cluster.trust, group.os.value, runtime_unit)?;
    part.add(render_kernel(&group.sysctls.value, &group.kernel_modules.value, runtime_unit)?);
    part.add(render_time(&cluster.ntp_servers.value, group.os.value)?);
    part.files.extend(render_proxy(&cluster.proxy, &[&[runtime_unit], proxied].concat())?);
    Ok(part)
}

/// Kernel modules, then kernel parameters, some of which a module brings; both before the runtime.
///
/// What nodestrap asks for may be built into the kernel, or not be needed there: only the user's word is law. Which is
/// which is told by what it says, not by who wrote it down, so that a completed spec renders as it did before.
fn render_kernel(
    sysctls: &BTreeMap<SysctlName, Line>,
    modules: &[ModuleName],
    runtime_unit: &str,
) -> Result<Part, RenderError> {
    let mut part = Part::default();
    let mut commands = Vec::new();
    let mut add = |failure, program, path, lines: Vec<String>| -> Result<(), RenderError> {
        if !lines.is_empty() {
            commands.push((failure, program, path));
            part.files.push(public(path, [HEADER, &lines.concat()].concat())?.read_by([name(KERNEL_UNIT)?]));
        }
        Ok(())
    };
    let line = |module: &&ModuleName| format!("{module}\n");
    let (ours, theirs): (Vec<&ModuleName>, Vec<_>) =
        modules.iter().partition(|module| OWN_MODULES.contains(&module.as_str()));
    let program = "/lib/systemd/systemd-modules-load";
    add(Failure::Ignored, program, OWN_MODULES_PATH, ours.iter().map(line).collect())?;
    add(Failure::Counts, program, USER_MODULES_PATH, theirs.iter().map(line).collect())?;
    let line = |(name, value): &(&SysctlName, &Line)| format!("{name} = {value}\n");
    let (ours, theirs): (Vec<_>, Vec<_>) =
        sysctls.iter().partition(|(name, value)| OWN_SYSCTLS.contains(&(name.as_str(), value.as_str())));
    // Two files and not a dash before each line, which systemd before 243 takes for a part of the name.
    let program = "/lib/systemd/systemd-sysctl";
    add(Failure::Ignored, program, OWN_SYSCTLS_PATH, ours.iter().map(line).collect())?;
    add(Failure::Counts, program, USER_SYSCTLS_PATH, theirs.iter().map(line).collect())?;
    if commands.is_empty() {
        return Ok(part);
    }
    part.files.push(unit_file(KERNEL_UNIT, render_kernel_unit(&commands, runtime_unit)?)?);
    part.units.push(unit(KERNEL_UNIT, Start::BeforeGate)?);
    Ok(part)
}

/// It runs these programs, each on its file, in this order.
fn render_kernel_unit(commands: &[(Failure, &str, &str)], runtime_unit: &str) -> Result<Vec<u8>, RenderError> {
    let service = Section::new("Service").text("Type", "oneshot").text("RemainAfterExit", "yes");
    let service = commands.iter().fold(service, |service, (failure, program, path)| {
        service.command_with("ExecStart", *failure, *program, arguments([*path]))
    });
    UnitFile::new(vec![
        Section::new("Unit")
            .text("Description", "Kernel modules and parameters of a Kubernetes node")
            .words("Before", &[runtime_unit, KUBELET_UNIT]),
        service,
        Section::new("Install").text("WantedBy", "multi-user.target"),
    ])
    .render()
}

/// `http_proxy` and its kin for units that reach out, as drop-ins.
fn render_proxy(proxy: &CompleteProxy, units: &[&str]) -> Result<Vec<File>, RenderError> {
    let variables = ProxyVariables::of(proxy);
    if variables.list.is_empty() {
        return Ok(Vec::new());
    }
    let content = UnitFile::new(vec![variables.give(Section::new("Service"))]).render()?;
    let drop_ins = units.iter().map(|unit| unit_file(&format!("{unit}.d/10-proxy.conf"), content.clone()));
    let mut files = drop_ins.collect::<Result<Vec<_>, _>>()?;
    if variables.are_secret {
        let readers = units.iter().map(|unit| name(*unit)).collect::<Result<Vec<_>, _>>()?;
        let pairs = variables.list.iter().map(|(name, value)| (*name, value.as_str()));
        files.push(secret(PROXY_PATH, environment_file(pairs))?.read_by(readers));
    }
    Ok(files)
}

/// What programs learn the proxy from. Empty without one.
pub(crate) struct ProxyVariables {
    list: Vec<(&'static str, String)>,
    /// Whoever is on a machine can ask systemd for the environment of a unit, but not for what is in its files.
    are_secret: bool,
}

impl ProxyVariables {
    pub(crate) fn of(proxy: &CompleteProxy) -> Self {
        Self { list: proxy_variables(proxy), are_secret: proxy.credentials.is_some() }
    }

    /// Where they are secret.
    pub(crate) fn file(&self) -> Option<&'static str> {
        (self.are_secret && !self.list.is_empty()).then_some(PROXY_PATH)
    }

    /// Where everybody may read them.
    pub(crate) fn open(&self) -> impl Iterator<Item = (&str, &str)> {
        let list = if self.are_secret { &[][..] } else { &self.list };
        list.iter().map(|(name, value)| (*name, value.as_str()))
    }

    pub(crate) fn give<'a>(&'a self, service: Section<'a>) -> Section<'a> {
        match self.file() {
            Some(file) => service.text("EnvironmentFile", file),
            None => self.list.iter().fold(service, |service, (name, value)| service.environment(name, value)),
        }
    }
}

/// In both spellings, because programs differ in which one they read.
fn proxy_variables(proxy: &CompleteProxy) -> Vec<(&'static str, String)> {
    let mut variables = Vec::new();
    let urls = [("HTTP_PROXY", "http_proxy", proxy.for_http()), ("HTTPS_PROXY", "https_proxy", proxy.for_https())];
    for (upper, lower, url) in urls {
        if let Some(url) = url {
            variables.push((upper, url.clone()));
            variables.push((lower, url));
        }
    }
    if !variables.is_empty() && !proxy.no_proxy.value.is_empty() {
        let direct: Vec<&str> = proxy.no_proxy.value.iter().map(|entry| entry.as_str()).collect();
        let direct = direct.join(",");
        variables.push(("NO_PROXY", direct.clone()));
        variables.push(("no_proxy", direct));
    }
    variables.sort_unstable();
    variables
}

/// Systems whose packages and paths are those of Red Hat.
pub(crate) fn is_red_hat_like(os: Os) -> bool {
    matches!(os, Os::Al2 | Os::Al2023 | Os::Rhel | Os::Rhcos)
}

/// Time servers, for the client that the system brings.
fn render_time(servers: &[Host], os: Os) -> Result<Part, RenderError> {
    if servers.is_empty() {
        return Ok(Part::default());
    }
    let (path, text, client) = if is_red_hat_like(os) {
        // Written whole: not every system's file reads a folder of additions.
        let mut text = HEADER.to_owned();
        for server in servers {
            let _ = match host_and_port(server) {
                (host, Some(port)) => writeln!(text, "server {host} iburst port {port}"),
                (host, None) => writeln!(text, "server {host} iburst"),
            };
        }
        text.push_str("driftfile /var/lib/chrony/drift\nmakestep 1.0 3\nrtcsync\n");
        ("/etc/chrony.conf", text, TIME_UNITS[0])
    } else {
        let mut names = Vec::with_capacity(servers.len());
        for server in servers {
            match host_and_port(server) {
                (host, None) => names.push(host),
                (_, Some(_)) => {
                    return Err(RenderError::TimeServerPort { server: server.to_string(), os: os.to_string() });
                }
            }
        }
        let text = format!("{HEADER}[Time]\nNTP={}\n", names.join(" "));
        ("/etc/systemd/timesyncd.conf.d/90-nodestrap.conf", text, TIME_UNITS[1])
    };
    let files = vec![public(path, text)?.read_by([name(client)?])];
    Ok(Part { files, units: vec![unit(client, Start::BeforeGate)?], ..Part::default() })
}

/// An IPv6 address without its brackets, which no time client takes.
fn host_and_port(server: &Host) -> (&str, Option<&str>) {
    let text = server.as_str();
    match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, port)) => (address, port.strip_prefix(':')),
        None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
    }
}

/// Certificate authorities where the system looks for them, and the keyrings that nodestrap itself reads.
fn render_trust(trust: &CompleteTrust, os: Os, runtime_unit: &str) -> Result<Part, RenderError> {
    let mut part = Part::default();
    for keyring in &trust.keyrings.value {
        part.files.push(render_keyring(keyring)?);
    }
    let authorities = &trust.certificate_authorities.value;
    if authorities.is_empty() {
        return Ok(part);
    }
    let (folder, suffix, program, words): (_, _, _, &[&str]) = match os {
        Os::Debian | Os::Ubuntu => ("/usr/local/share/ca-certificates", "crt", "/usr/sbin/update-ca-certificates", &[]),
        Os::Flatcar | Os::ContainerLinux => ("/etc/ssl/certs", "pem", "/usr/sbin/update-ca-certificates", &[]),
        Os::Al2 | Os::Al2023 | Os::Rhel | Os::Rhcos => {
            ("/etc/pki/ca-trust/source/anchors", "pem", "/usr/bin/update-ca-trust", &["extract"])
        }
    };
    // The system takes them over when the unit runs, and a runtime reads that when it starts.
    let readers = [name(TRUST_UNIT)?, name(runtime_unit)?];
    let file = |authority: &TrustedAuthority| {
        let (name, certificate) = (&authority.name, authority.certificate.as_str());
        let path = match os {
            // Debian's program looks at names alone: of a certificate that takes the place of another under the same one it makes
            // no link by which OpenSSL would find it.
            Os::Debian | Os::Ubuntu => {
                format!("{folder}/nodestrap-{name}-{}.{suffix}", &sha256_hex(certificate.as_bytes())[..DIGEST_DIGITS])
            }
            _ => format!("{folder}/nodestrap-{name}.{suffix}"),
        };
        Ok(public(path, certificate)?.read_by(readers.clone()))
    };
    part.files.extend(authorities.iter().map(file).collect::<Result<Vec<_>, RenderError>>()?);
    let service = UnitFile::new(vec![
        Section::new("Unit")
            .text("Description", "Certificate authorities that this node trusts besides those of its image")
            // A runtime reads them when it starts.
            .words("Before", &[runtime_unit, KUBELET_UNIT]),
        Section::new("Service").text("Type", "oneshot").text("RemainAfterExit", "yes").command(
            "ExecStart",
            program,
            arguments(words.iter().copied()),
        ),
        Section::new("Install").text("WantedBy", "multi-user.target"),
    ]);
    part.files.push(unit_file(TRUST_UNIT, service.render()?)?);
    part.units.push(unit(TRUST_UNIT, Start::BeforeGate)?);
    Ok(part)
}

fn render_keyring(keyring: &Keyring) -> Result<File, RenderError> {
    public(format!("/etc/nodestrap/keyrings/{}.asc", keyring.name), keyring.keys.0.as_bytes())
}
