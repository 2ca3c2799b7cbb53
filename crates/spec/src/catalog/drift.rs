//! The tables say what the recorded facts say, minor by minor. This reads the facts on its own, not as the generator
//! does, so that it finds the generator's mistakes too.

#![allow(clippy::disallowed_methods, reason = "the facts are files of this repository")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::{Component, Field, FlagKind, Schema, Target, changed_builtin};

const REGENERATE: &str =
    "the tables and tools/catalog/facts disagree: regenerate with `go run ./generate` in tools/catalog";

const CONFIGURED: &[Component] = &[Component::Kubelet, Component::KubeProxy, Component::KubeScheduler];

const KUBERNETES: &[Component] = &[
    Component::Kubelet,
    Component::KubeApiserver,
    Component::KubeControllerManager,
    Component::KubeScheduler,
    Component::KubeProxy,
];

fn rows(name: &str) -> Vec<Vec<String>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/catalog/facts").join(name);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| line.split('\t').map(str::to_owned).collect())
        .collect()
}

fn pairs(name: &str) -> BTreeMap<String, String> {
    rows(name).into_iter().map(|row| (row[0].clone(), row[1].clone())).collect()
}

/// The kind of a schema in the words of the facts; bounds and choices are ours.
fn kind(schema: Schema) -> String {
    match schema {
        Schema::Bool => "bool".to_owned(),
        Schema::Int { .. } => "int".to_owned(),
        Schema::Float | Schema::Number { .. } => "float".to_owned(),
        Schema::Text | Schema::Choice(_) | Schema::Form(_) => "text".to_owned(),
        Schema::Duration | Schema::Within { .. } => "duration".to_owned(),
        Schema::List(of) => format!("list {}", kind(*of)),
        Schema::Map(of) => format!("map {}", kind(*of)),
        Schema::Object(_) | Schema::Open(_) => "object".to_owned(),
        Schema::Free => "free".to_owned(),
    }
}

fn without_size(kind: &str) -> String {
    kind.split(' ')
        .map(|word| match word.trim_end_matches(|letter: char| letter.is_ascii_digit()) {
            "uint" => "int",
            word => word,
        })
        .collect::<Vec<_>>()
        .join(" ")
}

/// Every field that the version of `target` has, as path and kind.
fn fields_of(target: Target, at: &str, fields: &[Field], found: &mut BTreeMap<String, String>) {
    for field in fields.iter().filter(|field| target.has(field.available)) {
        let path = if at.is_empty() { field.name.to_owned() } else { format!("{at}.{}", field.name) };
        fields_below(target, &path, field.schema, found);
        found.insert(path, kind(field.schema));
    }
}

fn fields_below(target: Target, at: &str, schema: Schema, found: &mut BTreeMap<String, String>) {
    match schema {
        Schema::Object(fields) | Schema::Open(fields) => fields_of(target, at, fields, found),
        Schema::List(of) => fields_below(target, &format!("{at}[]"), *of, found),
        Schema::Map(of) => fields_below(target, &format!("{at}{{}}"), *of, found),
        _ => {}
    }
}

#[test]
fn each_minor_has_the_fields_of_its_go_types() {
    for component in CONFIGURED {
        let name = component.name();
        let refined = pairs(&format!("refine/{name}.txt"));
        for minor in 30..=36 {
            let mut wanted: BTreeMap<String, String> = pairs(&format!("config/{name}-1.{minor}.txt"))
                .into_iter()
                .map(|(path, kind)| (path, without_size(&kind)))
                .collect();
            wanted.retain(|path, _| refined.get(path).is_none_or(|refined| refined != "omit"));
            let mut found = BTreeMap::new();
            let target = Target { component: *component, minor: Some(minor) };
            fields_of(target, "", component.config().unwrap(), &mut found);
            assert_eq!(found, wanted, "{name} 1.{minor}: {REGENERATE}");
        }
    }
}

/// What the configuration says better is not in the table of flags.
fn is_said_by_configuration(component: Component, flag: &str) -> bool {
    let joined = flag.replace('-', "");
    component.flag_fields().iter().any(|(name, _)| *name == flag)
        || component == Component::Kubelet
            && component.config().unwrap().iter().any(|field| field.name.eq_ignore_ascii_case(&joined))
}

#[test]
fn flags_belong_into_the_fields_that_were_recorded() {
    for component in CONFIGURED {
        let found: BTreeMap<String, String> =
            component.flag_fields().iter().map(|(flag, path)| ((*flag).to_owned(), (*path).to_owned())).collect();
        assert_eq!(found, pairs(&format!("refine/{}-flag-fields.txt", component.name())), "{REGENERATE}");
    }
}

fn recorded_flags(component: Component, file: &str) -> Vec<Vec<String>> {
    let mut rows = rows(&format!("flags/{}-{file}.txt", component.name()));
    rows.retain(|row| !is_said_by_configuration(component, &row[0]));
    rows
}

