//! Command lines, held against `--help` of the very programs of that minor.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::Document;
use crate::cache::{Consumers, minor_of};
use crate::command::output_text;

const PROGRAMS: [&str; 6] =
    ["etcd", "kube-apiserver", "kube-controller-manager", "kube-proxy", "kube-scheduler", "kubelet"];

/// One program with its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandLine {
    pub program: String,
    /// Of the program itself, as "1.36"; for etcd it is not that of Kubernetes.
    pub minor: String,
    pub arguments: Vec<String>,
}

/// What `--help` said, each program asked once.
pub struct Flags<'a> {
    consumers: &'a Consumers,
    known: BTreeMap<(String, String), Help>,
}

struct Help {
    flags: BTreeSet<String>,
    text: String,
}

/// Whether there was a program to ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    Yes,
    /// The cache has no program of this minor.
    NoSuchProgram,
}

impl<'a> Flags<'a> {
    pub fn new(consumers: &'a Consumers) -> Self {
        Self { consumers, known: BTreeMap::new() }
    }

    /// Every flag, and every feature gate in `--feature-gates`, is listed by the help of the program.
    pub fn check(&mut self, line: &CommandLine) -> Result<Asked> {
        let Some(help) = self.help(&line.program, &line.minor)? else { return Ok(Asked::NoSuchProgram) };
        let mut wrong = Vec::new();
        for argument in line.arguments.iter().filter(|argument| argument.starts_with('-')) {
            let (flag, value) = argument.split_once('=').unwrap_or((argument, ""));
            if !help.flags.contains(flag) {
                wrong.push(format!("{flag} is not among the flags"));
            } else if flag == "--feature-gates" {
                let gates = value.split(',').filter_map(|gate| gate.split_once('=')).map(|(name, _)| name);
                wrong.extend(help.unknown_gates(gates));
            }
        }
        if wrong.is_empty() { Ok(Asked::Yes) } else { bail!("{} {}: {}", line.program, line.minor, wrong.join("; ")) }
    }

    /// Every name is listed as a feature gate by the help of the program.
    pub fn check_gates<'b>(
        &mut self,
        program: &str,
        minor: &str,
        gates: impl Iterator<Item = &'b str>,
    ) -> Result<Asked> {
        let Some(help) = self.help(program, minor)? else { return Ok(Asked::NoSuchProgram) };
        let wrong: Vec<String> = help.unknown_gates(gates).collect();
        if wrong.is_empty() { Ok(Asked::Yes) } else { bail!("{program} {minor}: {}", wrong.join("; ")) }
    }

    fn help(&mut self, program: &str, minor: &str) -> Result<Option<&Help>> {
        let key = (program.to_owned(), minor.to_owned());
        if !self.known.contains_key(&key) {
            let Some(path) = self.path_of(program, minor)? else { return Ok(None) };
            let output = Command::new(&path).arg("--help").stdin(Stdio::null()).output();
            let output = output.with_context(|| format!("running {} --help", path.display()))?;
            let help = Help::parse(output_text(&output));
            if help.flags.is_empty() {
                bail!("{} --help lists no flags:\n{}", path.display(), help.text);
            }
            self.known.insert(key.clone(), help);
        }
        Ok(self.known.get(&key))
    }

    fn path_of(&self, program: &str, minor: &str) -> Result<Option<PathBuf>> {
        let folder = if program == "etcd" { self.consumers.etcd(minor)? } else { self.consumers.kubernetes(minor)? };
        Ok(folder.map(|folder| folder.join(program)))
    }
}

impl Help {
    /// A flag is described in a line that starts with it, as `-v, --v Level` or `--name 'default'`.
    fn parse(text: String) -> Self {
        let names = |line: &str| -> Vec<String> {
            let words = line.split_whitespace().map(|word| word.trim_end_matches(','));
            words
                .take_while(|word| word.starts_with('-'))
                .map(|word| word.split('=').next().unwrap_or(word).to_owned())
                .collect()
        };
        Self { flags: text.lines().flat_map(names).collect(), text }
    }

