//! The binary `nodestrap`: reads the command line, wires the rooms together, prints, and ends with an exit code.
//!
//! Reads: the files named on the command line, and under `--root` those of a node. Writes: standard output (results),
//! standard error (progress and errors), and under `--root` what the plan says. Exit codes: see `--help`.
#![allow(clippy::disallowed_methods, clippy::print_stdout, reason = "this room talks to people and wires effects")]

mod args;
mod authoring;
mod documents;
mod facts;
mod hook;
mod machine;
mod network;
mod node_commands;
mod old_names;
mod outcome;
mod outside;
mod pki;
mod planning;
mod progress;
mod publish;
mod push;
mod receive;
mod rendering;
mod reset;
mod show;
mod spending;
mod status;
mod status_watch;
mod try_it;
mod typing;
mod verify;
mod verify_image;

use std::process::ExitCode;

use clap::Parser;

use crate::args::{Arguments, Command};
use crate::old_names::OldName;
use crate::outcome::Outcome;
use crate::show::Screen;

/// musl's own asks the kernel for a page and gives it back for nearly every line that is parsed.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let mut words = std::env::args_os().peekable();
    if let Some(old) = words.peek().and_then(|program| OldName::of(program)) {
        let screen = OldName::screen();
        return finish(&screen, |screen| old.run(words, screen));
    }
    let arguments = Arguments::parse();
    let screen = Screen::new(arguments.output, arguments.color);
    finish(&screen, |screen| run(arguments.command, screen))
}

fn finish(screen: &Screen, run: impl FnOnce(&Screen) -> Outcome) -> ExitCode {
    // Nearly every command reads a token or a key. One that cannot be hidden from a debugger is still worth running.
    if let Err(error) = host::machine::forbid_core_dumps() {
        screen.remark(&format!("a crash of this program may leave its secrets in a core dump: {error}"));
    }
    match run(screen) {
        Ok(code) => code.into(),
        Err(failure) => {
            screen.error(&failure);
            failure.code.into()
        }
    }
}

fn run(command: Command, screen: &Screen) -> Outcome {
    match command {
        Command::Try(arguments) => try_it::run(&arguments, screen),
        Command::Check(arguments) => authoring::check(&arguments, screen),
        Command::Complete(arguments) => authoring::complete(&arguments, screen),
        Command::Explain(arguments) => authoring::explain(&arguments, screen),
        Command::Render(arguments) => rendering::run(&arguments, screen),
        Command::Publish(arguments) => publish::publish(&arguments, screen),
        Command::Artefacts(arguments) => publish::artefacts::run(&arguments, screen),
        Command::Push(arguments) => push::run(&arguments, screen),
        Command::Receive(arguments) => receive::run(&arguments, screen),
        Command::Pki(arguments) => pki::run(arguments, screen),
        Command::Plan(arguments) => planning::run(&arguments, screen),
        Command::Apply(arguments) => node_commands::apply(&arguments, screen),
        Command::Status(arguments) => status::run(&arguments, screen),
        Command::Timeline(arguments) => node_commands::timeline(&arguments, screen),
        Command::Facts(arguments) => facts::run(&arguments, screen),
        Command::Verify(arguments) => verify::run(&arguments, screen),
        Command::VerifyImage(arguments) => verify_image::run(&arguments, screen),
        Command::Reset(arguments) => reset::run(&arguments, screen),
        Command::Hook(arguments) => hook::run(arguments, screen),
        Command::Gate(arguments) => node_commands::gate(&arguments, screen),
        Command::Network(arguments) => network::run(&arguments, screen),
        Command::SpendCredentials(arguments) => spending::run(&arguments, screen),
        Command::CleanRuntimeData(arguments) => node_commands::clean_runtime_data(&arguments, screen),
        Command::Schema => typing::schema(screen),
        Command::Completions(arguments) => typing::completions(&arguments, screen),
    }
}
