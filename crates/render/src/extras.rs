//! What users add of their own: files, units, hooks. The same for every layout.

use std::borrow::Cow;

use bundle::{
    File, HOOK_OUTPUT_FOLDER, HOOK_OUTPUT_FOLDER_MODE, Hook, IdleUnit, Idleness, Secrecy, Start, UnitName,
    hook_output_path,
};
use spec::{
    CompleteCluster, CompleteContainerRuntime, CompleteGroup, CompleteProxy, ExtraUnit, HookContainer, HookSlot,
    Runtime, UnitState,
};

use crate::error::RenderError;
use crate::part::{Part, name, public, unit, unit_file};
use crate::system::ProxyVariables;
use crate::unit::{Argument, Failure, Section, UnitFile, arguments};
use crate::{readers, runtime};

/// containerd keeps what hooks run apart from the pods.
const NAMESPACE: &str = "nodestrap";
/// So that a hook can be started by whoever likes in later boots, too: systemd makes the file of its output, but not the
/// folder, and starts nothing without it.
const HOOK_FOLDERS_PATH: &str = "/etc/tmpfiles.d/nodestrap-hooks.conf";

pub(crate) fn render_file_assets(group: &CompleteGroup) -> Result<Vec<File>, RenderError> {
    let runtime = name(runtime::unit_name(group.container_runtime.name.value))?;
    let own_units: Vec<UnitName> =
        group.units.value.iter().filter(|unit| unit.content.is_some()).map(|unit| unit.name.clone()).collect();
    let file = |asset: &spec::FileAsset| {
        let units = readers::of_asset(&asset.path, &runtime, &own_units)?;
        let file = File::public(asset.path.clone(), asset.content.0.as_bytes()).read_by(units);
        let secrecy = if asset.secret { Secrecy::Secret } else { Secrecy::Public };
        Ok(File { mode: asset.mode.0, secrecy, ..file })
    };
    group.file_assets.value.iter().map(file).collect()
}

/// Units and drop-ins, and units that shall not run. What an enabled unit is wanted by is the business of its own `[Install]`
/// section.
pub(crate) fn render_extra_units(units: &[ExtraUnit]) -> Result<Part, RenderError> {
    let mut part = Part::default();
    for extra in units {
        if let Some(content) = &extra.content {
            part.files.push(unit_file(&extra.name, content.0.as_bytes())?);
        }
        let idleness = match extra.state {
            None => None,
            Some(UnitState::Enabled) => {
                part.units.push(unit(extra.name.as_str(), Start::BeforeGate)?);
                None
            }
            Some(UnitState::Disabled) => Some(Idleness::Disabled),
            Some(UnitState::Masked) => Some(Idleness::Masked),
        };
        part.idle_units.extend(idleness.map(|idleness| IdleUnit { name: extra.name.clone(), idleness }));
        for (name, content) in &extra.drop_ins {
            part.files.push(unit_file(&format!("{}.d/{name}.conf", extra.name), content.0.as_bytes())?);
        }
    }
    Ok(part)
}

/// What the containers of hooks need to know of their node.
pub(crate) struct HookInputs<'a> {
    pub(crate) runtime: &'a CompleteContainerRuntime,
    /// It is not there before the bootstrap has installed it.
    pub(crate) brings_runtime: bool,
    pub(crate) proxy: &'a CompleteProxy,
    /// Where mirrors of registries are written down, if there are any.
    pub(crate) mirrors_folder: Option<&'a str>,
}

impl<'a> HookInputs<'a> {
    pub(crate) fn of(cluster: &'a CompleteCluster, group: &'a CompleteGroup) -> Self {
        Self {
            runtime: &group.container_runtime,
            brings_runtime: !runtime::is_preinstalled(group),
            proxy: &cluster.proxy,
            mirrors_folder: (!cluster.registry_mirrors.value.is_empty())
                .then(|| runtime::mirrors_folder(&group.container_runtime.config)),
        }
    }
}

