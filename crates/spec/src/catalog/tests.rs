use serde_json::Value;

use super::schema::{Availability, Field, Flag, FlagKind, Schema};
use super::{Component, RELEASES, Target, find_release, newest_release};

const OLDEST: u32 = 30;
const NEWEST: u32 = 36;

/// Every table of fields below `fields`, with where it is.
fn each_table(at: &str, fields: &'static [Field], visit: &mut impl FnMut(&str, &'static [Field])) {
    visit(at, fields);
    for field in fields {
        each_schema(&format!("{at}.{}", field.name), field.schema, visit);
    }
}

fn each_schema(at: &str, schema: Schema, visit: &mut impl FnMut(&str, &'static [Field])) {
    match schema {
        Schema::Object(fields) | Schema::Open(fields) => each_table(at, fields, visit),
        Schema::List(of) | Schema::Map(of) => each_schema(at, *of, visit),
        _ => {}
    }
}

fn each_config_table(visit: &mut impl FnMut(&str, &'static [Field])) {
    for component in Component::ALL {
        if let Some(fields) = component.config() {
            each_table(component.name(), fields, visit);
        }
    }
}

fn assert_sorted(at: &str, names: &[&str]) {
    assert!(!names.is_empty(), "{at} is empty");
    for pair in names.windows(2) {
        assert!(pair[0] < pair[1], "{at}: {} comes after {}", pair[0], pair[1]);
    }
}

#[test]
fn names_are_sorted_and_unique() {
    each_config_table(&mut |at, fields| {
        assert_sorted(at, &fields.iter().map(|field| field.name).collect::<Vec<_>>());
    });
    for component in Component::ALL.iter().filter(|component| !component.flags().is_empty()) {
        assert_sorted(component.name(), &component.flags().iter().map(|flag| flag.name).collect::<Vec<_>>());
    }
    for component in Component::ALL.iter().filter(|component| !component.flag_fields().is_empty()) {
        assert_sorted("hints", &component.flag_fields().iter().map(|(flag, _)| *flag).collect::<Vec<_>>());
    }
}

#[test]
fn the_fields_that_flags_belong_into_exist() {
    for component in Component::ALL {
        for (flag, path) in component.flag_fields() {
            let mut fields = component.config().unwrap();
            for name in path.split('.') {
                let field = fields.iter().find(|field| field.name == name);
                fields = field.unwrap_or_else(|| panic!("{} --{flag}: {path}", component.name())).below();
            }
        }
    }
}

fn assert_sane(at: &str, available: Availability, oldest: u32, newest: u32) {
    assert!(available.since == 0 || (available.since > oldest && available.since <= newest), "{at}: {available:?}");
    assert!(available.until == u32::MAX || (available.until > oldest && available.until <= newest), "{at}");
    assert!(available.since < available.until, "{at}: {available:?}");
}

#[test]
fn everything_is_available_in_some_version_that_is_known() {
    each_config_table(&mut |at, fields| {
        let (oldest, newest) = if at.starts_with("containerd") { (0, 4) } else { (OLDEST, NEWEST) };
        for field in fields {
            assert_sane(&format!("{at}.{}", field.name), field.available, oldest, newest);
        }
    });
    for component in Component::ALL {
        let (oldest, newest) = match component {
            Component::Etcd => (5, 7),
            Component::KubeletOfTectonic => (8, 11),
            _ => (OLDEST, NEWEST),
        };
        for flag in component.flags() {
            assert_sane(&format!("{} --{}", component.name(), flag.name), flag.available, oldest, newest);
        }
    }
}

fn fits(value: &Value, schema: Schema) -> bool {
    match schema {
        Schema::Bool => value.is_boolean(),
        Schema::Int { min, max } => value.as_i64().is_some_and(|number| (min..=max).contains(&number)),
        Schema::Float => value.is_number(),
        Schema::Number { min, max } => value.as_f64().is_some_and(|number| (min..=max).contains(&number)),
        Schema::Text => value.is_string(),
        Schema::Form(form) => {
            let target = Target { component: Component::Kubelet, minor: Some(NEWEST) };
            value.as_str().is_some_and(|text| form.check(text, target).is_ok())
        }
        Schema::Choice(choices) => value.as_str().is_some_and(|text| choices.contains(&text)),
        Schema::Duration => value.as_str().is_some_and(is_duration),
        Schema::Within { min, max } => {
            value.as_str().is_some_and(|text| crate::syntax::validate_duration_within(text, min, max).is_ok())
        }
        Schema::List(of) => value.as_array().is_some_and(|items| items.iter().all(|item| fits(item, *of))),
        Schema::Map(of) => value.as_object().is_some_and(|entries| entries.values().all(|value| fits(value, *of))),
        Schema::Object(fields) => value.as_object().is_some_and(|entries| {
            entries.iter().all(|(name, value)| {
                fields.iter().find(|field| field.name == name).is_some_and(|field| fits(value, field.schema))
            })
        }),
        Schema::Open(_) | Schema::Free => true,
    }
}

fn is_duration(text: &str) -> bool {
    crate::syntax::validate_go_duration(text).is_ok()
}

#[test]
fn every_builtin_fits_its_field() {
    let mut count = 0;
    each_config_table(&mut |at, fields| {
        for field in fields {
            let Some(builtin) = field.builtin else { continue };
            let value: Value =
                serde_json::from_str(builtin).unwrap_or_else(|error| panic!("{at}.{}: {error}", field.name));
            assert!(fits(&value, field.schema), "{at}.{}: {builtin}", field.name);
            count += 1;
        }
    });
    assert!(count > 50, "only {count} builtins");
}

fn shown_fits(flag: &Flag, shown: &str) -> bool {
    match flag.kind {
        FlagKind::Bool => shown == "true" || shown == "false",
        FlagKind::Int | FlagKind::Int32 | FlagKind::Natural => shown.parse::<i64>().is_ok(),
        FlagKind::Float => shown.parse::<f64>().is_ok(),
        FlagKind::Duration => is_duration(shown),
        _ => !shown.is_empty(),
    }
}

#[test]
fn every_builtin_fits_its_flag() {
    for component in Component::ALL {
        for flag in component.flags() {
            let fits = flag.builtin.is_none_or(|shown| shown_fits(flag, shown));
            assert!(fits, "{} --{}: {:?}", component.name(), flag.name, flag.builtin);
        }
    }
}

#[test]
fn every_release_is_found_by_every_patch_of_its_minor() {
    let minors: Vec<u32> = RELEASES.iter().map(|release| release.newest.minor).collect();
    assert_eq!(minors, (OLDEST..=NEWEST).collect::<Vec<_>>());
    assert_eq!(newest_release().newest.minor, NEWEST);
    for release in RELEASES {
        let mut version = release.newest;
        version.patch = 0;
        assert_eq!(find_release(version).unwrap().newest, release.newest);
        let etcd = release.target(Component::Etcd).minor.unwrap();
        assert!((5..=7).contains(&etcd), "{}", release.etcd_version);
        assert_eq!(release.target(Component::KubeProxy).minor, Some(release.newest.minor));
    }
}

#[test]
fn a_version_says_since_when_it_lacks_something() {
    let available = Availability { since: 33, until: 35 };
    let said =
        |minor| Target { component: Component::Kubelet, minor: Some(minor) }.unavailable(available).map(|(why, _)| why);
    assert_eq!(said(32).as_deref(), Some("before Kubernetes 1.33; this cluster runs Kubernetes 1.32"));
    assert_eq!(said(33), None);
    assert_eq!(said(34), None);
    assert_eq!(said(35).as_deref(), Some("since Kubernetes 1.35; this cluster runs Kubernetes 1.35"));
}
