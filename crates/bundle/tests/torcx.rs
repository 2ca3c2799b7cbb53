//! What others write for torcx, one folder a case: `crates/bundle/tests/torcx/FORMAT/CASE`, with what it is read as.
//!
//! All cases were made for this test. `UPDATE_GOLDEN=1 cargo test -p bundle --test torcx` writes what is expected anew.
#![allow(clippy::disallowed_methods, reason = "the test reads its own cases")]

use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};
use std::path::{Path, PathBuf};

use bundle::torcx::{
    AddonName, AddonVersion, Board, ImageManifest, KubeletEnv, KubernetesVersion, MappingsError, Minor, NoVersion,
    OsRelease, OsVersion, PackageList, Pick, Profile, ProfileName, RuntimeMappings, Seal, UrlTemplate, choose_profile,
    needed_lists, pick_version,
};

/// What a case is read as.
type Read = fn(&Case) -> String;

/// Each with as many cases as there are at least.
const FORMATS: [(&str, usize, Read); 10] = [
    ("kubernetes-version", 6, kubernetes_version),
    ("os-version", 4, os_version),
    ("runtime-mappings", 17, runtime_mappings),
    ("package-list", 29, package_list),
    ("url-template", 11, url_template),
    ("profile", 9, profile),
    ("next-profile", 6, next_profile),
    ("seal", 4, seal),
    ("image-manifest", 4, image_manifest),
    ("kubelet-env", 13, kubelet_env),
];

struct Case(PathBuf);

impl Case {
    fn read(&self, file: &str) -> String {
        let path = self.0.join(file);
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// The pairs that are asked for.
    fn queries(&self) -> Vec<(String, String)> {
        let text = self.read("query.txt");
        let pairs = text.lines().map(|line| line.split_once(' ').expect("two words"));
        pairs.map(|(one, other)| (one.to_owned(), other.to_owned())).collect()
    }
}

#[test]
fn every_case_is_read_as_expected() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/torcx");
    let mut differences = String::new();
    for (format, least, read) in FORMATS {
        let entries = std::fs::read_dir(root.join(format)).expect("a folder for each format");
        let mut folders: Vec<PathBuf> = entries.map(|entry| entry.expect("readable").path()).collect();
        folders.sort();
        assert!(folders.len() >= least, "{format} has {} cases", folders.len());
        for folder in folders {
            let golden = folder.join("expected.txt");
            let found = read(&Case(folder.clone()));
            if std::env::var_os("UPDATE_GOLDEN").is_some() {
                std::fs::write(&golden, &found).expect("writable");
            }
            let expected = std::fs::read_to_string(&golden).unwrap_or_default();
            if expected != found {
                let name = folder.display();
                writeln!(differences, "{name}: expected\n{expected}found\n{found}").expect("memory takes anything");
            }
        }
    }
    assert!(differences.is_empty(), "{differences}");
}

/// Each line for itself, and what it is read as.
fn line_by_line(case: &Case, read: impl Fn(&str) -> Result<String, String>) -> String {
    let text = case.read("input.txt");
    let said = |line: &str| match read(line) {
        Ok(value) => format!("{line}\n  {value}\n"),
        Err(why) => format!("{line}\n  error: {why}\n"),
    };
    text.lines().map(said).collect()
}

fn text_of(error: impl Display) -> String {
    error.to_string()
}

fn outcome(read: Result<String, String>) -> String {
    read.unwrap_or_else(|why| format!("error: {why}\n"))
}

fn kubernetes_version(case: &Case) -> String {
    let is_tag = case.0.ends_with("tag-of-an-image");
    line_by_line(case, |line| {
        let parse = if is_tag { KubernetesVersion::from_tag } else { KubernetesVersion::parse };
        let version = parse(line).map_err(text_of)?;
        assert_eq!(KubernetesVersion::from_tag(&version.tag()), Ok(version.clone()), "the way back");
        Ok(format!("version {version}, minor {}, tag {}", version.minor(), version.tag()))
    })
}

fn os_version(case: &Case) -> String {
    line_by_line(case, |line| {
        let version = OsVersion::parse(line).map_err(text_of)?;
        Ok(format!("version {version}, {}", if bundle::torcx::has_torcx(&version) { "torcx" } else { "no torcx" }))
    })
}

fn runtime_mappings(case: &Case) -> String {
    let mappings = match RuntimeMappings::parse(&case.read("input.yaml")) {
        Ok(mappings) => mappings,
        Err(error) => return format!("error: {error}\n"),
    };
    assert_eq!(RuntimeMappings::parse(&mappings.to_yaml()).as_ref(), Ok(&mappings), "the way back");
    let mut said = String::new();
    for (minor, addon) in case.queries() {
        let addon = AddonName::new(addon).expect("a name");
        let preferred = mappings.preferred(minor.parse().expect("a minor"), &addon);
        let answer = match preferred {
            Ok(versions) => versions.iter().map(AddonVersion::as_str).collect::<Vec<_>>().join(", "),
            Err(error) => format!("error: {error}"),
        };
        writeln!(said, "{addon} for {minor}: {answer}").expect("memory takes anything");
    }
    said
}