/// Each hook as a oneshot unit without an `[Install]` section: the bootstrap starts it at its slot. Sorted by name.
pub(crate) fn render_hooks(
    hooks: &[spec::Hook],
    inputs: &HookInputs<'_>,
) -> Result<(Vec<File>, Vec<Hook>), RenderError> {
    let mut files = Vec::with_capacity(hooks.len());
    let mut entries = Vec::with_capacity(hooks.len());
    for hook in hooks {
        let entry = Hook {
            name: hook.name.to_string(),
            slot: hook.slot,
            unit: name(format!("nodestrap-hook-{}.service", hook.name))?,
            timeout_seconds: whole_seconds(hook.timeout.as_str())
                .ok_or_else(|| RenderError::HookTimeout { hook: hook.name.to_string() })?,
            necessity: hook.necessity,
        };
        let content = match (&hook.unit, &hook.container) {
            (Some(unit), _) if is_whole_unit(&unit.0) => with_output(&unit.0, &entry.unit).into_bytes(),
            (Some(unit), _) => {
                let service = match decide_output(&unit.0) {
                    Output::File => oneshot_with_output(&entry),
                    Output::Own => oneshot(&entry),
                };
                UnitFile::new(vec![description(hook), service.body(&unit.0)]).render()?
            }
            (None, Some(container)) => container_unit(hook, container, &entry, inputs)?,
            (None, None) => return Err(RenderError::EmptyHook { hook: hook.name.to_string() }),
        };
        files.push(unit_file(&entry.unit, content)?);
        entries.push(entry);
    }
    if !files.is_empty() {
        let line = format!("d {HOOK_OUTPUT_FOLDER} {HOOK_OUTPUT_FOLDER_MODE:04o} root root -\n");
        files.push(public(HOOK_FOLDERS_PATH, line.into_bytes())?);
    }
    entries.sort_by(|one, other| one.name.cmp(&other.name));
    Ok((files, entries))
}

/// Where the output of a hook goes.
#[derive(Debug, PartialEq)]
enum Output {
    /// Where its last words are found as soon as they are said, whatever journald is at.
    File,
    /// Where the user's text says, or to the journal.
    Own,
}

/// What says itself where its output goes is not interfered with. Nor is what goes on when its job has ended: it would
/// fill its file for ever.
fn decide_output(text: &str) -> Output {
    let is_own = text.lines().filter_map(|line| line.split_once('=')).any(|(key, value)| match key.trim() {
        "StandardOutput" | "StandardError" => true,
        "Type" => value.trim() != "oneshot",
        _ => false,
    });
    if is_own { Output::Own } else { Output::File }
}

/// The lines are put to the user's own: a drop-in would be one more file for each hook.
fn with_output(text: &str, unit: &str) -> String {
    // Without a type it is a service that runs on.
    let has_type = text.lines().any(|line| line.split_once('=').is_some_and(|(key, _)| key.trim() == "Type"));
    let position = text.split_inclusive('\n').position(is_service);
    let (Some(position), true, Output::File) = (position, has_type, decide_output(text)) else {
        return text.to_owned();
    };
    let lines: String = output_lines(unit).iter().map(|(key, value)| format!("{key}={value}\n")).collect();
    let mut parts: Vec<&str> = text.split_inclusive('\n').collect();
    parts.insert(position + 1, &lines);
    parts.concat()
}

fn output_lines(unit: &str) -> [(&'static str, String); 2] {
    [("StandardOutput", format!("append:{}", hook_output_path(unit))), ("StandardError", "inherit".to_owned())]
}

/// A unit has a `[Service]` section; the body of one has not.
fn is_whole_unit(text: &str) -> bool {
    text.lines().any(is_service)
}

fn is_service(line: &str) -> bool {
    line.trim() == "[Service]"
}

fn description(hook: &spec::Hook) -> Section<'_> {
    Section::new("Unit").text("Description", format!("Hook {} ({})", hook.name, hook.slot))
}

