//! Input that is meant to hurt is refused like any other mistake: in bounded memory, and nothing is left behind.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, reason = "tests own their effects and may panic")]

mod support;

use std::path::Path;

use support::{BINARY, Ran, example, finish, program, text};

/// Address space, which is more than what is used: the program itself is mapped, too, and a debug build is large.
const MEMORY: &str = "--as=209715200";

fn nodestrap_in_bounds(folder: &Path, arguments: &[&str]) -> Ran {
    let mut command = program("prlimit");
    command.args([MEMORY, "--core=0", BINARY]).args(arguments).current_dir(folder);
    finish(command)
}

/// The command that would write most.
const RENDER: [&str; 6] = ["render", "cluster.yaml", "--format", "folder", "--out", "out"];

/// Refused, without a trace on the disk.
#[track_caller]
fn is_refused(content: &[u8], words: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("cluster.yaml"), content).unwrap();
    is_refused_by(&RENDER, folder.path(), words);
}

/// By every command that reads a spec.
#[track_caller]
fn is_refused_by_all(folder: &Path, words: &[&str]) {
    let commands: [&[&str]; 6] = [
        &["check", "cluster.yaml"],
        &["complete", "cluster.yaml"],
        &["explain", "cluster.yaml"],
        &RENDER,
        &["render", "cluster.yaml", "--format", "bundle", "--out", "out"],
        &["pki", "create", "cluster.yaml", "--out", "out"],
    ];
    commands.iter().for_each(|command| is_refused_by(command, folder, words));
}

#[track_caller]
fn is_refused_by(command: &[&str], folder: &Path, words: &[&str]) {
    let ran = nodestrap_in_bounds(folder, command);
    assert_eq!(ran.code, Some(2), "{command:?}, signal {:?}: {}", ran.signal, shortened(&ran.err));
    assert_eq!(ran.out, "", "{command:?}");
    assert!(ran.err.len() < 200_000, "{command:?} says {} bytes", ran.err.len());
    for word in words {
        assert!(ran.err.contains(word), "{command:?}: no {word:?} in {}", shortened(&ran.err));
    }
    let left: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["cluster.yaml"], "{command:?}");
}

fn shortened(text: &str) -> String {
    text.chars().take(2000).collect()
}

/// Otherwise none of this would prove anything.
#[test]
fn the_bounds_are_wide_enough_for_a_spec() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(example("full.yaml"), folder.path().join("cluster.yaml")).unwrap();
    let ran = nodestrap_in_bounds(folder.path(), &["render", "cluster.yaml", "--group", "gpu", "--format", "bundle"]);
    ran.expect(0);
}

#[test]
fn aliases_within_aliases() {
    let mut bomb = String::from("a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol, lol]\n");
    for level in 1..20 {
        let below = vec![format!("*a{}", level - 1); 10].join(", ");
        bomb.push_str(&format!("a{level}: &a{level} [{below}]\n"));
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("cluster.yaml"), &bomb).unwrap();
    is_refused_by_all(folder.path(), &["error"]);
    // The same where a value is expected.
    let inside =
        text(example("minimal.yaml")).replace("metadata: {name: demo}", "metadata: {name: &n demo, x: [*n, *n]}");
    is_refused(inside.as_bytes(), &["error"]);
}

#[test]
fn an_alias_of_itself() {
    is_refused(b"a: &a [*a, *a]\n", &["error"]);
}

#[test]
fn a_hundred_megabytes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cluster.yaml");
    let mut content = text(example("minimal.yaml")).into_bytes();
    content.resize(100_000_000, b' ');
    std::fs::write(&path, &content).unwrap();
    drop(content);
    is_refused_by_all(folder.path(), &["larger than"]);
}

#[test]
fn more_bytes_than_a_disk_has() {
    let folder = tempfile::tempdir().unwrap();
    let file = std::fs::File::create(folder.path().join("cluster.yaml")).unwrap();
    file.set_len(1 << 40).unwrap();
    is_refused_by_all(folder.path(), &["larger than"]);
    let endless = nodestrap_in_bounds(folder.path(), &["check", "/dev/zero"]);
    endless.expect(2).says(&["larger than"]);
}

