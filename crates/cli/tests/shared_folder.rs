//! What is rendered into a folder that everybody may write to, such as `/tmp`, belongs to whoever rendered it.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, reason = "tests own their effects and may panic")]

mod support;

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use support::{Ran, finish, is_root, nodestrap, open_folder, program, repository};
use tempfile::TempDir;

/// A folder for everybody, and one beside it that nobody else may enter.
struct Shared {
    _root: TempDir,
    folder: PathBuf,
    private: PathBuf,
}

impl Shared {
    fn new() -> Self {
        let root = open_folder();
        let [folder, private] = [("shared", 0o1777), ("private", 0o700)].map(|(name, mode)| {
            let path = root.path().join(name);
            std::fs::create_dir(&path).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            path
        });
        Self { _root: root, folder, private }
    }

    /// What another user does there; `$1` is the private folder.
    fn attack(&self, script: &str) -> std::process::Command {
        let mut command = program("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c", script, "sh"]);
        command.arg(&self.private).current_dir(&self.folder);
        command
    }

    fn render(&self, format: &str, out: &str) -> Ran {
        let spec = repository().join("examples/minimal.yaml");
        let out = self.folder.join(out);
        let words = ["render", spec.to_str().unwrap(), "--group", "workers", "--format", format, "--out"];
        nodestrap(words.into_iter().chain([out.to_str().unwrap()]))
    }

    /// Everything at and below the place is ours, and for nobody else if it has secrets.
    fn assert_ours(&self, out: &str) {
        let out = self.folder.join(out);
        let stat = std::fs::symlink_metadata(&out).unwrap();
        assert!(!stat.is_symlink());
        assert_eq!(stat.permissions().mode() & 0o077, 0, "{}", out.display());
        walk(&out, &|path| assert_eq!(std::fs::symlink_metadata(path).unwrap().uid(), 0, "{}", path.display()));
    }
}

fn walk(path: &Path, see: &dyn Fn(&Path)) {
    see(path);
    if std::fs::symlink_metadata(path).unwrap().is_dir() {
        std::fs::read_dir(path).unwrap().for_each(|entry| walk(&entry.unwrap().path(), see));
    }
}

fn lacks_a_second_user() -> bool {
    if !is_root() {
        eprintln!("SKIPPED: only root can be two users");
    }
    !is_root()
}

#[test]
fn what_another_user_has_laid_ready_is_refused() {
    if lacks_a_second_user() {
        return;
    }
    for (script, format, out, why) in [
        ("mkdir -m 777 mine", "bundle", "mine/bundle.json", "65534"),
        ("mkdir -m 777 mine", "folder", "mine/below/out", "65534"),
        ("mkdir -m 777 out", "folder", "out", "65534"),
        ("ln -s \"$1\" mine", "bundle", "mine/bundle.json", "65534"),
        ("ln -s \"$1\" out", "folder", "out", "not a folder"),
        ("ln -s \"$1/x\" bundle.json", "bundle", "bundle.json", "a link"),
    ] {
        let shared = Shared::new();
        finish(shared.attack(script)).expect(0);
        let ran = shared.render(format, out);
        assert!(matches!(ran.code, Some(2 | 4)), "{script}: {ran:?}");
        ran.says(&[why]);
        assert_eq!(std::fs::read_dir(&shared.private).unwrap().count(), 0, "{script}");
        walk(&shared.folder, &|path| {
            let stat = std::fs::symlink_metadata(path).unwrap();
            assert!(stat.uid() != 0 || path == shared.folder, "{script}: {} was written", path.display());
        });
    }
}

#[test]
fn temporary_names_that_another_user_has_taken_give_nothing_away() {
    if lacks_a_second_user() {
        return;
    }
    for (script, format, out) in [
        ("umask 0; touch .bundle.json.nodestrap-new", "bundle", "bundle.json"),
        ("ln -s \"$1/x\" .bundle.json.nodestrap-new", "bundle", "bundle.json"),
        ("umask 0; touch bundle.json", "bundle", "bundle.json"),
        ("mkdir -m 777 out.nodestrap-new; touch out.nodestrap-new/manifest.json", "folder", "out"),
        ("ln -s \"$1\" out.nodestrap-new", "folder", "out"),
    ] {
        let shared = Shared::new();
        finish(shared.attack(script)).expect(0);
        shared.render(format, out).expect(0);
        shared.assert_ours(out);
        assert_eq!(std::fs::read_dir(&shared.private).unwrap().count(), 0, "{script}");
    }
}

struct Attacker(Child);

impl Drop for Attacker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn whoever_is_fast_wins_nothing() {
    if lacks_a_second_user() {
        return;
    }
    let shared = Shared::new();
    let script = "while :; do mkdir -m 777 out out.nodestrap-new; ln -s \"$1\" out; ln -s \"$1\" out.nodestrap-new; \
                  rm -rf out out.nodestrap-new; done 2>/dev/null";
    let _attacker = Attacker(shared.attack(script).stdin(Stdio::null()).spawn().unwrap());
    for _ in 0..40 {
        let ran = shared.render("folder", "out");
        assert_eq!(std::fs::read_dir(&shared.private).unwrap().count(), 0);
        match ran.code {
            Some(0) => {
                shared.assert_ours("out");
                std::fs::remove_dir_all(shared.folder.join("out")).unwrap();
            }
            Some(2 | 4) => {}
            _ => panic!("{ran:?}"),
        }
    }
}

#[test]
fn a_folder_in_which_everybody_may_exchange_everything_is_refused() {
    let shared = Shared::new();
    std::fs::set_permissions(&shared.folder, std::fs::Permissions::from_mode(0o777)).unwrap();
    for (format, out) in [("bundle", "bundle.json"), ("folder", "out")] {
        shared.render(format, out).expect(4).says(&["chmod o-w"]);
    }
    assert_eq!(std::fs::read_dir(&shared.folder).unwrap().count(), 0);
}