fn package_list(case: &Case) -> String {
    let list = match PackageList::parse(case.read("input.json").as_bytes()) {
        Ok(list) => list,
        Err(error) => return format!("error: {error}\n"),
    };
    let mut said = String::new();
    for (name, version) in case.queries() {
        let found =
            list.find(&AddonName::new(&*name).expect("a name"), &AddonVersion::new(&*version).expect("a version"));
        let answer = match found {
            Ok(None) => "not there".to_owned(),
            Ok(Some(image)) => {
                let size = image.size.map_or_else(|| "unknown".to_owned(), |size| size.to_string());
                format!("{:?}\n  size {size}\n  {}", image.place, image.digest)
            }
            Err(error) => format!("error: {error}"),
        };
        writeln!(said, "{name}:{version}: {answer}").expect("memory takes anything");
    }
    said
}

fn url_template(case: &Case) -> String {
    line_by_line(case, |line| {
        let template = UrlTemplate::parse(line).map_err(text_of)?;
        let (board, version) =
            (Board::new("arm64-usr").expect("a board"), OsVersion::parse("2605.12.0").expect("a version"));
        let dead = if template.is_dead() { ", which is gone" } else { "" };
        Ok(format!("{}{dead}\n  {}", template.list_url(&board, &version), template.signature_url(&board, &version)))
    })
}

fn profile(case: &Case) -> String {
    outcome(Profile::parse(case.read("input.json").as_bytes()).map_err(text_of).map(|profile| {
        let kept = profile.to_json();
        assert_eq!(Profile::parse(kept.as_bytes()).as_ref(), Ok(&profile), "the way back");
        let docker = AddonName::new("docker").expect("a name");
        let applied = profile.version_of(&docker).map_or("nothing".to_owned(), str::to_owned);
        let changed = profile.with(&docker, &AddonVersion::new("17.03").expect("a version"));
        assert_eq!(changed.version_of(&docker), Some("17.03"));
        format!("docker: {applied}\nwith docker 17.03:\n{}", changed.to_json())
    }))
}

fn next_profile(case: &Case) -> String {
    outcome(ProfileName::parse_next(&case.read("input.txt")).map_err(text_of).map(|next| {
        let chosen = choose_profile(next.as_ref(), &ProfileName::new("ours").expect("a name"));
        let said = next.as_ref().map_or("nothing".to_owned(), ToString::to_string);
        format!("next: {said}\nto be changed: {chosen}, at {}, and next: {:?}\n", chosen.path(), chosen.to_next())
    }))
}

fn seal(case: &Case) -> String {
    let seal = Seal::parse(&case.read("input.txt"));
    assert_eq!(Seal::parse(&seal.to_text()), seal, "the way back");
    format!("{seal:#?}\n")
}

fn image_manifest(case: &Case) -> String {
    outcome(ImageManifest::parse(case.read("input.json").as_bytes()).map_err(text_of).map(|manifest| {
        assert_eq!(ImageManifest::parse(manifest.to_json().as_bytes()).as_ref(), Ok(&manifest), "the way back");
        manifest.to_json()
    }))
}

fn kubelet_env(case: &Case) -> String {
    let live = KubernetesVersion::parse(case.read("version.txt").trim()).expect("a version");
    outcome(KubeletEnv::parse(&case.read("input.env")).map_err(text_of).map(|seed| {
        let sown = seed.version().map_or_else(|error| format!("error: {error}"), |version| version.to_string());
        let variables = seed.for_version(&live).into_iter().map(|(name, value)| format!("{name}={value}\n"));
        format!("sown: {sown}\nfor {live}:\n{}", variables.collect::<String>())
    }))
}

