//! Before a reboot: everything that is enabled is proved against the operating system that boots next, or named.
#![allow(clippy::disallowed_methods, reason = "the test reads nothing but what it made")]

mod support;

use std::collections::VecDeque;
use std::io::Cursor;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bundle::{
    AbsolutePath, Artefact, ArtefactDigest, ArtefactForm, Bundle, Extension, ExtensionName, ExtensionRelease, Readers,
    sha256_hex,
};
use engine::ErrorClass;
use fetch::squashfs::{ImageContent, ImageFile, write};
use host::Disk as _;
use host::fake::{FakeUpdateEngine, Finds};
use host::update_engine::{NextOs, Observed, Operation, OsVersion, UpdateEngine, UpdateEngineError, UpdateStatus};
use node::{LOCK_PATH, NextBootReady, NextBootRefused, NodeHost};
use support::{FakeNode, clock};

const NOW: &str = "4230.2.1";
const NEXT: &str = "4459.0.0";
const LINK: &str = "/etc/extensions/kubernetes.raw";

/// A running Flatcar with the extension of the bundle in use, whose update_engine finds what it is told.
struct Machine {
    node: FakeNode,
    bundle: Bundle,
    engine: FakeUpdateEngine,
}

fn os_release(version: &str) -> String {
    format!("ID=\"flatcar\"\nVERSION=\"{version}\"\nVERSION_ID=\"{version}\"\nSYSEXT_LEVEL=\"1.0\"\n")
}

fn image(name: &str, release: &str) -> Vec<u8> {
    let file = |path: String, text: &str| {
        let (mode, size) = (0o644, text.len() as u64);
        let content = ImageContent::File { mode, size, reader: Box::new(Cursor::new(text.as_bytes().to_vec())) };
        ImageFile { path, content }
    };
    let mut bytes = Cursor::new(Vec::new());
    let files = vec![
        file(format!("usr/lib/extension-release.d/extension-release.{name}"), release),
        file("usr/bin/program".to_owned(), "program"),
    ];
    write(files, &mut bytes).expect("an image");
    bytes.into_inner()
}

impl Machine {
    /// The extension of the bundle is bound to a level or to a version.
    fn new(level: Option<&str>, version: Option<&str>) -> Self {
        let mut bundle = support::render("", "  os: flatcar\n");
        bundle.required_programs.clear();
        let bytes = image("kubernetes", "ID=flatcar\nSYSEXT_LEVEL=1.0\n");
        let extension = Extension {
            name: ExtensionName::Kubernetes,
            version: "1.36.3".to_owned(),
            artefact: Artefact {
                digest: ArtefactDigest::new(format!("sha256:{}", sha256_hex(&bytes))).expect("a digest"),
                size: bytes.len() as u64,
                form: ArtefactForm::Sysext,
                places: vec!["https://store.example/kubernetes.raw".to_owned()],
            },
            release: ExtensionRelease {
                id: "flatcar".to_owned(),
                sysext_level: level.map(str::to_owned),
                version_id: version.map(str::to_owned),
                architecture: None,
            },
            programs: [AbsolutePath::new("/usr/bin/kubelet").expect("a path")].into(),
            read_by: Readers::default(),
        };
        let node = FakeNode::new(&bundle);
        let engine = FakeUpdateEngine::new(&node.disk, Finds::NoneHere);
        let (place, link) = (extension.image(), extension.links().next().expect("a link"));
        bundle.extensions = vec![extension];
        let machine = Self { node, bundle, engine };
        machine.put("/etc/os-release", os_release(NOW).as_bytes());
        machine.put(&place, &bytes);
        machine.link(&link.1, &link.0);
        machine
    }

    fn usual() -> Self {
        Self::new(Some("1.0"), None)
    }

    /// update_engine has staged the next version.
    fn with_update(self) -> Self {
        self.engine.find(Finds::Version(version(NEXT)));
        self.engine.attempt_and_wait(Duration::from_secs(60), &mut |_| {}).expect("staged");
        self
    }

    fn put(&self, path: &str, content: &[u8]) {
        let (disk, path) = (self.node.disk.uncounted(), Path::new(path));
        disk.make_folder(path.parent().expect("a folder"), 0o755).expect("made");
        host::files::write_durable(&disk, path, 0o644, content, None).expect("written");
    }

    fn link(&self, target: &str, path: &str) {
        let (disk, path) = (self.node.disk.uncounted(), Path::new(path));
        disk.make_folder(path.parent().expect("a folder"), 0o755).expect("made");
        let _ = disk.remove(path).expect("removed");
        disk.symlink(target, path).expect("linked");
    }

    /// An extension that somebody else has brought.
    fn other(&self, place: &str, release: &str) {
        let name = Path::new(place).file_stem().and_then(|name| name.to_str()).expect("a name");
        self.put(place, &image(name, release));
    }

    fn host(&self) -> NodeHost {
        NodeHost { update_engine: Arc::new(self.engine.clone()), ..self.node.host() }
    }

