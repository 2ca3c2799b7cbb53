//! Images of system extensions: judged before they are published, and made from a folder.

use std::io::{Cursor, Read, Seek};
use std::path::Path;

use anyhow::{Context as _, bail, ensure};
use fetch::squashfs::{EntryKind, Image, ImageContent, ImageFile, Limits, SquashfsError, write};
use host::machine::{OsRelease, parse_os_release};
use trust::{Architecture, ArtefactName, ExtensionRelease, ProgramPath, ReleaseWord};

/// No release file is near this.
const RELEASE_LIMIT: usize = 64 * 1024;
/// Flatcar's own promise: what fits this level fits all its releases.
const FLATCAR: &str = "ID=flatcar\nSYSEXT_LEVEL=1.0\n";
/// A drop-in of an image would change a unit that nodestrap writes.
const OUR_UNITS: [&str; 2] = ["kubelet.service.d", "containerd.service.d"];

pub(super) struct Extension {
    pub(super) release: ExtensionRelease,
    pub(super) programs: Vec<ProgramPath>,
}

fn release_path(name: &ArtefactName) -> String {
    format!("usr/lib/extension-release.d/extension-release.{name}")
}

/// As systemd calls it.
fn systemd_name(architecture: Architecture) -> &'static str {
    match architecture {
        Architecture::Amd64 => "x86-64",
        Architecture::Arm64 => "arm64",
    }
}

/// What nodes would refuse, or take and be harmed by, is refused here.
pub(super) fn inspect_image(
    name: &ArtefactName,
    architecture: Architecture,
    image: impl Read + Seek,
) -> anyhow::Result<Extension> {
    let mut image = Image::read(image, &Limits::USUAL).map_err(advise)?;
    for entry in image.entries() {
        let path = entry.path.as_str();
        match path.split('/').next() {
            Some("usr") => {}
            Some("opt") => bail!(
                "it has \"{path}\": an extension with /opt makes /opt read-only on the node; put its files under /usr"
            ),
            _ => bail!("it has \"{path}\": an extension of nodestrap has nothing outside /usr"),
        }
        ensure!(entry.kind != EntryKind::Other, "it has \"{path}\", which is neither a file, a folder nor a link");
        let folder = path.strip_prefix("usr/lib/systemd/system/").and_then(|rest| rest.split('/').next());
        if let Some(unit) = folder.filter(|folder| OUR_UNITS.contains(folder)) {
            bail!("it has \"{path}\": {unit} would change a unit that nodestrap writes; leave it out");
        }
    }
    let path = release_path(name);
    let content = image.content(&path, RELEASE_LIMIT).map_err(advise)?;
    let Some(content) = content else {
        let there: Vec<&str> = image.entries().iter().map(|entry| entry.path.as_str()).collect();
        let other = there.iter().find_map(|path| path.strip_prefix("usr/lib/extension-release.d/extension-release."));
        match other {
            Some(other) => bail!("it is the extension \"{other}\": publish it under that name, or make \"{name}\""),
            None => bail!("it has no \"{path}\", without which systemd takes it for no extension"),
        }
    };
    let text = String::from_utf8_lossy(&content).into_owned();
    let release = release(&parse_os_release(&text), architecture).with_context(|| format!("\"{path}\""))?;
    let is_program = |kind: &EntryKind| matches!(kind, EntryKind::File { mode, .. } if mode & 0o111 != 0);
    let paths = image.entries().iter().filter(|entry| is_program(&entry.kind));
    let programs: Vec<ProgramPath> =
        paths.map(|entry| ProgramPath::new(entry.path.as_str())).collect::<Result<_, _>>()?;
    ensure!(!programs.is_empty(), "there is no program in it");
    Ok(Extension { release, programs })
}

fn advise(error: SquashfsError) -> anyhow::Error {
    let advice = match &error {
        SquashfsError::NotSquashfs { found: Some(_) } | SquashfsError::Compression { .. } => {
            "make it with `mksquashfs … -comp gzip`, or have nodestrap make it: --make-sysext"
        }
        _ => return error.into(),
    };
    anyhow::anyhow!("{error}; {advice}")
}

