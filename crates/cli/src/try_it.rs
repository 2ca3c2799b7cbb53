//! `try`: a whole bootstrap in a sandbox folder, for those who want to see it before they believe it.
//!
//! Everything but the machine is real: the spec, the bundle, the plan, the journal, every file and its durability. The
//! units are kept by a stand-in and the programs of the image are empty files; the output says so.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use bundle::{BUNDLE_PATH, Bundle};
use engine::{Report, RunOutcome, Timeline};
use host::files;
use node::NodeHost;
use spec::Source;

use crate::args::{Progress, TryArguments};
use crate::documents;
use crate::machine;
use crate::node_commands::{converge, report_text, timeline_text, write_picture};
use crate::outcome::{Code, Failure, OrFail, Outcome};
use crate::planning::Planned;
use crate::progress::ProgressView;
use crate::show::{Paint, Screen, table};

const SPEC: &str = include_str!("../../../examples/minimal.yaml");

/// What a real image brings.
const IMAGE: [(&str, u32, &str); 5] = [
    (
        "/etc/os-release",
        0o644,
        "ID=debian\nVERSION_ID=\"12\"\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm), as a sandbox\"\n",
    ),
    ("/etc/hostname", 0o644, "sandbox\n"),
    ("/etc/machine-id", 0o444, "0123456789abcdef0123456789abcdef\n"),
    ("/run/nodestrap/boot_id", 0o444, "00000000-0000-4000-8000-000000000001\n"),
    (
        "/usr/lib/systemd/system/containerd.service",
        0o644,
        "[Service]\nExecStart=/usr/bin/containerd\n\n[Install]\nWantedBy=multi-user.target\n",
    ),
];

pub(crate) fn run(arguments: &TryArguments, screen: &Screen) -> Outcome {
    let sandbox = make_sandbox(arguments.keep.as_deref())?;
    let delivered = node::Delivered::from(render_example(screen)?);
    let bundle = &delivered.bundle;
    let host = machine::open(&sandbox)?;
    make_image(&host, bundle)?;
    write(&host, BUNDLE_PATH, 0o600, bundle.to_json().as_bytes())?;

    heading(screen, "The spec: ten lines")?;
    screen.print(&shortened(SPEC))?;
    heading(screen, "The plan: what will happen, before anything does")?;
    screen.print(&Planned::new(&host, bundle)?.text(screen))?;

    heading(screen, "Apply")?;
    let is_open = || node::is_gate_open(host.disk.as_ref(), Some(&delivered.bundle));
    let first = converge(&host, &delivered, &ProgressView::new(Progress::Auto), screen)?;
    screen.print(&report_text(screen, &first, is_open()))?;
    expect_success(&first)?;

    heading(screen, "The timeline: where the time went")?;
    let (events, _) = node::load_events(host.disk.as_ref()).or_fail(Code::NeedsPerson)?;
    let timeline = Timeline::from_events(&events);
    screen.print(&timeline_text(screen, &timeline))?;
    let picture = sandbox.join("timeline.svg");
    write_picture(&picture, &timeline)?;
    screen.print(&format!("  as a picture: {}\n", picture.display()))?;

    heading(screen, "The files of the node")?;
    screen.print(&files_text(screen, &sandbox, bundle)?)?;

    heading(screen, "Apply again")?;
    let second = converge(&host, &delivered, &ProgressView::new(Progress::None), screen)?;
    screen.print(&report_text(screen, &second, is_open()))?;
    if second.outcome != RunOutcome::NothingToDo {
        let error = anyhow::anyhow!("a second run found something to do; please report this as a bug");
        return Err(Failure { code: Code::NeedsPerson, error });
    }
    screen.print(&closing(screen, &host, &sandbox))?;
    Ok(Code::Done)
}