#[test]
fn a_hundred_thousand_levels() {
    const LEVELS: usize = 100_000;
    for (open, close) in [("[", "]"), ("{a: ", "}"), ("[[", "]]"), ("- ", ""), ("? ", ""), ("[{a: ", "}]")] {
        is_refused(format!("{}{}", open.repeat(LEVELS), close.repeat(LEVELS)).as_bytes(), &["error"]);
        is_refused(open.repeat(LEVELS).as_bytes(), &["error"]);
    }
    // A level a line, as deep as a file may be long.
    let lines: String = (0..1_400).map(|level| format!("{}a:\n", " ".repeat(level))).collect();
    is_refused(lines.as_bytes(), &["error"]);
}

#[test]
fn a_megabyte_of_one_thing() {
    const MEGABYTE: usize = 1 << 20;
    for unit in [
        "a: ", "a: b\n", "- a\n", "[", "\"", "'", "&a ", "*a ", "!", "%", "---\n", "# \n", "\t", "|\n", "\u{1}",
        "\u{feff}", "ä", "{},",
    ] {
        let content = unit.repeat(MEGABYTE / unit.len());
        is_refused(content.as_bytes(), &["error"]);
    }
    let keys: String = (0..80_000).map(|number| format!("k{number}: v\n")).collect();
    is_refused(keys.as_bytes(), &["error"]);
    let groups = "---\napiVersion: nodestrap.io/v1alpha1\nkind: NodeGroup\nmetadata: {name: a}\n";
    is_refused(groups.repeat(MEGABYTE / groups.len()).as_bytes(), &["error"]);
}

/// Large inside the limits: one text that fills the file, where a text is wanted.
#[test]
fn a_value_that_fills_the_file() {
    let spec = text(example("minimal.yaml"));
    for (from, to) in [
        ("name: demo", format!("name: {}", "a".repeat(900_000))),
        ("https://10.0.0.10:6443", format!("https://{}:6443", "a.".repeat(450_000))),
        ("abcdef.0123456789abcdef", "b".repeat(900_000)),
        (
            "metadata: {name: workers}",
            format!("metadata: {{name: workers}}\nspec: {{maxPods: \"{}\"}}", "(".repeat(900_000)),
        ),
        (
            "metadata: {name: workers}",
            format!("metadata: {{name: workers}}\nspec: {{maxPods: \"{}1\"}}", "-".repeat(900_000)),
        ),
        (
            "metadata: {name: workers}",
            format!("metadata: {{name: workers}}\nspec: {{maxPods: \"{}1\"}}", "1+".repeat(450_000)),
        ),
        (
            "metadata: {name: workers}",
            format!("metadata: {{name: workers}}\nspec: {{labels: {{a: {}}}}}", "9".repeat(900_000)),
        ),
    ] {
        assert!(spec.contains(from));
        is_refused(spec.replace(from, &to).as_bytes(), &["error"]);
    }
}

/// What is not text at all.
/// What the cluster says, every group has.
#[test]
fn much_of_a_cluster_in_many_groups() {
    let minimal = text(example("minimal.yaml"));
    let (cluster, group) = minimal.split_once("---\n").unwrap();
    let sysctls: String = (0..2000).map(|number| format!("    vm.n{number}: \"1\"\n")).collect();
    let groups = (0..1000).map(|number| format!("---\n{}", group.replace("workers", &format!("workers-{number}"))));
    let spec = format!("{cluster}  sysctls:\n{sysctls}{}", groups.collect::<String>());
    is_refused(spec.as_bytes(), &["1000 groups with 2000 each", "sysctls"]);
}

#[test]
fn bytes_that_are_no_text() {
    is_refused(&[0xff; 4096], &["UTF-8"]);
    is_refused(&[0; 1 << 20], &["error"]);
    let mut cut = text(example("minimal.yaml")).into_bytes();
    cut.push(0xc3);
    is_refused(&cut, &["UTF-8"]);
}