fn release(found: &OsRelease, architecture: Architecture) -> anyhow::Result<ExtensionRelease> {
    let word = |key: &str| -> anyhow::Result<Option<ReleaseWord>> {
        let text = found.keys.get(key).filter(|text| !text.is_empty());
        text.map(|text| ReleaseWord::new(text.as_str()).with_context(|| key.to_owned())).transpose()
    };
    let Some(id) = word("ID")? else { bail!("has no ID: write ID=flatcar, or ID=_any") };
    let (sysext_level, version_id) = (word("SYSEXT_LEVEL")?, word("VERSION_ID")?);
    ensure!(
        id.as_str() == "_any" || sysext_level.is_some() || version_id.is_some(),
        "has neither SYSEXT_LEVEL nor VERSION_ID, so that systemd takes it nowhere: write SYSEXT_LEVEL=1.0"
    );
    if let Some(scope) = found.keys.get("SYSEXT_SCOPE") {
        let has_system = scope.split_whitespace().any(|word| word == "system");
        ensure!(has_system, "has SYSEXT_SCOPE={scope}, which leaves running systems out");
    }
    let of_image = word("ARCHITECTURE")?.filter(|word| word.as_str() != "_any");
    let wanted = systemd_name(architecture);
    if let Some(other) = of_image.as_ref().filter(|word| word.as_str() != wanted) {
        bail!("says ARCHITECTURE={other}, and it would be published for {architecture}: give --architecture");
    }
    Ok(ExtensionRelease { id, sysext_level, version_id, architecture: of_image })
}

/// An image of all that lies under `usr` of a folder. What it fits is Flatcar, unless a release file of its own says otherwise.
pub(super) fn make_image(name: &ArtefactName, architecture: Architecture, folder: &Path) -> anyhow::Result<Vec<u8>> {
    let usr = folder.join("usr");
    let shown = folder.display();
    ensure!(
        usr.is_dir(),
        "{shown:?} has no folder \"usr\": what is in it goes into the image, such as usr/bin/kubelet"
    );
    let mut files = Vec::new();
    collect(&usr, "usr", &mut files)?;
    let path = release_path(name);
    if !files.iter().any(|file| file.path == path) {
        let text = format!("{FLATCAR}ARCHITECTURE={}\n", systemd_name(architecture)).into_bytes();
        let (mode, size) = (0o644, text.len() as u64);
        let content = ImageContent::File { mode, size, reader: Box::new(Cursor::new(text)) };
        files.push(ImageFile { path, content });
    }
    let mut image = Cursor::new(Vec::new());
    write(files, &mut image).with_context(|| format!("cannot make an image of {shown:?}"))?;
    Ok(image.into_inner())
}

/// Modes become 0755 and 0644, as of what is unpacked: who owns the files here says nothing about a node.
fn collect(folder: &Path, path: &str, files: &mut Vec<ImageFile<'static>>) -> anyhow::Result<()> {
    let shown = |path: &Path| format!("cannot read {:?}", path.display().to_string());
    for entry in std::fs::read_dir(folder).with_context(|| shown(folder))? {
        let entry = entry.with_context(|| shown(folder))?;
        let name = entry.file_name().into_string();
        let name = name.map_err(|name| anyhow::anyhow!("{name:?} in {path:?} is no text: rename it"))?;
        let (place, path) = (entry.path(), format!("{path}/{name}"));
        let kind = entry.metadata().with_context(|| shown(&place))?;
        let content = if kind.is_dir() {
            collect(&place, &path, files)?;
            continue;
        } else if kind.is_symlink() {
            let target = std::fs::read_link(&place).with_context(|| shown(&place))?;
            ImageContent::Link { target: target.display().to_string() }
        } else if kind.is_file() {
            let mode = std::os::unix::fs::PermissionsExt::mode(&kind.permissions());
            let mode = if mode & 0o100 == 0 { 0o644 } else { 0o755 };
            let reader = std::fs::File::open(&place).with_context(|| shown(&place))?;
            ImageContent::File { mode, size: kind.len(), reader: Box::new(reader) }
        } else {
            bail!("{path:?} is neither a file, a folder nor a link");
        };
        files.push(ImageFile { path, content });
    }
    Ok(())
}
