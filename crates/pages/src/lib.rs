//! What people read about nodestrap, written from the code: manual pages, completions of shells, the generated parts of
//! `docs/reference`, and what the binary is made of.
//!
//! Inputs: the command line as `cli` defines it (its own file, compiled here a second time), `spec::json_schema`, and the
//! complete form of `examples/minimal.yaml`. Outputs: names and contents of files; `main` writes them, tests compare them.
//! Development only: nothing of this is in the binary but the completions.

#[allow(dead_code, reason = "the commands that take these arguments are in cli")]
#[path = "../../cli/src/args.rs"]
mod args;
mod commands;
mod fields;
mod hook;
mod markdown;
#[allow(dead_code, reason = "the commands that take these arguments are in cli")]
mod pki;
mod publish;
mod sbom;

use clap::{CommandFactory as _, ValueEnum as _};
use clap_complete::Shell;

pub use sbom::{TREE_ARGUMENTS, sbom};

/// The part of a document that is written from the code.
const BEGIN: &str = "<!-- written by `cargo run -p pages` from here -->";
const END: &str = "<!-- to here -->";

/// A file: its name or path, and its content.
pub type Page = (String, Vec<u8>);

/// `nodestrap.1`, and one for each command.
pub fn manual() -> Vec<Page> {
    let mut root = args::Arguments::command().disable_help_subcommand(true);
    root.build();
    let mut pages = Vec::new();
    collect_manual(&root, &mut pages);
    pages.sort();
    pages
}

fn collect_manual(command: &clap::Command, pages: &mut Vec<Page>) {
    let name = command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned();
    let page = clap_mangen::Man::new(command.clone());
    let mut text = Vec::new();
    // Writing into memory does not fail.
    let _ = page.render(&mut text);
    pages.push((format!("{name}.1"), text));
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        collect_manual(below, pages);
    }
}

/// One script for each shell, named as the shells look for them.
pub fn completions() -> Vec<Page> {
    let script = |shell: &Shell| {
        let mut text = Vec::new();
        clap_complete::generate(*shell, &mut args::Arguments::command(), "nodestrap", &mut text);
        let name = match shell {
            Shell::Bash => "nodestrap",
            Shell::Zsh => "_nodestrap",
            Shell::Fish => "nodestrap.fish",
            Shell::Elvish => "nodestrap.elv",
            _ => "_nodestrap.ps1",
        };
        (format!("{shell}/{name}"), text)
    };
    Shell::value_variants().iter().map(script).collect()
}

/// The generated part of each document below `docs/reference`, by its file name. `example` is `examples/minimal.yaml`.
pub fn reference(example: &str) -> Result<Vec<(&'static str, String)>, String> {
    Ok(vec![("commands.md", commands::describe(args::Arguments::command())), ("spec.md", fields::describe(example)?)])
}

/// The document with its generated part replaced; `None` if it has no place for one.
pub fn with_generated(document: &str, generated: &str) -> Option<String> {
    let (before, rest) = document.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n\n{}\n\n{END}{after}", generated.trim()))
}
