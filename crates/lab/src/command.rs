//! Running programs: the outcome is text or an error that quotes what the program said.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, bail};

/// How many lines of a log an error quotes.
const TAIL_LINES: usize = 25;

/// Runs a program to its end; its standard output is the value, a failure quotes its standard error.
pub fn stdout_of(command: &mut Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("running {}", describe(command)))?;
    stdout_if_well(command, &output)
}

pub(crate) fn stdout_if_well(command: &Command, output: &Output) -> Result<String> {
    if !output.status.success() {
        bail!("{} ended with {}\n{}", describe(command), output.status, output_text(output));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// As [`stdout_of`], with text on the program's standard input.
pub(crate) fn stdout_with_input(command: &mut Command, input: &str) -> Result<String> {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("running {}", describe(command)))?;
    if let Some(mut stdin) = child.stdin.take() {
        // A program that ends without reading says why on its standard error; that is the error worth showing.
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = child.wait_with_output().with_context(|| format!("running {}", describe(command)))?;
    stdout_if_well(command, &output)
}

/// Runs a slow program with its output in a log file; a failure quotes the end of the log.
pub(crate) fn run_logged(command: &mut Command, log: &Path) -> Result<()> {
    let mut file = append(log)?;
    writeln!(file, "+ {}", describe(command))?;
    let status = command
        .stdin(Stdio::null())
        .stdout(file.try_clone()?)
        .stderr(file)
        .status()
        .with_context(|| format!("running {}", describe(command)))?;
    if !status.success() {
        bail!("{} ended with {status}; {} ends with\n{}", describe(command), log.display(), tail(log));
    }
    Ok(())
}

/// Runs a short program where only failure matters.
pub(crate) fn run<S: AsRef<OsStr>>(program: &str, arguments: &[S]) -> Result<()> {
    stdout_of(Command::new(program).args(arguments)).map(drop)
}

/// What a program said, both streams, for an error message.
pub fn output_text(output: &Output) -> String {
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    text.trim_end().to_owned()
}

pub(crate) fn append(path: &Path) -> Result<File> {
    OpenOptions::new().create(true).append(true).open(path).with_context(|| format!("opening {}", path.display()))
}

/// The end of a log, for an error message. Never fails: it is called when something else already has.
pub(crate) fn tail(path: &Path) -> String {
    match std::fs::read(path) {
        Ok(bytes) => last_lines(&String::from_utf8_lossy(&bytes)),
        Err(error) => format!("({} cannot be read: {error})", path.display()),
    }
}

pub(crate) fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
}

fn describe(command: &Command) -> String {
    let mut text = command.get_program().to_string_lossy().into_owned();
    for argument in command.get_args() {
        text.push(' ');
        text.push_str(&argument.to_string_lossy());
    }
    // Long command lines (kubelet flags) would hide the message that follows them.
    if text.chars().count() > 200 { text.chars().take(200).chain("…".chars()).collect() } else { text }
}
