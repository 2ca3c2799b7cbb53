//! What the documents name as a guard is there: a promise, or a bug that was mended, whose test is gone is guarded by nothing.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, reason = "tests own their effects and may panic")]

mod support;

use std::path::{Path, PathBuf};

use support::{repository, text};

/// What is asked of cargo.
#[derive(Clone, Debug, PartialEq)]
struct Guard {
    package: String,
    /// A program of tests; without one, the tests beside the code.
    program: Option<String>,
    /// Part of the names of those that run; all if it is empty.
    filter: String,
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

impl Guard {
    /// The tests that there are, by the names that cargo filters, but for modules inside of a file.
    fn tests(&self) -> Vec<String> {
        let package = repository().join("crates").join(&self.package);
        let root = match &self.program {
            Some(program) => package.join("tests").join(program),
            None => package.join("src"),
        };
        let mut files = Vec::new();
        if self.program.is_none() || root.join("main.rs").is_file() {
            sources(&root, &mut files);
        }
        let alone = root.with_extension("rs");
        if self.program.is_some() && alone.is_file() {
            files.push(alone);
        }
        let mut tests = Vec::new();
        for file in files {
            let module = match file.strip_prefix(&root) {
                Ok(inside) => inside.with_extension("").display().to_string().replace('/', "::"),
                Err(_) => String::new(),
            };
            let written = text(&file);
            let mut lines = written.lines().map(str::trim_start);
            while lines.any(|line| line == "#[test]") {
                let name = lines.by_ref().find_map(|line| line.strip_prefix("fn ")).unwrap_or_default();
                tests.push(format!("{module}::{}", name.split(['(', '<']).next().unwrap()));
            }
        }
        tests
    }

