//! `nodestrap publish` and `nodestrap artefacts`, as people run them, into a folder.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, reason = "tests own their effects and may panic")]

mod support;

use std::io::Write as _;
use std::path::{Path, PathBuf};

use serde_json::Value;
use support::openpgp::{make_key, public, secret};
use support::{Ran, nodestrap, text};
use tempfile::TempDir;

/// Somebody who publishes: a key, files, and a store.
struct Publisher {
    folder: TempDir,
}

impl Publisher {
    fn new() -> Self {
        let publisher = Self { folder: TempDir::new().unwrap() };
        let key = make_key(7);
        publisher.write("secret.asc", &secret(&key));
        publisher.write("public.asc", &public(&key));
        publisher.write("kubelet", b"\x7fELF a kubelet");
        publisher
            .write("containerd.tgz", &archive(&[("bin/containerd", 0o755), ("bin/ctr", 0o755), ("README", 0o644)]));
        publisher
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        std::fs::write(self.path(name), bytes).unwrap();
    }

    /// With the folder for every `%`.
    fn run(&self, words: &[&str]) -> Ran {
        let place = |word: &str| word.replace('%', &format!("{}/", self.folder.path().display()));
        nodestrap(words.iter().map(|word| place(word)))
    }

    fn publish(&self, more: &[&str]) -> Ran {
        let words = ["publish", "%store", "--key", "%secret.asc", "--keyring", "%public.asc", "-o", "json"];
        self.run(&[words.as_slice(), more].concat())
    }

    fn manifest(&self) -> Value {
        serde_json::from_str(&text(self.path("store/manifest.json"))).unwrap()
    }

    fn objects(&self) -> Vec<String> {
        let mut found = Vec::new();
        if !self.path("store").exists() {
            return found;
        }
        walk(&self.path("store"), &self.path("store"), &mut found);
        found.sort();
        found
    }
}

fn walk(root: &Path, folder: &Path, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => walk(root, &path, found),
            false => found.push(path.strip_prefix(root).unwrap().display().to_string()),
        }
    }
}

/// A ustar archive, compressed; each file says its own name.
fn archive(files: &[(&str, u32)]) -> Vec<u8> {
    let mut tar = Vec::new();
    for (path, mode) in files {
        let mut header = [0_u8; 512];
        header[..path.len()].copy_from_slice(path.as_bytes());
        let mut field = |at: usize, text: &str| header[at..at + text.len()].copy_from_slice(text.as_bytes());
        field(100, &format!("{mode:07o}\0"));
        field(108, "0000000\0");
        field(116, "0000000\0");
        field(124, &format!("{:011o}\0", path.len()));
        field(136, "00000000000\0");
        field(148, "        ");
        field(156, "0");
        field(257, "ustar\x0000");
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        tar.extend(header);
        tar.extend(path.as_bytes());
        tar.resize(tar.len().next_multiple_of(512), 0);
    }
    tar.resize(tar.len() + 1024, 0);
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all(&tar).unwrap();
    gzip.finish().unwrap()
}

const KUBELET: &str = "kubelet@1.36.3=%kubelet";
const CONTAINERD: &str = "containerd@2.4.2=%containerd.tgz";

#[test]
fn what_is_published_is_named_by_a_signed_manifest_with_its_programs() {
    let publisher = Publisher::new();
    let view = publisher.publish(&["--add", KUBELET, "--add", CONTAINERD, "--out", "%artefacts.json"]).expect(0).json();
    assert_eq!((&view["serial"], &view["manifestChanged"]), (&1.into(), &true.into()));
    let manifest = publisher.manifest();
    let [containerd, kubelet] = manifest["artefacts"].as_array().unwrap().as_slice() else { panic!("{manifest}") };
    assert_eq!(containerd["programs"], serde_json::json!(["bin/containerd", "bin/ctr"]), "and no README");
    assert_eq!((&kubelet["form"], &kubelet["size"]), (&"program".into(), &14.into()));
    let digest = kubelet["digest"].as_str().unwrap().strip_prefix("sha256:").unwrap();
    let place = format!("kubelet/1.36.3/{}-kubelet", &digest[..12]);
    assert_eq!(kubelet["places"], serde_json::json!([place]));
    assert_eq!(text(publisher.path("store").join(place)).as_bytes(), b"\x7fELF a kubelet");
    assert_eq!(text(publisher.path("artefacts.json")), text(publisher.path("store/manifest.json")));
    assert_eq!(text(publisher.path("artefacts.json.asc")), text(publisher.path("store/manifest.json.asc")));
    let listed = publisher.run(&["artefacts", "verify", "%store", "--keyring", "%public.asc"]).expect(0);
    assert!(listed.out.contains("signed by ") && listed.out.contains("kubelet 1.36.3 (amd64)"), "{}", listed.out);
}