fn make_sandbox(keep: Option<&Path>) -> Result<PathBuf, Failure> {
    let folder = match keep {
        Some(folder) => folder.to_owned(),
        None => {
            use std::os::unix::fs::DirBuilderExt as _;
            let folder = std::env::temp_dir().join(format!("nodestrap-try-{}", std::process::id()));
            // Ours alone: a folder that somebody prepared under this name is refused.
            std::fs::DirBuilder::new().mode(0o700).create(&folder).or_fail(Code::WrongInput)?;
            folder
        }
    };
    let in_use = std::fs::read_dir(&folder).is_ok_and(|mut entries| entries.next().is_some());
    if in_use {
        let error = anyhow::anyhow!("{} is not empty; name a new folder with --keep", folder.display());
        return Err(Failure { code: Code::WrongInput, error });
    }
    std::fs::create_dir_all(&folder).or_fail(Code::WrongInput)?;
    std::path::absolute(folder).or_fail(Code::WrongInput)
}

fn render_example(screen: &Screen) -> Result<Bundle, Failure> {
    let source = Source::new("examples/minimal.yaml", SPEC);
    let complete = documents::complete_sources(&[source], screen)?;
    render::render_bundle(&complete, "workers").or_fail(Code::WrongInput)
}

/// The machine as its vendor delivers it: an operating system, and the programs that the bundle counts on.
fn make_image(host: &NodeHost, bundle: &Bundle) -> Result<(), Failure> {
    for (path, mode, content) in IMAGE {
        write(host, path, mode, content.as_bytes())?;
    }
    for program in &bundle.required_programs {
        write(host, program, 0o755, b"")?;
    }
    Ok(())
}

fn write(host: &NodeHost, path: &str, mode: u32, content: &[u8]) -> Result<(), Failure> {
    files::write_durable(host.disk.as_ref(), Path::new(path), mode, content, None).or_fail(Code::NeedsPerson)
}

fn expect_success(report: &Report) -> Result<(), Failure> {
    match &report.outcome {
        RunOutcome::Failed { class, message, .. } => {
            Err(Failure { code: (*class).into(), error: anyhow::anyhow!("{message}") })
        }
        _ => Ok(()),
    }
}

fn heading(screen: &Screen, text: &str) -> Result<(), Failure> {
    screen.print(&format!("\n{}\n", screen.paint(Paint::Strong, &format!("── {text} ──"))))
}

/// Certificates are long and say nothing to people.
fn shortened(text: &str) -> String {
    const WIDTH: usize = 100;
    text.lines().fold(String::new(), |mut shown, line| {
        let cut: String = line.chars().take(WIDTH).collect();
        let more = if cut.len() < line.len() { "…" } else { "" };
        let _ = writeln!(shown, "  {cut}{more}");
        shown
    })
}

/// What the bundle brought, as it lies on disk now.
fn files_text(screen: &Screen, sandbox: &Path, bundle: &Bundle) -> Result<String, Failure> {
    use std::os::unix::fs::PermissionsExt as _;
    let mut paths: Vec<String> = bundle.all_files().iter().map(|file| file.path.to_string()).collect();
    paths.extend([bundle.gate.path.to_string(), BUNDLE_PATH.to_owned(), node::JOURNAL_PATH.to_owned()]);
    paths.sort();
    let mut rows = Vec::new();
    for path in paths {
        let metadata = std::fs::metadata(sandbox.join(path.trim_start_matches('/'))).or_fail(Code::NeedsPerson)?;
        let remark = match path.as_str() {
            path if bundle.gate.path == path => screen.paint(Paint::Good, "the gate, written last"),
            path if metadata.permissions().mode() & 0o077 == 0 => {
                screen.paint(Paint::Quiet, if path == node::JOURNAL_PATH { "private" } else { "secret inside" })
            }
            _ => String::new(),
        };
        let mode = format!("{:04o}", metadata.permissions().mode() & 0o7777);
        rows.push(vec![mode, format!("{:>6}", metadata.len()), path, remark]);
    }
    Ok(table(&rows))
}

fn closing(screen: &Screen, host: &NodeHost, sandbox: &Path) -> String {
    let root = sandbox.display();
    format!(
        "\n{}\n  real      spec, bundle, plan, journal, every file and its sync\n  not real  units: {}\n            programs \
         of the image: empty files\n\n  look around     find {root} -type f\n  ask it          nodestrap status --root \
         {root}\n  the real thing  make lab (as root: a systemd node, a real kubelet, an API server)\n  clean up        \
         rm -r {root}\n",
        screen.paint(Paint::Strong, "── What was real ──"),
        host.units.describe(),
    )
}