    fn ask(&self) -> Result<NextBootReady, NextBootRefused> {
        node::prepare_next_boot(&self.host(), &self.bundle, &clock(), &|_| {})
    }

    #[track_caller]
    fn ready(&self) -> NextBootReady {
        self.ask().unwrap_or_else(|error| panic!("{error}"))
    }

    /// Why not, one line an artefact.
    #[track_caller]
    fn refused(&self, class: ErrorClass) -> Vec<String> {
        let refused = self.ask().expect_err("it is refused");
        assert_eq!(refused.class(), class, "{refused}");
        refused.problems().iter().map(|problem| format!("{}: {}", problem.artefact, problem.reason)).collect()
    }
}

/// What it says, and of which version.
#[derive(Clone)]
struct Says(Operation, Option<&'static str>);

/// An update_engine that says one thing after the other.
struct Scripted(Mutex<VecDeque<Says>>);

impl UpdateEngine for Scripted {
    fn observe(&self) -> Result<Observed, UpdateEngineError> {
        let Says(operation, text) = self.0.lock().expect("no panic").pop_front().expect("it is asked no more often");
        Ok(Observed::Says(UpdateStatus { operation, progress: 0.5, new_version: text.map(version), last_checked: 0 }))
    }

    fn attempt_and_wait(
        &self,
        _deadline: Duration,
        _look: &mut (dyn FnMut(&UpdateStatus) + Send),
    ) -> Result<NextOs, UpdateEngineError> {
        panic!("a hook begins no update")
    }
}

impl Machine {
    fn ask_saying(&self, words: &[Says]) -> Result<NextBootReady, NextBootRefused> {
        let engine = Arc::new(Scripted(Mutex::new(words.iter().cloned().collect())));
        let host = NodeHost { update_engine: engine, ..self.node.host() };
        node::prepare_next_boot(&host, &self.bundle, &clock(), &|_| {})
    }

    fn refused_saying(&self, words: &[Says]) -> (ErrorClass, String) {
        let refused = self.ask_saying(words).expect_err("it is refused");
        let [problem] = refused.problems() else { panic!("{refused}") };
        (refused.class(), format!("{}: {}", problem.artefact, problem.reason))
    }
}

fn version(text: &str) -> OsVersion {
    OsVersion::try_from(text.to_owned()).expect("a version")
}

fn misfit(what: &str, misfit: &str) -> String {
    format!("{what}: it does not fit what boots next, so systemd would leave it out: {misfit}")
}

#[test]
fn an_extension_that_is_bound_to_a_level_is_ready_for_the_next_version_and_one_for_this_version_is_not() {
    let usual = Machine::usual().with_update();
    assert_eq!(usual.ready().proved, ["kubernetes 1.36.3"]);
    let bound = Machine::new(None, Some(NOW));
    assert_eq!(bound.ready().proved, ["kubernetes 1.36.3"], "without an update it fits");
    let why = misfit("kubernetes 1.36.3", "it is for VERSION_ID=4230.2.1, and this system has \"4459.0.0\"");
    assert_eq!(bound.with_update().refused(ErrorClass::NeedsOperator), [why]);
    let ahead = Machine::new(None, Some(NEXT)).with_update();
    assert_eq!(ahead.ready().proved, ["kubernetes 1.36.3"], "staged for what comes");
    let nightly = Machine::new(None, Some("4500.0.0"));
    nightly.engine.find(Finds::Version(version("4500.0.0+nightly-20260101-2100")));
    nightly.engine.attempt_and_wait(Duration::from_secs(60), &mut |_| {}).expect("staged");
    assert_eq!(nightly.ready().proved, ["kubernetes 1.36.3"], "what a build adds is no part of VERSION_ID");
}

#[test]
fn an_image_that_is_missing_or_damaged_or_not_linked_is_named() {
    let machine = Machine::usual().with_update();
    let place = machine.bundle.extensions[0].image();
    machine.link("/dev/null", LINK);
    let why = format!("kubernetes 1.36.3: {LINK} is a link to /dev/null");
    assert_eq!(machine.refused(ErrorClass::NeedsOperator), [why]);
    let mut bytes = image("kubernetes", "ID=flatcar\nSYSEXT_LEVEL=1.0\n");
    *bytes.last_mut().expect("bytes") ^= 1;
    machine.put(&place, &bytes);
    assert_eq!(machine.refused(ErrorClass::NeedsOperator), [format!("kubernetes 1.36.3: {place} has other bytes")]);
    machine.node.disk.remove(Path::new(&place)).expect("removed");
    assert_eq!(machine.refused(ErrorClass::NeedsOperator), [format!("kubernetes 1.36.3: {place} is not there")]);
}

#[test]
fn extensions_of_others_are_proved_too_if_they_are_in_use_and_not_of_the_system_itself() {
    let machine = Machine::usual().with_update();
    let bound = format!("ID=flatcar\nVERSION_ID={NOW}\n");
    machine.other("/var/lib/extensions/any.raw", "ID=_any\n");
    machine.other("/var/lib/extensions/hidden.raw", &bound);
    machine.link("/dev/null", "/etc/extensions/hidden.raw");
    // Of one name the first counts.
    machine.other("/etc/extensions/twice.raw", "ID=_any\n");
    machine.other("/var/lib/extensions/twice.raw", &bound);
    machine.other("/var/lib/extensions/debian.raw", "ID=debian\nVERSION_ID=12\n");
    machine.other("/usr/share/flatcar/sysext/docker-flatcar.raw", &bound);
    machine.link("/usr/share/flatcar/sysext/docker-flatcar.raw", "/etc/extensions/docker-flatcar.raw");
    machine.other("/oem/sysext/oem-x-4230.2.1.raw", &bound);
    machine.link("/oem/sysext/oem-x-4230.2.1.raw", "/etc/extensions/oem-x.raw");
    machine.link("/nowhere.raw", "/etc/extensions/nowhere.raw");
    machine.put("/etc/extensions/zstd.raw", b"no squashfs that we could read");
    machine.put("/etc/extensions/README", b"no image");
    let ready = machine.ready();
    let proved = ["kubernetes 1.36.3", "the system extension twice", "the system extension any"];
    assert_eq!(ready.proved, proved);
    let has = |words: &str| ready.remarks.iter().any(|remark| remark.contains(words));
    for words in [
        "docker-flatcar.raw is a part of the operating system",
        "oem-x.raw is Flatcar's own",
        "nowhere.raw leads nowhere",
        "zstd.raw is not proved: it is no squashfs image",
        "debian.raw is not in use: it is for debian",
    ] {
        assert!(has(words), "{words}: {:#?}", ready.remarks);
    }

    machine.other("/opt/images/own-1.raw", "");
    machine.put("/opt/images/own-1.raw", &image("own", &bound));
    machine.link("../../opt/images/own-1.raw", "/etc/extensions/own.raw");
    let folder = "/var/lib/extensions/folder/usr/lib/extension-release.d/extension-release.folder";
    machine.put(folder, bound.as_bytes());
    // What is merged speaks for an image that cannot be read.
    machine.put("/usr/lib/extension-release.d/extension-release.zstd", bound.as_bytes());
    let misfit = |name: &str| {
        let why = "it is for VERSION_ID=4230.2.1, and this system has \"4459.0.0\"";
        self::misfit(&format!("the system extension {name}"), why)
    };
    assert_eq!(machine.refused(ErrorClass::NeedsOperator), [misfit("own"), misfit("zstd"), misfit("folder")]);
}

#[test]
fn an_update_on_its_way_is_waited_for_and_one_that_nobody_knows_is_refused_unless_it_was_said_before() {
    let machine = Machine::usual();
    let downloading = "the operating system: update_engine is still at DOWNLOADING of 4459.0.0";
    let refused = machine.refused_saying(&[Says(Operation::Downloading, Some(NEXT))]);
    assert_eq!((refused.0, refused.1.as_str()), (ErrorClass::Transient, downloading));
    // Looked at twice: before all else, and when the rest is proved.
    let changed =
        machine.refused_saying(&[Says(Operation::Idle, None), Says(Operation::UpdatedNeedReboot, Some(NEXT))]);
    let why = "the operating system: what the next boot brings has changed while it was looked at";
    assert_eq!((changed.0, changed.1.as_str()), (ErrorClass::Transient, why));
    let another =
        [Says(Operation::UpdatedNeedReboot, Some(NEXT)), Says(Operation::UpdatedNeedReboot, Some("4460.0.0"))];
    assert_eq!(machine.refused_saying(&another).1, why);
    let stays = [Says(Operation::UpdatedNeedReboot, Some(NEXT)), Says(Operation::UpdatedNeedReboot, Some(NEXT))];
    machine.ask_saying(&stays).expect("nothing has changed");
    let machine = Machine::usual().with_update();
    machine.engine.restart();
    let refused = machine.refused(ErrorClass::NeedsOperator);
    assert!(refused[0].starts_with("the operating system: an update of the operating system is staged"), "{refused:?}");
    let machine = Machine::usual().with_update();
    let known = machine.ready();
    machine.engine.restart();
    assert_eq!(machine.ready().proved, known.proved, "it was said in this boot");
    machine.node.disk.remove(Path::new(node::os_update::OS_UPDATE_PATH)).expect("removed");
    machine.refused(ErrorClass::NeedsOperator);
}

#[test]
fn nobody_else_is_at_work_meanwhile_and_looking_changes_nothing() {
    let machine = Machine::usual().with_update();
    let before = machine.node.disk.tree_digest(&[]);
    let seen = node::look_at_next_boot(&machine.host()).expect("it is known");
    assert_eq!(machine.node.disk.tree_digest(&[]), before);
    let held = machine.node.disk.try_lock(Path::new(LOCK_PATH)).expect("asked").expect("free");
    assert_eq!(machine.ask(), Err(NextBootRefused::Busy));
    drop(held);
    assert_eq!(machine.ready().next, seen);
}
