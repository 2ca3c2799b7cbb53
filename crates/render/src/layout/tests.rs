//! Both layouts from real specs: golden trees, and what their readers (systemd, bash, the kubelet) make of the files.
#![allow(clippy::disallowed_methods, reason = "reads golden files, and runs bash, which is a reader of our files")]

mod eksctl_layout;
mod environment_files;
mod tectonic_layout;
mod what_all_layouts_have;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use bundle::torcx::{KubeletEnv, RuntimeMappings};
use bundle::{
    Bundle, GateFact, Idleness, MappingsPlace, OsUpdate, Provenance, RuntimeName, RuntimeSource, Secrecy, SeedFallback,
    Signatures, Slot, Start,
};
use spec::{CompleteSpec, KubeVersion, Layout, MaxPods, Origin, Position, Runtime, Setting};

use super::environment_file;
use crate::error::RenderError;
use crate::node::render_node;

const DROP_IN: &str = "/etc/systemd/system/kubelet.service.d/10-eksclt.al2.conf";

fn golden_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

fn load_spec(case: &str) -> String {
    fs::read_to_string(golden_root().join(case).join("spec.yaml")).unwrap()
}

fn complete(case: &str) -> CompleteSpec {
    complete_text(&load_spec(case))
}

fn complete_text(text: &str) -> CompleteSpec {
    let parsed = spec::parse(&[spec::Source::new("spec.yaml", text)]);
    let complete = parsed.resolve(|_| Err("no files".to_owned())).and_then(|spec| spec::complete(&spec));
    complete.unwrap_or_else(|mistakes| panic!("{}", spec::render_mistakes(&mistakes, spec::Colour::Plain)))
}

fn try_render(spec: &CompleteSpec) -> Result<Bundle, RenderError> {
    assert_ne!(spec.cluster.layout.value, Layout::Nodestrap, "not one of these layouts");
    render_node(spec, &spec.groups[0])
}

fn render(spec: &CompleteSpec) -> Bundle {
    try_render(spec).unwrap_or_else(|error| panic!("{error}"))
}

fn rendered(case: &str) -> Bundle {
    render(&complete(case))
}

fn text<'b>(bundle: &'b Bundle, path: &str) -> &'b str {
    let file = bundle.files.iter().find(|file| file.path == path);
    std::str::from_utf8(&file.unwrap_or_else(|| panic!("{path} is not in {bundle:?}")).content).unwrap()
}

fn unit<'b>(bundle: &'b Bundle, name: &str) -> &'b str {
    text(bundle, &format!("/etc/systemd/system/{name}"))
}

fn paths(bundle: &Bundle) -> Vec<&str> {
    bundle.files.iter().map(|file| file.path.as_str()).collect()
}

fn units(bundle: &Bundle) -> Vec<(&str, Start)> {
    bundle.units.iter().map(|unit| (unit.name.as_str(), unit.start)).collect()
}

/// The lines of a unit file that say something.
fn directives(text: &str) -> Vec<&str> {
    text.lines().filter(|line| line.contains('=') && !line.starts_with('#')).collect()
}

/// The flags of a command line, by name.
fn flags(line: &str) -> BTreeMap<&str, &str> {
    let flags = line.split_whitespace().filter_map(|word| word.strip_prefix("--"));
    flags.map(|flag| flag.split_once('=').unwrap_or((flag, ""))).collect()
}

fn exec_start(unit: &str) -> &str {
    directives(unit).into_iter().filter_map(|line| line.strip_prefix("ExecStart=")).next_back().unwrap()
}

fn set<T>(value: T) -> Setting<T> {
    Setting { value, origin: Origin::Default { reason: "a test" } }
}