fn oneshot<'a>(hook: &Hook) -> Section<'a> {
    Section::new("Service").text("Type", "oneshot").text("TimeoutStartSec", hook.timeout_seconds.to_string())
}

fn oneshot_with_output<'a>(hook: &Hook) -> Section<'a> {
    output_lines(&hook.unit).into_iter().fold(oneshot(hook), |section, (key, value)| section.text(key, value))
}

/// Runs by the runtime's own client, because a pod needs a kubelet.
fn container_unit(
    hook: &spec::Hook,
    container: &HookContainer,
    entry: &Hook,
    inputs: &HookInputs<'_>,
) -> Result<Vec<u8>, RenderError> {
    let early = matches!(hook.slot, HookSlot::BeforeFiles | HookSlot::AfterFiles | HookSlot::BeforeRuntime);
    if early && inputs.brings_runtime {
        return Err(RenderError::HookBeforeRuntime { hook: hook.name.to_string(), slot: hook.slot.as_str() });
    }
    if hook.slot == HookSlot::BeforeFiles && inputs.proxy.credentials.is_some() {
        return Err(RenderError::HookBeforeProxy { hook: hook.name.to_string() });
    }
    let runtime = inputs.runtime.name.value;
    let unit = runtime::unit_name(runtime);
    let environment: Vec<String> =
        container.environment.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let proxy = ProxyVariables::of(inputs.proxy);
    let service = proxy.give(oneshot_with_output(entry));
    let run = Run { name: hook.name.as_str(), container, environment: &environment, client: client(inputs.runtime) };
    let service = match runtime {
        Runtime::Containerd => run.by_containerd(service, inputs.mirrors_folder),
        Runtime::CriO | Runtime::Docker => run.by_docker_like(service),
    };
    UnitFile::new(vec![description(hook).text("Requires", unit).text("After", unit), service]).render()
}

/// The program by which people, too, would run a container beside the pods.
fn client(runtime: &CompleteContainerRuntime) -> Cow<'_, str> {
    match runtime.name.value {
        // CRI-O has none; the systems that come with it have podman.
        Runtime::CriO => Cow::Borrowed("/usr/bin/podman"),
        Runtime::Containerd => sibling(runtime.binary.value.as_str(), "ctr"),
        Runtime::Docker => sibling(runtime.binary.value.as_str(), "docker"),
    }
}

fn sibling<'a>(program: &str, name: &str) -> Cow<'a, str> {
    let folder = program.rsplit_once('/').map_or("", |(folder, _)| folder);
    Cow::Owned(format!("{folder}/{name}"))
}

struct Run<'a> {
    name: &'a str,
    container: &'a HookContainer,
    environment: &'a [String],
    client: Cow<'a, str>,
}