    #[track_caller]
    fn check(&self, row: &str) {
        let tests = self.tests();
        assert!(tests.iter().any(|test| test.contains(&self.filter)), "no test is {self:?}, named by:\n{row}");
    }
}

/// `cargo test -p P [-p P] [--test T | --lib | --bin B] [FILTER]`: one for each package.
fn parse(command: &str) -> Vec<Guard> {
    let (mut packages, mut program, mut filter) = (Vec::new(), None, String::new());
    let mut words = command.split_whitespace();
    while let Some(word) = words.next() {
        match word {
            "-p" => packages.push(words.next().unwrap().to_owned()),
            "--test" => program = words.next().map(str::to_owned),
            "--bin" => drop(words.next()),
            "--lib" => {}
            name => name.clone_into(&mut filter),
        }
    }
    let guard = |package| Guard { package, program: program.clone(), filter: filter.clone() };
    packages.into_iter().map(guard).collect()
}

/// What stands in back quotes.
fn quoted(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

/// The cells of each row of a document's tables, without their heads.
fn rows(document: &str) -> impl Iterator<Item = (&str, Vec<&str>)> {
    let is_row = |line: &&str| line.starts_with("| ");
    document.lines().filter(is_row).map(|line| (line, line.trim_matches('|').split(" | ").collect()))
}

/// A target of the Makefile, or a script.
#[track_caller]
fn check_other(word: &str, row: &str) -> bool {
    if let Some(target) = word.strip_prefix("make ") {
        assert!(text(repository().join("Makefile")).contains(&format!("\n{target}:")), "no {word}, named by:\n{row}");
    } else if word.starts_with("scripts/") {
        assert!(repository().join(word).is_file(), "no {word}, named by:\n{row}");
    } else {
        return false;
    }
    true
}

#[test]
fn every_bug_that_was_mended_is_guarded_by_tests_that_are_there() {
    let document = text(repository().join("docs/track-record.md"));
    let mut count = 0;
    for (row, cells) in rows(&document).skip(1) {
        let [_, _, guards, _] = cells[..] else { panic!("not four cells: {row}") };
        let (mut named, mut last) = (0, Vec::new());
        for word in quoted(guards) {
            let found = if let Some(command) = word.strip_prefix("cargo test ") {
                parse(command)
            } else if let Some(filter) = word.strip_prefix("… ") {
                let again = |guard: &Guard| Guard { filter: filter.to_owned(), ..guard.clone() };
                last.iter().map(again).collect()
            } else if word.starts_with("--test ") {
                let package = last.first().map_or("lab", |guard: &Guard| guard.package.as_str());
                parse(&format!("-p {package} {word}"))
            } else {
                named += usize::from(check_other(word, row));
                continue;
            };
            assert!(!found.is_empty(), "{word:?} names no package:\n{row}");
            found.iter().for_each(|guard| guard.check(row));
            (named, last) = (named + 1, found);
        }
        assert!(named > 0, "nothing guards:\n{row}");
        count += 1;
    }
    assert!(count > 100, "{count}");
}

#[test]
fn every_promise_about_security_is_held_by_tests_that_are_there() {
    let document = text(repository().join("SECURITY.md"));
    let (_, promises) = document.split_once("\n## What is promised").unwrap();
    let (promises, _) = promises.split_once("\n## ").unwrap();
    let mut count = 0;
    for (row, cells) in rows(promises).skip(1) {
        let (mut package, mut program, mut named) = ("", None, 0);
        // `package` `program part-of-a-name…`, the rest of which may be that of the one before; a package alone has its tests
        // beside its code.
        for guards in cells[1].split([',', ';']) {
            let mut words: Vec<&str> = quoted(guards).collect();
            let is_package = |word: &&str| repository().join("crates").join(word).is_dir();
            if words.first().is_some_and(is_package) {
                (package, program) = (words.remove(0), None);
                named += usize::from(words.is_empty());
            }
            let (others, words): (Vec<&str>, Vec<&str>) = words.into_iter().partition(|word| check_other(word, row));
            let mut parts: Vec<&str> = words.iter().flat_map(|word| word.split_whitespace()).collect();
            if parts.first().is_some_and(|part| !part.starts_with('…')) {
                program = Some(parts.remove(0));
            }
            named += others.len() + words.len();
            if package.is_empty() {
                continue;
            }
            for part in [""].into_iter().chain(parts) {
                let (program, filter) = (program.map(str::to_owned), part.trim_matches('…').to_owned());
                Guard { package: package.to_owned(), program, filter }.check(row);
            }
        }
        assert!(named > 0, "nothing holds:\n{row}");
        count += 1;
    }
    assert!(count > 15, "{count}");
}

#[test]
fn security_says_who_is_trusted_whom_to_tell_what_is_supported_and_what_is_not_ours() {
    let document = text(repository().join("SECURITY.md"));
    let section = |title: &str| {
        let (_, rest) = document.split_once(&format!("## {title}\n")).unwrap_or_else(|| panic!("no section {title:?}"));
        let words: Vec<&str> = rest.split("\n## ").next().unwrap().split_whitespace().collect();
        words.join(" ")
    };
    for (title, words) in [
        ("To report something", ["privately", "only the newest release gets fixes", "thirty"].as_slice()),
        ("Who is trusted with what", &["whoever supplies a bundle", "be root on the node", "use tokens that expire"]),
        ("What is not promised", &["cloud-init keeps user data", "the metadata service goes on", "let tokens expire"]),
    ] {
        for word in words {
            assert!(section(title).contains(word), "SECURITY.md, {title:?} does not say {word:?}");
        }
    }
}

/// What only these scripts can show is worth nothing if nobody runs them.
#[test]
fn make_runs_the_scripts_that_the_promises_rest_on() {
    let makefile = text(repository().join("Makefile"));
    for (target, script) in
        [("soak", "scripts/reproduce"), ("lint", "scripts/check-advisories"), ("dist", "scripts/package")]
    {
        let (_, rule) = makefile.split_once(&format!("\n{target}: ")).unwrap();
        // A variable of a target looks like a rule.
        let recipe = rule.lines().skip_while(|line| !line.starts_with('\t')).take_while(|line| line.starts_with('\t'));
        assert!(recipe.into_iter().any(|line| line.contains(script)), "make {target} does not run {script}");
    }
}
