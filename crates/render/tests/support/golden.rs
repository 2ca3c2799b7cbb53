//! Comparing with what is kept, and telling what differs.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::cases::{Tree, tests};

/// More of one file would hide the others.
const SHOWN_LINES: usize = 60;
const CONTEXT_LINES: usize = 3;

/// All differences of one test, told at once.
#[derive(Default)]
pub(crate) struct Differences(Vec<String>);

impl Differences {
    /// With a file below `crates/render/tests`; `UPDATE_GOLDEN=1` writes it first.
    pub(crate) fn compare(&mut self, path: &str, actual: &str) {
        let file = tests().join(path);
        if is_update() {
            write(&file, actual.as_bytes());
        }
        match fs::read_to_string(&file) {
            Ok(expected) if expected == actual => {}
            Ok(expected) => self.add(&format!("{path} differs:\n{}", line_diff(&expected, actual))),
            Err(error) => self.add(&format!("{path}: {error}; rendered is:\n{}", line_diff("", actual))),
        }
    }

    /// With all files below a folder, which has no others.
    pub(crate) fn compare_tree(&mut self, folder: &str, actual: &Tree) {
        if is_update() {
            let _ = fs::remove_dir_all(tests().join(folder));
        }
        for (name, content) in actual {
            self.compare(&format!("{folder}/{name}"), &String::from_utf8_lossy(content));
        }
        for name in load(&tests().join(folder)).keys().filter(|name| !actual.contains_key(*name)) {
            self.add(&format!("{folder}/{name} is kept, but no longer rendered"));
        }
    }

    pub(crate) fn add(&mut self, difference: &str) {
        self.0.push(difference.trim_end().to_owned());
    }

    pub(crate) fn append(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[track_caller]
    pub(crate) fn finish(self) {
        assert!(
            self.0.is_empty(),
            "{}\n\nlines with - are expected, lines with + are rendered; if the change is meant, \
             `UPDATE_GOLDEN=1 cargo test -p render` rewrites what is expected\n",
            self.0.join("\n\n")
        );
    }
}

fn is_update() -> bool {
    std::env::var_os("UPDATE_GOLDEN").is_some_and(|value| !value.is_empty())
}

/// Keeps what passed, and what did not, outside the repository. Only digests are expected of most files, so a difference
/// can be shown only beside what the last good run left here.
pub(crate) struct Shelf {
    folder: PathBuf,
}

impl Shelf {
    pub(crate) fn new(name: &str) -> Self {
        Self { folder: Path::new(env!("CARGO_TARGET_TMPDIR")).join("golden").join(name) }
    }

    /// `proof` is what was compared: the good tree is looked at only while it belongs to what is expected.
    pub(crate) fn keep_good(&self, proof: &str, tree: &Tree) {
        if fs::read_to_string(self.folder.join("proof")).is_ok_and(|kept| kept == proof) {
            return;
        }
        write_tree(&self.folder.join("good"), tree);
        write(&self.folder.join("proof"), proof.as_bytes());
    }

    pub(crate) fn write_bad(&self, tree: &Tree) -> PathBuf {
        let folder = self.folder.join("bad");
        write_tree(&folder, tree);
        folder
    }

    /// Where the tree is now, and how it differs from a good one, if there is one.
    pub(crate) fn keep_bad(&self, expected: &str, tree: &Tree) -> String {
        let (good, bad) = (self.folder.join("good"), self.write_bad(tree));
        if !fs::read_to_string(self.folder.join("proof")).is_ok_and(|kept| kept == expected) {
            let rendered = format!("all that is rendered is in {}", bad.display());
            return format!("{rendered}; run this test once without your change to see what differs");
        }
        let expected = load(&good);
        let mut text = format!("compare all files with: diff -ru {} {}", good.display(), bad.display());
        for name in expected.keys().chain(tree.keys()).collect::<BTreeSet<_>>() {
            let of = |tree: &Tree| tree.get(name).map(|bytes| String::from_utf8_lossy(bytes).into_owned());
            // The rest is made from these.
            if name.starts_with("root/") && of(&expected) != of(tree) {
                let diff = line_diff(&of(&expected).unwrap_or_default(), &of(tree).unwrap_or_default());
                text.push_str(&format!("\n{name}:\n{diff}"));
            }
        }
        text
    }
}

fn write(path: &Path, content: &[u8]) {
    let folder = path.parent().expect("a file lies in a folder");
    let written = fs::create_dir_all(folder).and_then(|()| fs::write(path, content));
    written.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

/// The folder has nothing else afterwards.
pub(crate) fn write_tree(folder: &Path, tree: &Tree) {
    let _ = fs::remove_dir_all(folder);
    for (name, content) in tree {
        write(&folder.join(name), content);
    }
}

/// Empty if there is no such folder.
fn load(folder: &Path) -> Tree {
    let mut tree = Tree::new();
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.expect("a folder can be listed").path();
        let name = path.file_name().expect("an entry has a name").to_string_lossy().into_owned();
        if path.is_dir() {
            tree.extend(load(&path).into_iter().map(|(below, content)| (format!("{name}/{below}"), content)));
        } else {
            tree.insert(name, fs::read(&path).expect("a file can be read"));
        }
    }
    tree
}

/// What stands in one text only, below the last few lines that both have: an entry of a manifest has its path there.
pub(crate) fn line_diff(expected: &str, actual: &str) -> String {
    let (old, new): (Vec<&str>, Vec<&str>) = (expected.lines().collect(), actual.lines().collect());
    // How many lines both have in common from here on, in order.
    let mut common = vec![vec![0_usize; new.len() + 1]; old.len() + 1];
    for (at, line) in old.iter().enumerate().rev() {
        for (beside, other) in new.iter().enumerate().rev() {
            common[at][beside] = match line == other {
                true => common[at + 1][beside + 1] + 1,
                false => common[at + 1][beside].max(common[at][beside + 1]),
            };
        }
    }
    let (mut at, mut beside, mut context) = (0, 0, Vec::new());
    let mut shown = Vec::new();
    while at < old.len() || beside < new.len() {
        if at < old.len() && old.get(at) == new.get(beside) {
            context.push(format!("    {}", old[at]));
            (at, beside) = (at + 1, beside + 1);
            continue;
        }
        shown.extend(context.drain(context.len().saturating_sub(CONTEXT_LINES)..));
        context.clear();
        if at < old.len() && (beside == new.len() || common[at + 1][beside] >= common[at][beside + 1]) {
            shown.push(format!("  - {}", old[at]));
            at += 1;
        } else {
            shown.push(format!("  + {}", new[beside]));
            beside += 1;
        }
    }
    match shown.len() {
        0 => "    only in how the last line ends".to_owned(),
        count if count > SHOWN_LINES => {
            format!("{}\n    … {} more lines", shown[..SHOWN_LINES].join("\n"), count - SHOWN_LINES)
        }
        _ => shown.join("\n"),
    }
}

pub(crate) fn sha256(bytes: &[u8]) -> String {
    bundle::sha256_hex(bytes)
}