/// A list with these versions of docker.
fn list(versions: &str) -> PackageList {
    let entries = versions.split(' ').filter(|version| !version.is_empty()).map(|version| {
        let hash = "ab".repeat(64);
        format!(r#"{{"version":"{version}","hash":"sha512-{hash}","locations":[{{"url":"https://one.example/{version}"}}]}}"#)
    });
    let entries = entries.collect::<Vec<_>>().join(",");
    let text = format!(
        r#"{{"kind":"torcx-package-list-v0","value":{{"packages":[{{"name":"docker","versions":[{entries}]}}]}}}}"#
    );
    PackageList::parse(text.as_bytes()).expect("a list")
}

fn docker() -> AddonName {
    AddonName::new("docker").expect("a name")
}

fn release(text: &str) -> OsVersion {
    OsVersion::parse(text).expect("a version")
}

/// What was picked, and for which releases.
fn pick(preferred: &str, releases: &[(&str, &str)]) -> Result<(String, Vec<String>), NoVersion> {
    let preferred: Vec<AddonVersion> =
        preferred.split(' ').map(|version| AddonVersion::new(version).expect("a version")).collect();
    let next = releases.get(1).map(|(next, _)| release(next));
    let os = OsRelease::new(release(releases[0].0), next);
    let lists: BTreeMap<OsVersion, PackageList> =
        releases.iter().map(|(version, versions)| (release(version), list(versions))).collect();
    Ok(match pick_version(&docker(), &preferred, &os, &lists)? {
        Pick::NoTorcx { release } => ("no torcx".to_owned(), vec![release.to_string()]),
        Pick::Chosen { version, images, .. } => (version.to_string(), images.keys().map(ToString::to_string).collect()),
    })
}

#[test]
fn a_version_is_picked_by_the_truth_table() {
    let (old, one, two) = ("1465.8.0", "1520.3.0", "1576.5.0");
    for (preferred, releases, version, images) in [
        // Nothing waits: what runs decides.
        ("17.03 1.12", &[(one, "1.12 17.03")][..], "17.03", &[one][..]),
        ("17.03 1.12", &[(one, "1.12")], "1.12", &[one]),
        // What waits decides, and what runs gets the same if it has it.
        ("17.03 1.12", &[(one, "17.03 1.12"), (two, "1.12")], "1.12", &[one, two]),
        ("17.03 1.12", &[(one, "1.12"), (two, "17.03 1.12")], "17.03", &[two]),
        ("17.03", &[(one, ""), (two, "17.03")], "17.03", &[two]),
        // A release without torcx needs nothing, and has no list.
        ("17.03", &[(old, "")], "no torcx", &[old]),
        ("17.03", &[(old, "17.03"), (one, "17.03")], "17.03", &[one]),
        ("17.03", &[(one, "17.03"), (old, "17.03")], "no torcx", &[old]),
        // The first preferred one, whatever order the list has.
        ("c b a", &[(one, "a b")], "b", &[one]),
        // A release that is said to wait and already runs.
        ("17.03", &[(one, "17.03"), (one, "17.03")], "17.03", &[one]),
    ] {
        let found = pick(preferred, releases).unwrap_or_else(|error| panic!("{releases:?}: {error}"));
        let images: Vec<String> = images.iter().map(|image| (*image).to_owned()).collect();
        assert_eq!(found, (version.to_owned(), images), "{preferred} {releases:?}");
    }
}

#[test]
fn where_no_version_fits_the_error_names_everything_even_if_the_running_release_has_one() {
    let error = pick("17.03 1.12", &[("1520.3.0", "17.03"), ("1576.5.0", "18.06 18.09")]).expect_err("none fits");
    for word in ["docker", "1576.5.0", "17.03", "1.12", "18.06", "18.09"] {
        assert!(error.to_string().contains(word), "{error}");
    }
    assert!(pick("17.03", &[("1520.3.0", "")]).expect_err("none fits").to_string().contains("none at all"));
    let (os, lists) = (OsRelease::new(release("1520.3.0"), None), BTreeMap::new());
    let error = pick_version(&docker(), &[], &os, &lists).expect_err("no list");
    assert!(matches!(&error, NoVersion::NoList { .. }) && error.to_string().contains("1520.3.0"), "{error}");
}

#[test]
fn lists_are_needed_of_releases_with_torcx_only_and_that_which_boots_next_comes_first() {
    for (current, next, needed) in [
        ("1520.3.0", None, &["1520.3.0"][..]),
        ("1520.3.0", Some("1576.5.0"), &["1576.5.0", "1520.3.0"]),
        ("1465.8.0", Some("1576.5.0"), &["1576.5.0"]),
        ("1520.3.0", Some("1465.8.0"), &[]),
        ("1520.2.9", None, &[]),
    ] {
        let os = OsRelease::new(release(current), next.map(release));
        assert_eq!(
            needed_lists(&os).into_iter().map(OsVersion::as_str).collect::<Vec<_>>(),
            needed,
            "{current} {next:?}"
        );
    }
}

#[test]
fn releases_are_compared_number_by_number() {
    let is_older = |one: &str, other: &str| release(one).is_older_than(&release(other));
    assert!(is_older("1520.3.0", "1520.10.0") && is_older("999.9.9", "1520.3.0") && is_older("1520.3", "1520.3.1"));
    assert!(!is_older("1520.3.0", "1520.3") && !is_older("1520.3", "1520.3.0"));
}

#[test]
fn a_minor_that_is_not_mapped_is_a_typed_error_with_those_that_are() {
    let mappings = RuntimeMappings::parse("kind: VersionManifestV1\nversions: {k8s: {1.10: {docker: ['17.03']}}}\n");
    let minor = |minor| Minor { major: 1, minor };
    let refused = mappings.expect("mappings").preferred(minor(1), &docker()).map(<[AddonVersion]>::len);
    assert_eq!(refused, Err(MappingsError::UnknownMinor { minor: minor(1), known: vec![minor(10)] }));
}