#[test]
fn publishing_the_same_again_changes_nothing_and_more_is_added_to_what_is_there() {
    let publisher = Publisher::new();
    publisher.publish(&["--add", KUBELET]).expect(0);
    let (before, objects) = (text(publisher.path("store/manifest.json")), publisher.objects());
    let again = publisher.publish(&["--add", KUBELET]).expect(0).json();
    assert_eq!((&again["manifestChanged"], &again["artefacts"][0]["sent"]), (&false.into(), &false.into()));
    assert_eq!((text(publisher.path("store/manifest.json")), publisher.objects()), (before, objects));
    publisher.publish(&["--add", CONTAINERD]).expect(0);
    let manifest = publisher.manifest();
    assert_eq!((&manifest["serial"], manifest["artefacts"].as_array().unwrap().len()), (&2.into(), 2));
}

#[test]
fn another_build_of_a_version_replaces_it_in_the_manifest_and_gc_takes_the_old_one_away() {
    let publisher = Publisher::new();
    publisher.publish(&["--add", KUBELET]).expect(0);
    let old = publisher.objects();
    publisher.write("store/README", b"somebody's own");
    publisher.write("kubelet", b"\x7fELF another kubelet");
    publisher.publish(&["--add", KUBELET]).expect(0);
    assert_eq!(publisher.manifest()["artefacts"].as_array().unwrap().len(), 1);
    let gc = ["artefacts", "gc", "%store", "--keyring", "%public.asc", "-o", "json"];
    let would = publisher.run(&[gc.as_slice(), &["--dry-run"]].concat()).expect(0).json();
    let object = old.iter().find(|name| name.starts_with("kubelet/")).unwrap();
    assert_eq!(would["removed"], serde_json::json!([object]));
    assert!(publisher.objects().contains(object), "a dry run touches nothing");
    publisher.run(&gc).expect(0);
    let left = publisher.objects();
    assert!(!left.contains(object) && left.contains(&"README".to_owned()), "{left:?}");
    publisher.run(&["artefacts", "verify", "%store", "--keyring", "%public.asc"]).expect(0);
}

#[test]
fn a_damaged_object_is_found_and_publishing_it_again_mends_it() {
    let publisher = Publisher::new();
    publisher.publish(&["--add", KUBELET]).expect(0);
    let object = publisher.objects().into_iter().find(|name| name.starts_with("kubelet/")).unwrap();
    publisher.write(&format!("store/{object}"), b"\x7fELF b kubelet");
    let verify = ["artefacts", "verify", "%store", "--keyring", "%public.asc"];
    let found = publisher.run(&verify).expect(4);
    assert!(found.out.contains("publish it again"), "{}", found.out);
    publisher.publish(&["--add", KUBELET]).expect(0);
    publisher.run(&verify).expect(0);
}

#[test]
fn what_a_node_would_refuse_and_what_cannot_be_signed_is_refused_before_anything_is_sent() {
    let publisher = Publisher::new();
    publisher.write("out.tgz", &archive(&[("../kubelet", 0o755)]));
    publisher.publish(&["--add", "kubelet@1=%out.tgz"]).expect(2).says(&["a node would refuse", "../kubelet"]);
    publisher.write("texts.tgz", &archive(&[("README", 0o644)]));
    publisher.publish(&["--add", "kubelet@1=%texts.tgz"]).expect(2).says(&["there is no program in"]);
    publisher.publish(&["--add", "kubelet=%kubelet"]).expect(2).says(&["NAME@VERSION=FILE"]);
    publisher.publish(&["--add", "kubelet@1=%absent"]).expect(2).says(&["cannot read", "absent"]);
    let without_secret = ["publish", "%store", "--key", "%public.asc", "--add", KUBELET];
    publisher.run(&without_secret).expect(2).says(&["secret"]);
    assert!(publisher.objects().is_empty(), "{:?}", publisher.objects());
}

