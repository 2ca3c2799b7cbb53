//! `verify-image`: what an image lacks of what a bundle counts on.

use std::fmt::Write as _;
use std::io::Read as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use bundle::Bundle;
use host::disk::RootedDisk;
use node::ImageReport;

use crate::args::VerifyImageArguments;
use crate::machine;
use crate::outcome::{Code, Failure, OrFail, Outcome};
use crate::show::{Paint, Screen, table};

/// A program that says its version takes a tenth of a second; from a cold network disk some.
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(10);
/// Of what a program says, the version is in the first line.
const ENOUGH: u64 = 4096;

pub(crate) fn run(arguments: &VerifyImageArguments, screen: &Screen) -> Outcome {
    let root = &arguments.root.root;
    let host = machine::open(root)?;
    let bundle = load(&arguments.bundle)?;
    let report = node::verify_image(host.disk.as_ref(), host.machine.as_ref(), &bundle, &|program| ask(root, program))
        .or_fail(Code::NeedsPerson)?;
    screen.result(&report, || text(screen, &report))?;
    Ok(if report.findings.is_empty() { Code::Done } else { Code::NeedsPerson })
}

/// Not by its store: whoever bakes an image has rendered what its nodes will get.
fn load(path: &Path) -> Result<Bundle, Failure> {
    let here = RootedDisk::open(Path::new("/")).or_fail(Code::WrongInput)?;
    let path = std::path::absolute(path).with_context(|| path.display().to_string()).or_fail(Code::WrongInput)?;
    let delivered = node::load_bundle(&here, &path, &here, None);
    delivered.map(|delivered| delivered.bundle).or_fail(Code::WrongInput)
}

/// The program runs as it would on a machine of this image: with the image's own libraries.
fn ask(root: &Path, program: &str) -> Result<String, String> {
    let mut command = if machine::is_machine(root) {
        Command::new(program)
    } else {
        let mut command = Command::new("chroot");
        command.arg(root).arg(program);
        command
    };
    command.arg("--version").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| error.to_string())?;
    let ended = wait(&mut child);
    let said = |stream: &mut dyn std::io::Read| {
        let mut text = Vec::new();
        // What a program says that was stopped is not worth an error of its own.
        let _ = stream.take(ENOUGH).read_to_end(&mut text);
        String::from_utf8_lossy(&text).trim().to_owned()
    };
    let output = child.stdout.take().map(|mut stream| said(&mut stream)).unwrap_or_default();
    let errors = child.stderr.take().map(|mut stream| said(&mut stream)).unwrap_or_default();
    match ended {
        Ok(true) => Ok(output),
        Ok(false) if errors.is_empty() => Err("it failed without a word".to_owned()),
        Ok(false) => Err(errors),
        Err(why) => Err(why),
    }
}

/// Whether it ended well.
fn wait(child: &mut Child) -> Result<bool, String> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait().map_err(|error| error.to_string())? {
            return Ok(status.success());
        }
        if start.elapsed() > PATIENCE {
            let _ = child.kill();
            let _ = child.wait();
            return Err(format!("it did not answer within {} seconds", PATIENCE.as_secs()));
        }
        std::thread::sleep(PAUSE);
    }
}

fn text(screen: &Screen, report: &ImageReport) -> String {
    let ImageReport { programs, units, findings, remarks } = report;
    let mut text = if findings.is_empty() {
        let mark = screen.paint(Paint::Good, "✓");
        format!("{mark} this image has what the bundle counts on: {programs} programs, {units} units\n")
    } else {
        let things = if findings.len() == 1 { "1 thing is" } else { &format!("{} things are", findings.len()) };
        format!("{} {things} missing or wrong in this image\n", screen.paint(Paint::Bad, "✗"))
    };
    let rows: Vec<_> = findings.iter().map(|finding| vec![finding.subject.clone(), finding.problem.clone()]).collect();
    text.push_str(&table(&rows));
    for remark in remarks {
        let _ = writeln!(text, "  note: {remark}");
    }
    text
}