fn versions() -> Vec<(Component, u32, String)> {
    let kubernetes =
        KUBERNETES.iter().flat_map(|component| (30..=36).map(move |minor| (*component, minor, format!("1.{minor}"))));
    kubernetes.chain((5..=7).map(|minor| (Component::Etcd, minor, format!("3.{minor}")))).collect()
}

#[test]
fn each_minor_has_the_flags_that_were_recorded() {
    for (component, minor, file) in versions() {
        let target = Target { component, minor: Some(minor) };
        let found: BTreeSet<&str> =
            component.flags().iter().filter(|flag| target.has(flag.available)).map(|flag| flag.name).collect();
        let recorded = recorded_flags(component, &file);
        let wanted: BTreeSet<&str> = recorded.iter().map(|row| row[0].as_str()).collect();
        assert_eq!(found, wanted, "{} {file}: {REGENERATE}", component.name());
    }
}

fn name_of(name: &str) -> &'static str {
    Component::ALL.iter().map(|component| component.name()).find(|known| *known == name).unwrap()
}

#[test]
fn flags_are_as_the_programs_describe_them() {
    let mut builtins: BTreeMap<(&str, String), BTreeSet<String>> = BTreeMap::new();
    for (component, _, file) in versions() {
        for row in recorded_flags(component, &file).into_iter().filter(|row| row.len() == 4) {
            let flag = component.flags().iter().find(|flag| flag.name == row[0]).unwrap();
            let is_bool = row[1] == "bool";
            assert_eq!(flag.kind == FlagKind::Bool, is_bool, "{} --{}: {REGENERATE}", component.name(), row[0]);
            let shown = if row[2] == "[]" { String::new() } else { row[2].clone() };
            builtins.entry((component.name(), row[0].clone())).or_default().insert(shown);
        }
    }
    for row in rows("refine/no-builtin.txt") {
        if let Some(flag) = row[1].strip_prefix("--") {
            builtins.insert((name_of(&row[0]), flag.to_owned()), BTreeSet::new());
        }
    }
    // The flags of Tectonic's time have no recorded help.
    for component in Component::ALL.iter().filter(|component| **component != Component::KubeletOfTectonic) {
        for flag in component.flags() {
            let said = &builtins[&(component.name(), flag.name.to_owned())];
            let wanted = if said.len() == 1 { said.first().map(String::as_str) } else { None };
            let wanted = wanted.filter(|text| !text.is_empty());
            assert_eq!(flag.builtin, wanted, "{} --{}: {REGENERATE}", component.name(), flag.name);
        }
    }
}

#[test]
fn builtins_that_change_with_the_minor_are_those_of_the_programs() {
    for (component, minor, file) in versions() {
        let target = Target { component, minor: Some(minor) };
        for row in recorded_flags(component, &file).into_iter().filter(|row| row.len() == 4) {
            if let Some(builtin) = changed_builtin(target, &row[0]) {
                let shown = if row[2].is_empty() { "0" } else { row[2].as_str() };
                assert_eq!(builtin, shown, "{} {file} --{}", component.name(), row[0]);
            }
        }
    }
    let newest = pairs("defaults/kubelet-1.36.txt");
    let kubelet = Target { component: Component::Kubelet, minor: Some(36) };
    for path in ["failCgroupV1", "imagePullCredentialsVerificationPolicy", "crashLoopBackOff.maxContainerRestartPeriod"]
    {
        let name = path.rsplit('.').next().unwrap();
        assert_eq!(changed_builtin(kubelet, name), newest.get(path).map(String::as_str), "{path}");
    }
}

fn builtins_of(at: &str, fields: &[Field], found: &mut BTreeMap<String, String>) {
    for field in fields {
        let path = if at.is_empty() { field.name.to_owned() } else { format!("{at}.{}", field.name) };
        if let Schema::Object(fields) = field.schema {
            builtins_of(&path, fields, found);
        }
        if let Some(builtin) = field.builtin {
            found.insert(path, builtin.to_owned());
        }
    }
}

#[test]
fn builtins_are_the_recorded_defaults() {
    let withheld = rows("refine/no-builtin.txt");
    for component in CONFIGURED {
        let name = component.name();
        let mut wanted = pairs(&format!("defaults/{name}-1.36.txt"));
        wanted.extend(pairs(&format!("defaults/{name}-start.txt")));
        for row in withheld.iter().filter(|row| row[0] == name && !row[1].starts_with("--")) {
            assert!(wanted.remove(&row[1]).is_some(), "no-builtin.txt names {name} {}, which has no default", row[1]);
        }
        let mut found = BTreeMap::new();
        builtins_of("", component.config().unwrap(), &mut found);
        assert_eq!(found, wanted, "{name}: {REGENERATE}");
    }
}