/// Files of a folder, by their paths and modes, from which an image is made.
fn lay_out(publisher: &Publisher, folder: &str, files: &[(&str, u32)]) {
    for (path, mode) in files {
        let path = publisher.path(folder).join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, format!("\x7fELF {}\n", path.display()).repeat(9999)).unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(*mode)).unwrap();
    }
}

const KUBERNETES: &[(&str, u32)] = &[
    ("usr/bin/kubelet", 0o755),
    ("usr/bin/kubectl", 0o700),
    ("usr/libexec/cni/bridge", 0o755),
    ("usr/share/text", 0o600),
];

#[test]
fn an_extension_is_made_the_same_each_time_and_read_by_other_programs() {
    let publisher = Publisher::new();
    lay_out(&publisher, "kubernetes", KUBERNETES);
    std::os::unix::fs::symlink("kubelet", publisher.path("kubernetes/usr/bin/k")).unwrap();
    let make = ["--make-sysext", "kubernetes@1.36.3=%kubernetes"];
    publisher.publish(&make).expect(0);
    let artefact = publisher.manifest()["artefacts"][0].clone();
    assert_eq!(artefact["form"], "sysext");
    assert_eq!(
        artefact["extension"],
        serde_json::json!({"id": "flatcar", "sysextLevel": "1.0", "architecture": "x86-64"})
    );
    let programs = serde_json::json!(["usr/bin/kubectl", "usr/bin/kubelet", "usr/libexec/cni/bridge"]);
    assert_eq!(artefact["programs"], programs);
    let again = publisher.publish(&make).expect(0).json();
    assert_eq!((&again["manifestChanged"], &again["artefacts"][0]["sent"]), (&false.into(), &false.into()));

    let image = publisher.path("store").join(artefact["places"][0].as_str().unwrap());
    let mut unsquashfs = support::program("unsquashfs");
    unsquashfs.args(["-no-xattrs", "-d"]).arg(publisher.path("out")).arg(&image);
    support::finish(unsquashfs).expect(0);
    for (path, mode) in KUBERNETES {
        let (made, from) = (publisher.path("out").join(path), publisher.path("kubernetes").join(path));
        assert_eq!(std::fs::read(&made).unwrap(), std::fs::read(&from).unwrap(), "{path}");
        let found = std::os::unix::fs::PermissionsExt::mode(&made.metadata().unwrap().permissions()) & 0o7777;
        assert_eq!(found, if mode & 0o100 == 0 { 0o644 } else { 0o755 }, "{path}");
    }
    assert_eq!(std::fs::read_link(publisher.path("out/usr/bin/k")).unwrap(), Path::new("kubelet"));
    // What others make is published just the same.
    let mut mksquashfs = support::program("mksquashfs");
    let other = publisher.path("other.raw");
    mksquashfs.arg(publisher.path("out")).arg(&other).args(["-quiet", "-no-progress", "-all-root"]);
    support::finish(mksquashfs).expect(0);
    publisher.publish(&["--add", "kubernetes@1.36.4=%other.raw"]).expect(0);
    assert_eq!(publisher.manifest()["artefacts"][1]["programs"], programs);
}

