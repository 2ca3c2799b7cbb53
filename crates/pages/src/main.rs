//! `cargo run -p pages`: writes the generated parts of `docs/reference`. With a folder: what else belongs to a release into it.
#![allow(clippy::disallowed_methods, reason = "development only: writes into the checkout")]

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;

/// Writes the generated parts of docs/reference, or manual pages, completions and the list of what the binary is made of.
#[derive(Parser)]
struct Arguments {
    /// Write man/, completions/ and nodestrap.cdx.json into this folder instead.
    #[arg(long, value_name = "DIR", requires = "target")]
    out: Option<PathBuf>,
    /// What the binary is built for.
    #[arg(long, value_name = "TRIPLE")]
    target: Option<String>,
}

fn main() -> ExitCode {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let Arguments { out, target } = Arguments::parse();
    let written = match (out, target) {
        (Some(folder), Some(target)) => write_pages(&folder).and_then(|()| write_sbom(&repository, &folder, &target)),
        _ => write_reference(&repository),
    };
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("error: {problem}");
            ExitCode::FAILURE
        }
    }
}

fn write_pages(folder: &Path) -> Result<(), String> {
    for (below, pages) in [("man", pages::manual()), ("completions", pages::completions())] {
        for (name, content) in pages {
            write(&folder.join(below).join(name), &content)?;
        }
    }
    Ok(())
}

fn write_sbom(repository: &Path, folder: &Path, target: &str) -> Result<(), String> {
    let tree = ask(repository, "cargo", pages::TREE_ARGUMENTS.iter().copied().chain(["--target", target]))?;
    let rust = ask(repository, "rustc", ["--version"])?;
    let release = rust.split(' ').nth(1).ok_or_else(|| format!("rustc calls itself {rust:?}"))?;
    let sbom = pages::sbom(&tree, &read(&repository.join("Cargo.lock"))?, release)?;
    write(&folder.join("nodestrap.cdx.json"), sbom.as_bytes())
}

fn ask<'a>(place: &Path, program: &str, arguments: impl IntoIterator<Item = &'a str>) -> Result<String, String> {
    let mut command = std::process::Command::new(program);
    let asked = command.args(arguments).current_dir(place).output();
    let output = asked.map_err(|error| format!("cannot run {program}: {error}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(format!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}

fn write_reference(repository: &Path) -> Result<(), String> {
    let example = read(&repository.join("examples/minimal.yaml"))?;
    for (name, generated) in pages::reference(&example)? {
        let path = repository.join("docs/reference").join(name);
        let document = pages::with_generated(&read(&path)?, &generated)
            .ok_or_else(|| format!("{} has no marks for its generated part", path.display()))?;
        write(&path, document.as_bytes())?;
    }
    Ok(())
}

fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))
}

fn write(path: &Path, content: &[u8]) -> Result<(), String> {
    let made = path.parent().map_or(Ok(()), std::fs::create_dir_all).and_then(|()| std::fs::write(path, content));
    made.map_err(|error| format!("cannot write {}: {error}", path.display()))
}