    fn unknown_gates<'b>(&self, gates: impl Iterator<Item = &'b str>) -> impl Iterator<Item = String> {
        // The list ends each name so; AllAlpha and AllBeta are in it too.
        gates
            .filter(|gate| !self.text.contains(&format!("{gate}=true|false")))
            .map(|gate| format!("{gate} is not among the feature gates"))
    }
}

/// What the containers of a pod run, where it is one of the programs that we can ask.
pub fn command_lines_of_pod(kubernetes_minor: &str, pod: &Document) -> Vec<CommandLine> {
    let list = |container: &Value, key: &str| -> Vec<String> {
        let words = container.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        words.iter().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let mut lines = Vec::new();
    for kind in ["/spec/containers", "/spec/initContainers"] {
        for container in pod.value.pointer(kind).and_then(Value::as_array).into_iter().flatten() {
            let mut words = [list(container, "command"), list(container, "args")].concat();
            if let [shell, flag, script, ..] = words.as_slice()
                && shell.ends_with("sh")
                && flag == "-c"
            {
                words = script.split_whitespace().map(str::to_owned).collect();
            }
            let image = container.get("image").and_then(Value::as_str).unwrap_or_default();
            lines.extend(command_line(kubernetes_minor, image, &words));
        }
    }
    lines
}

/// What the lines of a unit start, where it is one of the programs that we can ask.
pub fn command_lines_of_unit(kubernetes_minor: &str, unit: &str) -> Vec<CommandLine> {
    let whole = unit.replace("\\\n", " ");
    let starts = whole.lines().filter_map(|line| line.split_once('=')).filter(|(key, _)| key.starts_with("Exec"));
    let words = |text: &str| -> Vec<String> { text.split_whitespace().map(str::to_owned).collect() };
    starts.filter_map(|(_, text)| command_line(kubernetes_minor, "", &words(text))).collect()
}

fn command_line(kubernetes_minor: &str, image: &str, words: &[String]) -> Option<CommandLine> {
    let base = |word: &str| word.rsplit('/').next().unwrap_or(word).to_owned();
    let at = words.iter().position(|word| PROGRAMS.contains(&base(word).as_str()))?;
    let program = base(&words[at]);
    let minor = if program == "etcd" {
        minor_of(image.rsplit_once(':').map_or("", |(_, tag)| tag))
    } else {
        kubernetes_minor.to_owned()
    };
    Some(CommandLine { program, minor, arguments: words[at + 1..].to_vec() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn flags_are_read_from_the_lines_that_describe_them() {
        let help = Help::parse("Usage: x --not-this\n  -v, --v Level   see --other\n      --name 'x'\n".to_owned());
        assert_eq!(help.flags.into_iter().collect::<Vec<_>>(), ["--name", "--v", "-v"]);
    }

    #[test]
    fn a_unit_starts_its_program_with_the_flags_of_all_its_lines() {
        let unit = "[Service]\nExecStartPre=/usr/bin/x --no\nExecStart=/usr/bin/kubelet $ARGS \\\n  --a=1\n";
        let lines = command_lines_of_unit("1.30", unit);
        assert_eq!(lines.len(), 1);
        assert_eq!(
            (lines[0].program.as_str(), lines[0].arguments.last().map(String::as_str)),
            ("kubelet", Some("--a=1"))
        );
    }

    #[test]
    fn a_pod_runs_its_command_with_its_arguments_and_etcd_has_the_minor_of_its_image() {
        let text = "kind: Pod\nspec:\n  containers:\n  - command: [/bin/kube-proxy]\n    args: [--a=1]\n  - image: r:5000/etcd:v3.7.3-0\n    command: [sh, -c, exec etcd --b]\n  - command: [other, --c]\n";
        let pod = super::super::cases::documents_of(Path::new("f"), text).expect("YAML").remove(0);
        let line = |program: &str, minor: &str, argument: &str| CommandLine {
            program: program.into(),
            minor: minor.into(),
            arguments: vec![argument.into()],
        };
        assert_eq!(
            command_lines_of_pod("1.30", &pod),
            [line("kube-proxy", "1.30", "--a=1"), line("etcd", "3.7", "--b")]
        );
    }
}