#[test]
fn an_image_that_would_harm_a_node_or_that_systemd_would_pass_over_is_refused_by_name() {
    let publisher = Publisher::new();
    let case = |name: &str, files: &[(&str, u32)], release: Option<&str>| {
        lay_out(&publisher, name, files);
        if let Some(release) = release {
            let folder = publisher.path(name).join("usr/lib/extension-release.d");
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("extension-release.kubernetes"), release).unwrap();
        }
        let mut mksquashfs = support::program("mksquashfs");
        mksquashfs.arg(publisher.path(name)).arg(publisher.path(&format!("{name}.raw")));
        mksquashfs.args(["-quiet", "-no-progress", "-all-root"]);
        if name == "zstd" {
            mksquashfs.args(["-comp", "zstd"]);
        }
        support::finish(mksquashfs).expect(0);
        publisher.publish(&["--add", &format!("kubernetes@1.36.3=%{name}.raw")])
    };
    let kubelet: &[(&str, u32)] = &[("usr/bin/kubelet", 0o755)];
    let fits = Some("ID=flatcar\nSYSEXT_LEVEL=1.0\n");
    let opt = [kubelet[0], ("opt/bin/x", 0o755)];
    case("opt", &opt, fits).expect(2).says(&["opt", "read-only"]);
    case("etc", &[kubelet[0], ("etc/x", 0o644)], fits).expect(2).says(&["outside /usr"]);
    case("nameless", kubelet, None).expect(2).says(&["extension-release.kubernetes"]);
    case("idless", kubelet, Some("SYSEXT_LEVEL=1.0\n")).expect(2).says(&["no ID"]);
    case("nowhere", kubelet, Some("ID=flatcar\n")).expect(2).says(&["SYSEXT_LEVEL"]);
    case("arm", kubelet, Some("ID=_any\nARCHITECTURE=arm64\n")).expect(2).says(&["arm64", "--architecture"]);
    case("initrd", kubelet, Some("ID=_any\nSYSEXT_SCOPE=initrd\n")).expect(2).says(&["SYSEXT_SCOPE"]);
    case("zstd", kubelet, fits).expect(2).says(&["zstd", "--make-sysext"]);
    case("empty", &[("usr/share/text", 0o644)], fits).expect(2).says(&["no program"]);
    let drop_in = [kubelet[0], ("usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf", 0o644)];
    case("drop-in", &drop_in, fits).expect(2).says(&["kubelet.service.d", "leave it out"]);
    publisher.write("disk.raw", &[0; 4096]);
    publisher.publish(&["--add", "kubernetes@1=%disk.raw"]).expect(2).says(&["no squashfs image"]);
    publisher.publish(&["--make-sysext", "kubernetes@1=%kubelet"]).expect(2).says(&["has no folder"]);
    assert!(publisher.objects().is_empty(), "{:?}", publisher.objects());
    case("good", kubelet, Some("ID=_any\n")).expect(0);
    publisher.publish(&["--add", "containerd@1=%good.raw"]).expect(2).says(&["the extension \"kubernetes\""]);
}

#[test]
fn a_manifest_of_somebody_else_is_not_continued() {
    let publisher = Publisher::new();
    publisher.publish(&["--add", KUBELET]).expect(0);
    let before = text(publisher.path("store/manifest.json"));
    let other = make_key(8);
    publisher.write("secret.asc", &secret(&other));
    publisher.write("public.asc", &public(&other));
    publisher.publish(&["--add", CONTAINERD]).expect(4).says(&["manifest.json cannot be used"]);
    let without = ["publish", "%store", "--key", "%secret.asc", "--add", CONTAINERD];
    publisher.run(&without).expect(2).says(&["--keyring"]);
    assert_eq!(text(publisher.path("store/manifest.json")), before);
}

#[test]
fn a_bundle_is_stored_for_its_owner_under_the_name_by_which_user_data_leads_to_it() {
    let folder = tempfile::tempdir().unwrap();
    let (store, file) = (folder.path().join("store"), folder.path().join("workers.json"));
    std::fs::write(&file, support::bundle()).unwrap();
    let publish = || {
        let arguments = ["publish".into(), store.clone(), "--bundle".into(), file.clone(), "-o".into(), "json".into()];
        nodestrap(arguments).expect(0).json()
    };
    let view = publish();
    let digest = serde_json::from_str::<serde_json::Value>(support::bundle()).unwrap()["digest"].clone();
    assert_eq!((&view["bundles"][0]["digest"], &view["bundles"][0]["sent"]), (&digest, &true.into()));
    let object = store.join(format!("{}.json", digest.as_str().unwrap().trim_start_matches("sha256:")));
    assert_eq!(std::fs::read_to_string(&object).unwrap(), support::bundle());
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&object.metadata().unwrap().permissions()) & 0o777, 0o600);
    assert_eq!(publish()["bundles"][0]["sent"], false, "the same again is nothing to do");

    std::fs::write(&file, "{}").unwrap();
    let arguments = ["publish".into(), store.clone(), "--bundle".into(), file.clone()];
    nodestrap(arguments).expect(2).says(&["is no bundle", "--format bundle"]);
}
