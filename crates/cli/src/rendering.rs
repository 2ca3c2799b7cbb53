//! `render`: what the nodes of a group receive, in every form; and what would change between two of them.

use std::path::{Path, PathBuf};

use bundle::{Besides, Bundle, Payload, diff_rendered, read_user_data};
use host::disk::{Disk, Kind, RootedDisk};
use render::delivery::machines::Document;
use render::delivery::{Carries, Format as UserDataFormat, UserData};
use render::{GroupDelivery, besides_of_user_data, render_group};

use crate::args::{Format, RenderArguments};
use crate::documents::{choose_group, load_complete, read_limited};
use crate::outcome::{Code, Failure, OrFail, Outcome};
use crate::show::Screen;

/// A rendered folder may hold secrets.
const FOLDER_MODE: u32 = 0o700;
/// One that is only on the way to what is rendered.
const PARENT_MODE: u32 = 0o755;
const SECRET_MODE: u32 = 0o600;

pub(crate) fn run(arguments: &RenderArguments, screen: &Screen) -> Outcome {
    if let [old, new] = arguments.diff.as_slice() {
        return diff(old, new, arguments, screen);
    }
    let spec = load_complete(&arguments.files, screen)?;
    if arguments.all {
        return render_all(&spec, arguments, screen);
    }
    let group = choose_group(&spec, arguments.group.as_deref())?;
    let group = render_group(&spec, &group).or_fail(Code::WrongInput)?;
    let out = arguments.out.as_deref().filter(|out| *out != Path::new("-"));
    match chosen(arguments.format, &group) {
        Format::Folder => match out {
            Some(out) => write_folder(&group.bundle, out, screen),
            None => Err(anyhow::anyhow!("a folder needs a place: --out PATH")).or_fail(Code::WrongInput),
        },
        Format::Bundle => {
            let digest = group.bundle.digest();
            deliver(group.bundle.to_json().as_bytes(), out, &format!("bundle {digest}"), screen)
        }
        Format::Machines => {
            let (template, machines, carries) = group.machines().or_fail(Code::WrongInput)?;
            let outcome = write_documents(&[template, machines], out, screen);
            tell_store(&carries, screen);
            outcome
        }
        format => {
            let user_data = group.user_data(user_data_format(format)?).or_fail(Code::WrongInput)?;
            let what = format!("{}, bundle {}", user_data.digest, group.bundle.digest());
            let outcome = deliver(&user_data.bytes, out, &what, screen);
            tell_store(&user_data.carries, screen);
            outcome
        }
    }
}

/// The form that the user asks for, or else the one that the spec decides on.
fn chosen(asked: Option<Format>, group: &GroupDelivery<'_>) -> Format {
    asked.unwrap_or(match group.format() {
        Some(UserDataFormat::CloudConfig) => Format::CloudConfig,
        Some(UserDataFormat::Mime) => Format::Mime,
        Some(UserDataFormat::Ignition3) => Format::Ignition,
        Some(UserDataFormat::Ignition2) => Format::Ignition2,
        None => Format::Folder,
    })
}

fn user_data_format(format: Format) -> Result<UserDataFormat, Failure> {
    match format {
        Format::CloudConfig => Ok(UserDataFormat::CloudConfig),
        Format::Mime => Ok(UserDataFormat::Mime),
        Format::Ignition => Ok(UserDataFormat::Ignition3),
        Format::Ignition2 => Ok(UserDataFormat::Ignition2),
        Format::Bundle | Format::Folder | Format::Machines => {
            Err(anyhow::anyhow!("this form is no user data")).or_fail(Code::WrongInput)
        }
    }
}

/// A machine that starts before its bundle is there waits for it, so this is said now.
fn tell_store(carries: &Carries, screen: &Screen) {
    if let Carries::Stub(stub) = carries {
        screen.remark(&format!(
            "the bundle is too large for user data, which names it by its digest: write it with --format bundle and \
             publish it as {}",
            stub.urls.join(" and ")
        ));
        for command in stub.urls.iter().filter_map(|url| publish_command(url, stub.s3.as_deref()?)) {
            screen.remark(&command);
        }
    }
}

/// What puts a bundle there, if that is a bucket.
fn publish_command(url: &str, s3: &bundle::S3) -> Option<String> {
    let (store, _) = url.strip_prefix("s3://")?.rsplit_once('/')?;
    let mut command = format!("nodestrap publish s3://{store} --bundle FILE --s3-region {}", s3.region);
    if let Some(endpoint) = &s3.endpoint {
        command.push_str(&format!(" --s3-endpoint {endpoint}"));
    }
    if s3.path_style {
        command.push_str(" --s3-path-style");
    }
    Some(command)
}