impl<'a> Run<'a> {
    fn command(&self) -> impl Iterator<Item = &'a str> {
        self.container.command.iter().map(|word| word.as_str())
    }

    fn environment(&self, flag: &'a str) -> impl Iterator<Item = &'a str> {
        self.environment.iter().flat_map(move |variable| [flag, variable.as_str()])
    }

    fn by_containerd(&self, service: Section<'a>, mirrors_folder: Option<&'a str>) -> Section<'a> {
        let image = self.container.image.as_str();
        let of_namespace = |words: &[&'a str]| -> Vec<Argument<'a>> {
            arguments(["-n", NAMESPACE].into_iter().chain(words.iter().copied()))
        };
        let mut pull: Vec<&str> = vec!["images", "pull"];
        if let Some(folder) = mirrors_folder {
            pull.extend(["--hosts-dir", folder]);
        }
        pull.push(image);
        let mut run: Vec<&str> = vec!["run", "--rm", "--net-host"];
        run.extend(self.environment("--env"));
        run.extend([image, self.name]);
        run.extend(self.command());
        let client = || self.client.clone();
        service
            // What a crash left behind would keep the name taken.
            .command_with(
                "ExecStartPre",
                Failure::Ignored,
                client(),
                of_namespace(&["tasks", "delete", "--force", self.name]),
            )
            .command_with(
                "ExecStartPre",
                Failure::Ignored,
                client(),
                of_namespace(&["containers", "delete", self.name]),
            )
            .command("ExecStartPre", client(), of_namespace(&pull))
            .command("ExecStart", client(), of_namespace(&run))
    }

    fn by_docker_like(&self, service: Section<'a>) -> Section<'a> {
        let mut run: Vec<&str> = vec!["run", "--rm", "--network", "host"];
        run.extend(self.environment("--env"));
        run.push(self.container.image.as_str());
        run.extend(self.command());
        service.command("ExecStart", self.client.clone(), arguments(run))
    }
}

/// A duration as Go writes it, rounded up; `None` for one that is not positive.
fn whole_seconds(text: &str) -> Option<u64> {
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    let mut nanoseconds = 0_f64;
    while !rest.is_empty() {
        let (number, after) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit() && c != '.')?);
        let (unit, after) = after.split_at(after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len()));
        let nanoseconds_each = match unit {
            "h" => 3.6e12,
            "m" => 6e10,
            "s" => 1e9,
            "ms" => 1e6,
            "ns" => 1.0,
            _ => 1e3,
        };
        nanoseconds += number.parse::<f64>().ok()? * nanoseconds_each;
        rest = after;
    }
    let seconds = (nanoseconds / 1e9).ceil();
    // Beyond a century it is a mistake; below, every whole number of seconds is exact.
    (1.0..3.2e9).contains(&seconds).then_some(seconds as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_rounded_up_to_seconds() {
        for (text, seconds) in
            [("5m0s", 300), ("1h30m", 5400), ("1.5s", 2), ("10ms", 1), ("1us", 1), ("+2s", 2), ("90s", 90)]
        {
            assert_eq!(whole_seconds(text), Some(seconds), "{text}");
        }
        for text in ["0", "0s", "-5s", "5", "", "10000000h"] {
            assert_eq!(whole_seconds(text), None, "{text}");
        }
    }

    #[test]
    fn a_service_section_makes_a_text_a_whole_unit() {
        assert!(is_whole_unit("[Unit]\n [Service] \nExecStart=/x\n"));
        assert!(!is_whole_unit("ExecStart=/bin/echo [Service]\n"));
    }

    #[test]
    fn a_hook_says_what_it_says_into_a_file_unless_it_decides_that_itself_or_goes_on_running() {
        let cases = [
            ("ExecStart=/x", Output::File),
            ("Type=oneshot\nRemainAfterExit=yes\nExecStart=/x --flag=StandardOutput", Output::File),
            ("# StandardOutput=null\nExecStart=/x", Output::File),
            (" StandardOutput = null\nExecStart=/x", Output::Own),
            ("ExecStart=/x\nStandardError=journal+console", Output::Own),
            ("Type=forking\nExecStart=/x", Output::Own),
        ];
        for (text, expected) in cases {
            assert_eq!(decide_output(text), expected, "{text:?}");
        }
    }

    #[test]
    fn a_whole_unit_gets_the_lines_for_its_output_and_stays_as_it_is_otherwise() {
        let lines = "StandardOutput=append:/run/nodestrap/hooks/a.service.log\nStandardError=inherit\n";
        let changed = with_output("[Unit]\nA=b\n[Service]\nType=oneshot\nExecStart=/x", "a.service");
        assert_eq!(changed, format!("[Unit]\nA=b\n[Service]\n{lines}Type=oneshot\nExecStart=/x"));
        let named = with_output("[Unit]\nDescription=my [Service]\n[Service]\nType=oneshot\n", "a.service");
        assert_eq!(named, format!("[Unit]\nDescription=my [Service]\n[Service]\n{lines}Type=oneshot\n"));
        for text in ["[Service]\nExecStart=/x", "[Service]\nType=oneshot\nStandardOutput=null\nExecStart=/x"] {
            assert_eq!(with_output(text, "a.service"), text);
        }
    }
}
