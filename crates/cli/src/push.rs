//! `nodestrap push`: a folder to a node, by the ssh of this machine.
//!
//! Reads: the folder. Starts: `ssh`, which has its own configuration, keys and known hosts, and may ask on the terminal; on the
//! node it runs `nodestrap receive`. Nothing secret is in an argument.

use std::cell::Cell;
use std::io::{ErrorKind, IsTerminal as _, Write as _};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

use anyhow::{Context as _, anyhow};
use fetch::assets::{PackError, Parcel};
use host::disk::RootedDisk;
use indicatif::{HumanBytes, ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::args::{Progress, PushArguments};
use crate::outcome::{Code, Failure, OrFail, Outcome};
use crate::receive::{ReceivedView, ViewedOutcome};
use crate::show::Screen;

const SSH: &str = "ssh";
/// By which ssh says that it failed itself.
const SSH_FAILED: i32 = 255;
/// By which a shell says that it did not find a program.
const NO_PROGRAM: i32 = 127;
/// Where nobody looks at a bar, so many lines tell how far it is.
const LINES: u64 = 10;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PushView<'a> {
    host: &'a str,
    /// As the node says it: a key may be for one folder only.
    folder: &'a str,
    files: usize,
    size: u64,
    digest: String,
    outcome: ViewedOutcome,
}

pub(crate) fn run(arguments: &PushArguments, screen: &Screen) -> Outcome {
    let folder = std::path::absolute(&arguments.folder).or_fail(Code::WrongInput)?;
    let here = RootedDisk::open(Path::new("/")).or_fail(Code::NeedsPerson)?;
    let parcel = Parcel::pack(&here, &folder).map_err(|error| told(error, arguments))?;
    let received = carry(&parcel, arguments)?;
    if received.digest != parcel.heading.digest.to_string() {
        return Err(anyhow!("{} answers for another push than this one", arguments.host)).or_fail(Code::NeedsPerson);
    }
    let view = PushView {
        host: &arguments.host,
        folder: &received.folder,
        files: parcel.files,
        size: parcel.heading.size,
        digest: received.digest,
        outcome: received.outcome,
    };
    screen.result(&view, || format!("{} on {} {}\n", view.folder, view.host, view.outcome.text()))
}

fn told(error: PackError, arguments: &PushArguments) -> Failure {
    let code = match &error {
        PackError::Look(_) | PackError::Read { .. } => Code::NeedsPerson,
        PackError::Changed { .. } | PackError::Send(_) => Code::MayRetry,
        _ => Code::WrongInput,
    };
    let error = anyhow::Error::from(error);
    Failure { code, error: error.context(format!("cannot push {:?}", arguments.folder.display().to_string())) }
}

/// What the node says to it.
fn carry(parcel: &Parcel<'_>, arguments: &PushArguments) -> Result<ReceivedView, Failure> {
    let mut ssh = start(arguments)?;
    let Some(mut input) = ssh.stdin.take() else {
        return Err(anyhow!("ssh takes no input")).or_fail(Code::NeedsPerson);
    };
    let meter = Meter::new(arguments.progress, parcel.heading.size);
    let sent = parcel.send(&mut input, &|taken| meter.tell(taken));
    meter.end();
    // The end of it, or of what there is: the node gives up what is not whole.
    drop(input);
    let ended = ssh.wait_with_output().context("cannot wait for ssh").or_fail(Code::MayRetry)?;
    match sent {
        // The node had seen enough, or nobody listened: that is for ssh to say.
        Err(PackError::Send(error)) if error.kind() == ErrorKind::BrokenPipe => {}
        sent => sent.map_err(|error| told(error, arguments))?,
    }
    judge(ended.status, arguments)?;
    read_answer(&ended.stdout)
        .ok_or_else(|| anyhow!("{} did not answer as nodestrap does; is something else run there?", arguments.host))
        .or_fail(Code::NeedsPerson)
}

fn start(arguments: &PushArguments) -> Result<Child, Failure> {
    let mut ssh = Command::new(SSH);
    ssh.args(&arguments.ssh).arg("--").arg(&arguments.host).args(remote_words(arguments));
    let started = ssh.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    started.context("cannot start \"ssh\"; install it (openssh-client)").or_fail(Code::NeedsPerson)
}