/// One file for each group, named after it; all of them or none.
fn render_all(spec: &spec::CompleteSpec, arguments: &RenderArguments, screen: &Screen) -> Outcome {
    let Some(out) = &arguments.out else {
        return Err(anyhow::anyhow!("--all needs a folder: --out PATH")).or_fail(Code::WrongInput);
    };
    if matches!(arguments.format, Some(Format::Folder | Format::Machines)) {
        return Err(anyhow::anyhow!("--all writes one file for each group: ask for a bundle or user data"))
            .or_fail(Code::WrongInput);
    }
    let groups = render::render_all(spec, |group| {
        let format = match chosen(arguments.format, group) {
            // A spec may decide on a folder for one group; the bundle is the same in one file.
            Format::Folder => Format::Bundle,
            format => format,
        };
        let digest = group.bundle.digest();
        let (bytes, what, carries) = match user_data_format(format) {
            Ok(format) => {
                let UserData { bytes, digest: own, carries, .. } = group.user_data(format)?;
                (bytes, format!("{own}, bundle {digest}"), carries)
            }
            Err(_) => (group.bundle.to_json().into_bytes(), format!("bundle {digest}"), Carries::Bundle),
        };
        let name = format!("{}.{}", group.bundle.group, suffix(format));
        let remark = format!("{}: {} bytes, {what}", out.join(&name).display(), bytes.len());
        Ok(((name, SECRET_MODE, bytes), (remark, carries)))
    })
    .or_fail(Code::WrongInput)?;
    let (files, remarks): (Vec<_>, Vec<_>) = groups.into_iter().unzip();
    fill_new_folder(out, files)?;
    for (remark, carries) in remarks {
        screen.remark(&remark);
        tell_store(&carries, screen);
    }
    Ok(Code::Done)
}

fn suffix(format: Format) -> &'static str {
    match format {
        Format::CloudConfig => "cloud-config.yaml",
        Format::Mime => "mime",
        Format::Ignition | Format::Ignition2 => "ign",
        Format::Bundle | Format::Folder | Format::Machines => "bundle.json",
    }
}

fn deliver(bytes: &[u8], out: Option<&Path>, what: &str, screen: &Screen) -> Outcome {
    let Some(out) = out else {
        screen.print_bytes(bytes)?;
        return Ok(Code::Done);
    };
    write_secret(out, bytes)?;
    screen.remark(&format!("{}: {} bytes, {what}", out.display(), bytes.len()));
    Ok(Code::Done)
}

fn write_secret(out: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let write = || -> anyhow::Result<()> {
        let Place { folder, name, .. } = Place::of(out)?;
        Ok(host::files::write_durable(&folder, &name, SECRET_MODE, bytes, None)?)
    };
    // What is in the way was named by the user.
    let code = if out.is_dir() { Code::WrongInput } else { Code::NeedsPerson };
    write().map_err(|error| Failure { code, ..cannot_write(error, out) })
}

/// Where something shall lie: in a folder that no other user can have put there, under a name.
struct Place {
    folder: RootedDisk,
    /// Inside the folder.
    name: PathBuf,
    path: PathBuf,
}

impl Place {
    fn of(out: &Path) -> anyhow::Result<Self> {
        let path = std::path::absolute(out)?;
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            anyhow::bail!("it is not the path of a file or a new folder");
        };
        let folder = RootedDisk::open_trusted(parent, PARENT_MODE)?;
        Ok(Self { folder, name: Path::new("/").join(name), path })
    }
}

/// The disk is full, or not ours: the input is right, and a person is needed.
fn cannot_write(error: impl Into<anyhow::Error>, path: &Path) -> Failure {
    let context = format!("cannot write {:?}", path.display().to_string());
    Failure { code: Code::NeedsPerson, error: error.into().context(context) }
}

/// Two documents: to a folder, or one after the other.
fn write_documents(documents: &[Document], out: Option<&Path>, screen: &Screen) -> Outcome {
    let Some(out) = out else {
        for document in documents {
            screen.print(&document.to_json())?;
        }
        return Ok(Code::Done);
    };
    let files = documents
        .iter()
        .map(|document| (format!("{}.json", document.kind), SECRET_MODE, document.to_json().into_bytes()));
    fill_new_folder(out, files)?;
    for document in documents {
        screen.remark(&format!("{}/{}.json: {}", out.display(), document.kind, document.digest));
    }
    Ok(Code::Done)
}

fn write_folder(bundle: &Bundle, out: &Path, screen: &Screen) -> Outcome {
    fill_new_folder(out, bundle.to_folder())?;
    screen.remark(&format!("{}: {} files, bundle {}", out.display(), bundle.files.len(), bundle.digest()));
    Ok(Code::Done)
}

