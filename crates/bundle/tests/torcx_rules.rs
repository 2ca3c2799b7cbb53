//! The rules by which a version is resolved, held against statements of them that are written differently.

use std::collections::{BTreeMap, BTreeSet};

use bundle::torcx::{
    AddonName, AddonVersion, KubernetesVersion, Location, Minor, NoVersion, OsRelease, OsVersion, Package, PackageList,
    PackageVersion, Pick, Profile, ProfileKind, RuntimeMappings, UrlTemplate, has_torcx, needed_lists, pick_version,
};
use proptest::prelude::*;

/// A release with versions of the addon, named by small numbers.
fn list(versions: &BTreeSet<u8>) -> PackageList {
    let version = |number: &u8| PackageVersion {
        version: number.to_string(),
        hash: format!("sha512-{}", "ab".repeat(64)),
        size: None,
        locations: vec![Location { path: String::new(), url: format!("https://one.example/{number}") }],
    };
    let docker =
        Package { name: "docker".to_owned(), versions: versions.iter().map(version).collect(), ..Package::default() };
    PackageList { packages: vec![docker] }
}

fn release(number: u8) -> OsVersion {
    // Some of them older than torcx.
    OsVersion::parse(&format!("{}.{}.0", 1518 + u16::from(number % 5), number % 4)).expect("a version")
}

proptest! {
    #[test]
    fn the_release_that_boots_next_decides_and_never_goes_without(
        preferred in proptest::collection::vec(0u8..6, 0..5),
        current in (0u8..20, proptest::collection::btree_set(0u8..6, 0..5)),
        next in proptest::option::of((0u8..20, proptest::collection::btree_set(0u8..6, 0..5))),
    ) {
        let docker = AddonName::new("docker").expect("a name");
        let wanted: Vec<AddonVersion> =
            preferred.iter().map(|number| AddonVersion::new(number.to_string()).expect("a version")).collect();
        let os = OsRelease::new(release(current.0), next.as_ref().map(|(number, _)| release(*number)));
        let mut versions = BTreeMap::from([(release(current.0), current.1)]);
        versions.extend(next.map(|(number, versions)| (release(number), versions)));
        let all: BTreeMap<OsVersion, PackageList> = versions.iter().map(|(os, has)| (os.clone(), list(has))).collect();
        // What is not needed is not looked at.
        let needed: BTreeMap<OsVersion, PackageList> =
            all.clone().into_iter().filter(|(release, _)| needed_lists(&os).contains(&release)).collect();
        let picked = pick_version(&docker, &wanted, &os, &needed);
        prop_assert_eq!(&picked, &pick_version(&docker, &wanted, &os, &all));
        let fits = |release: &OsVersion, number: &u8| has_torcx(release) && versions[release].contains(number);
        match (picked, preferred.iter().find(|number| fits(os.primary(), number))) {
            (Ok(Pick::NoTorcx { release }), None) => prop_assert!(!has_torcx(&release) && release == *os.primary()),
            (Ok(Pick::Chosen { version, images, .. }), Some(first)) => {
                prop_assert_eq!(version.as_str(), first.to_string());
                let served: BTreeSet<&OsVersion> =
                    versions.keys().filter(|release| fits(release, first)).collect();
                prop_assert_eq!(images.keys().collect::<BTreeSet<_>>(), served);
            }
            (Err(NoVersion::NoneFits { release, .. }), None) => prop_assert!(has_torcx(&release) && release == *os.primary()),
            (found, first) => panic!("{found:?}, {first:?}"),
        }
    }

    #[test]
    fn a_version_and_its_tag_are_one(numbers in proptest::array::uniform3(0u32..3000), added in "(-[a-z0-9]{1,5}(\\.[a-z0-9-]{1,5}){0,2})?(\\+[a-zA-Z0-9]{1,6}(\\.[0-9]{1,3})?)?") {
        let [major, minor, patch] = numbers;
        let version = KubernetesVersion::parse(&format!("v{major}.{minor}.{patch}{added}")).expect("a version");
        prop_assert_eq!(version.minor(), Minor { major, minor });
        prop_assert!(!version.tag().contains('+'));
        prop_assert_eq!(KubernetesVersion::from_tag(&version.tag()), Ok(version));
    }

    #[test]
    fn minors_stay_texts_however_they_are_quoted(minors in proptest::collection::btree_set((0u32..4, 0u32..120), 1..8), quote in "[\"']?") {
        let line = |(major, minor): &(u32, u32)| format!("    {quote}{major}.{minor}{quote}: {{docker: [{quote}{minor}.{major}0{quote}]}}\n");
        let text = format!("kind: VersionManifestV1\nversions:\n  k8s:\n{}", minors.iter().map(line).collect::<String>());
        let mappings = RuntimeMappings::parse(&text).expect("mappings");
        let docker = AddonName::new("docker").expect("a name");
        for (major, minor) in minors {
            let found = mappings.preferred(Minor { major, minor }, &docker).expect("it is there");
            prop_assert_eq!(found[0].as_str(), format!("{minor}.{major}0"));
        }
        prop_assert_eq!(RuntimeMappings::parse(&mappings.to_yaml()), Ok(mappings));
    }

    #[test]
    fn a_change_of_one_image_leaves_all_others_as_they_are(
        names in proptest::collection::vec("[ab]|docker", 0..6), is_v1 in any::<bool>(),
    ) {
        let image = |name: &String| bundle::torcx::ImageReference {
            name: name.clone(),
            reference: "1".to_owned(),
            remote: if is_v1 { format!("com.example.{name}") } else { String::new() },
        };
        let kind = if is_v1 { ProfileKind::V1 } else { ProfileKind::V0 };
        let profile = Profile { kind, images: names.iter().map(image).collect() };
        let docker = AddonName::new("docker").expect("a name");
        let changed = profile.clone().with(&docker, &AddonVersion::new("2").expect("a version"));
        let others = |profile: &Profile| {
            profile.images.iter().filter(|image| image.name != "docker").cloned().collect::<Vec<_>>()
        };
        prop_assert_eq!(others(&changed), others(&profile));
        prop_assert_eq!(changed.version_of(&docker), Some("2"));
        prop_assert_eq!(Profile::parse(changed.to_json().as_bytes()), Ok(changed));
    }

    #[test]
    fn no_bytes_make_a_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), text in "\\PC{0,120}") {
        for bytes in [bytes.as_slice(), text.as_bytes()] {
            let _ = (PackageList::parse(bytes), Profile::parse(bytes), bundle::torcx::ImageManifest::parse(bytes));
        }
        let _ = (RuntimeMappings::parse(&text), bundle::torcx::KubeletEnv::parse(&text), UrlTemplate::parse(&text));
        let _ = (KubernetesVersion::from_tag(&text), OsVersion::parse(&text), bundle::torcx::Seal::parse(&text));
    }
}