/// Each is one word for every shell.
fn remote_words(arguments: &PushArguments) -> Vec<&str> {
    let mut words = if arguments.sudo { vec!["sudo", "-n"] } else { Vec::new() };
    words.extend([arguments.program.as_str(), "receive", "--to", arguments.place.to.as_str(), "-o", "json"]);
    if arguments.place.replace {
        words.push("--replace");
    }
    words
}

/// ssh ends as what it ran, or has a code of its own.
fn judge(status: ExitStatus, arguments: &PushArguments) -> Result<(), Failure> {
    let (host, program) = (&arguments.host, &arguments.program);
    let refused = |code, error| Err(Failure { code, error });
    let said = "what it said is above";
    match status.code() {
        Some(0) => Ok(()),
        Some(SSH_FAILED) => refused(Code::MayRetry, anyhow!("ssh did not reach {host:?}, or lost it; {said}")),
        Some(NO_PROGRAM) => {
            let error = anyhow!("{host:?} has no {program:?}; say where it is (--program), or bring it there first");
            refused(Code::NeedsPerson, error)
        }
        Some(code) => {
            let error = anyhow!("{host:?} did not take it (exit code {code}); {said}");
            let known = [Code::WrongInput, Code::MayRetry, Code::NeedsPerson, Code::Busy];
            let known = known.into_iter().find(|known| *known as i32 == code);
            refused(known.unwrap_or(Code::NeedsPerson), error)
        }
        None => refused(Code::MayRetry, anyhow!("ssh was killed")),
    }
}

/// Shells may say something of their own first.
fn read_answer(output: &[u8]) -> Option<ReceivedView> {
    let text = std::str::from_utf8(output).ok()?;
    let start = if text.starts_with('{') { 0 } else { text.rfind("\n{")? + 1 };
    serde_json::from_str(&text[start..]).ok()
}

/// How far it is, in bytes.
struct Meter {
    shape: Shape,
    size: u64,
    lines: Cell<u64>,
}

enum Shape {
    Bar(ProgressBar),
    Plain,
    Json,
    None,
}

impl Meter {
    fn new(wanted: Progress, size: u64) -> Self {
        let shape = match wanted {
            Progress::Bar => Shape::Bar(bar(size)),
            Progress::Auto if std::io::stderr().is_terminal() => Shape::Bar(bar(size)),
            Progress::Auto | Progress::Plain => Shape::Plain,
            Progress::Json => Shape::Json,
            Progress::None => Shape::None,
        };
        Self { shape, size, lines: Cell::new(0) }
    }

    fn tell(&self, sent: u64) {
        if let Shape::Bar(bar) = &self.shape {
            return bar.set_position(sent);
        }
        let lines = sent.saturating_mul(LINES) / self.size.max(1);
        if lines > self.lines.replace(lines) {
            let line = match self.shape {
                Shape::Plain => format!("sent {} of {}", HumanBytes(sent), HumanBytes(self.size)),
                Shape::Json => format!(r#"{{"sent":{sent},"size":{}}}"#, self.size),
                Shape::Bar(_) | Shape::None => return,
            };
            let _ = writeln!(std::io::stderr().lock(), "{line}");
        }
    }

    fn end(&self) {
        if let Shape::Bar(bar) = &self.shape {
            bar.finish_and_clear();
        }
    }
}

fn bar(size: u64) -> ProgressBar {
    let bar = ProgressBar::new(size);
    if let Ok(style) =
        ProgressStyle::with_template("{bar:24} {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec}")
    {
        bar.set_style(style.progress_chars("━╸─"));
    }
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_found_behind_what_a_shell_says() {
        let answer = r#"{"folder": "/opt/tectonic", "digest": "sha256:00", "outcome": "published"}"#;
        for said in [answer.to_owned(), format!("{answer}\n"), format!("Welcome {{you}}!\n{answer}\n")] {
            assert!(read_answer(said.as_bytes()).is_some_and(|answer| answer.folder == "/opt/tectonic"), "{said}");
        }
        for said in ["", "Welcome", "{}", "{\n", "\n{\"folder\": 1}"] {
            assert!(read_answer(said.as_bytes()).is_none(), "{said}");
        }
    }
}
