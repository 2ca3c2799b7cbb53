//! `cargo run -p pages`: writes the generated parts of `docs/reference`. With a folder: manual pages and completions into it.
#![allow(clippy::disallowed_methods, reason = "development only: writes into the checkout")]

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;

/// Writes the generated parts of docs/reference, or manual pages and completions.
#[derive(Parser)]
struct Arguments {
    /// Write man/ and completions/ into this folder instead.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

fn main() -> ExitCode {
    let written = match Arguments::parse().out {
        Some(folder) => write_pages(&folder),
        None => write_reference(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")),
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