/// All of it, or nothing at the place: the folder is filled beside it and switched in.
fn fill_new_folder(out: &Path, files: impl IntoIterator<Item = (String, u32, Vec<u8>)>) -> Result<(), Failure> {
    let place = Place::of(out).map_err(|error| cannot_write(error, out))?;
    let wrong =
        |why: &str| Err(anyhow::anyhow!("{:?} {why}", place.path.display().to_string())).or_fail(Code::WrongInput);
    let found = place.folder.stat(&place.name).map_err(|error| cannot_write(error, out))?;
    match found.map(|found| found.kind) {
        None => {}
        Some(Kind::Folder) => {
            let theirs =
                RootedDisk::open_trusted(&place.path, FOLDER_MODE).map_err(|error| cannot_write(error, out))?;
            if !theirs.list(Path::new("/")).map_err(|error| cannot_write(error, out))?.is_empty() {
                return wrong("is not empty; name a new folder");
            }
        }
        Some(_) => return wrong("is not a folder; name a new one"),
    }
    let beside = |path: &Path| {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(".nodestrap-new");
        path.with_file_name(name)
    };
    let staging = beside(&place.path);
    if place.folder.stat(&beside(&place.name)).is_ok_and(|found| found.is_some()) {
        std::fs::remove_dir_all(&staging).map_err(|error| cannot_write(error, &staging))?;
    }
    let switch = || place.folder.rename(&beside(&place.name), &place.name);
    let filled = fill(&staging, files).and_then(|()| Ok(switch()?));
    if filled.is_err() {
        // There are secrets inside; the first error is the one that counts.
        let _ = std::fs::remove_dir_all(&staging);
    }
    filled.map_err(|error| cannot_write(error, out))
}

fn fill(folder: &Path, files: impl IntoIterator<Item = (String, u32, Vec<u8>)>) -> anyhow::Result<()> {
    let disk = RootedDisk::open_trusted(folder, FOLDER_MODE)?;
    for (relative, mode, content) in files {
        let path = Path::new("/").join(&relative);
        if let Some(folder) = path.parent() {
            disk.make_folder(folder, FOLDER_MODE)?;
        }
        disk.create(&path, mode, &content)?;
    }
    Ok(disk.sync_file_system(Path::new("/"))?)
}

/// What would change on a node.
fn diff(old: &Path, new: &Path, arguments: &RenderArguments, screen: &Screen) -> Outcome {
    let group = arguments.group.as_deref();
    let (old, old_besides) = load_all_rendered(old, group, screen)?;
    let (new, new_besides) = load_all_rendered(new, group, screen)?;
    let diff = diff_rendered((&old, &old_besides), (&new, &new_besides));
    screen.result(&diff, || diff.to_string())
}

/// A bundle from whatever carries it: a folder, a file, user data; or a spec, which is rendered first.
pub(crate) fn load_rendered(path: &Path, group: Option<&str>, screen: &Screen) -> Result<Bundle, Failure> {
    load_all_rendered(path, group, screen).map(|(bundle, _)| bundle)
}

/// With what a machine gets besides, as far as this says it.
fn load_all_rendered(path: &Path, group: Option<&str>, screen: &Screen) -> Result<(Bundle, Besides), Failure> {
    let name = path.display().to_string();
    let fail =
        |reason: String| Failure { code: Code::WrongInput, error: anyhow::anyhow!("cannot read {name:?}: {reason}") };
    if path.is_dir() {
        let manifest = read_limited(&path.join("manifest.json")).map_err(fail)?;
        let bundle = Bundle::from_folder(&manifest, |relative| read_limited(&path.join(relative)).ok());
        return Ok((bundle.or_fail(Code::WrongInput)?, Besides::default()));
    }
    let bytes = read_limited(path).map_err(fail)?;
    match read_user_data(&bytes) {
        Ok(Payload::Bundle(bundle)) => Ok((*bundle, besides_of_user_data(&bytes))),
        Ok(Payload::Stub(stub)) => {
            Err(fail(format!("it only names the bundle {}; give the bundle itself", stub.digest)))
        }
        Err(_) if is_spec(&bytes) => {
            let spec = load_complete(&[path.to_owned()], screen)?;
            let group = choose_group(&spec, group)?;
            let group = render_group(&spec, &group).or_fail(Code::WrongInput)?;
            let besides = group.besides();
            Ok((group.bundle, besides))
        }
        Err(error) => Err(Failure {
            code: Code::WrongInput,
            error: anyhow::Error::from(error).context(format!("cannot use {name:?}")),
        }),
    }
}

/// A document of ours at the beginning of a line; what else is wrong with it, `check` says.
fn is_spec(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    text.lines().any(|line| matches!(line.trim_end(), "kind: Cluster" | "kind: NodeGroup"))
}
