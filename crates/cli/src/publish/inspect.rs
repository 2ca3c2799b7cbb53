//! What a file is that shall be published: proved by the same code that unpacks it on a node, so that what a node would refuse
//! is never published.

use std::io::{Read, Write};
use std::path::Path;

use anyhow::Context as _;
use fetch::unpack::{EntryKind, Form as Unpacked, Limits, Listing, unpack};
use host::disk::{DiskError, Folder};
use trust::{Architecture, ArtefactName, ExtensionRelease, Form, ProgramPath};

use crate::publish::extension::inspect_image;
use crate::publish::target::Known;

const GZIP: [u8; 2] = [0x1f, 0x8b];
/// How an executable begins: nothing else is one on Linux, but for scripts.
const PROGRAMS: [&[u8]; 2] = [b"\x7fELF", b"#!"];
/// What images of system extensions are called.
const IMAGE: &str = "raw";

pub(super) struct Inspected {
    pub(super) known: Known,
    pub(super) form: Form,
    pub(super) programs: Vec<ProgramPath>,
    pub(super) extension: Option<ExtensionRelease>,
}

/// An image that was made here, and is judged as any other.
pub(super) fn inspect_made(name: &ArtefactName, architecture: Architecture, image: &[u8]) -> anyhow::Result<Inspected> {
    let extension = inspect_image(name, architecture, std::io::Cursor::new(image))?;
    Ok(Inspected {
        known: Known::of(image),
        form: Form::Sysext,
        programs: extension.programs,
        extension: Some(extension.release),
    })
}

/// Reads the file twice: once for its digest, once as a node would unpack it.
pub(super) fn inspect(name: &ArtefactName, architecture: Architecture, file: &Path) -> anyhow::Result<Inspected> {
    let open = || std::fs::File::open(file).with_context(|| format!("cannot read {:?}", file.display().to_string()));
    let known = Known::read(&mut open()?)?;
    anyhow::ensure!(known.size > 0, "{:?} is empty", file.display().to_string());
    let mut start = Vec::new();
    open()?.take(4).read_to_end(&mut start)?;
    let form = match () {
        () if start.starts_with(&GZIP) => Form::TarGz,
        () if start == b"hsqs" || is_image(file) && !PROGRAMS.iter().any(|magic| start.starts_with(magic)) => {
            let extension = inspect_image(name, architecture, open()?)
                .with_context(|| format!("{:?} cannot be an extension", file.display().to_string()))?;
            let (programs, extension) = (extension.programs, Some(extension.release));
            return Ok(Inspected { known, form: Form::Sysext, programs, extension });
        }
        () => Form::Program,
    };
    let unpacked = match form {
        Form::TarGz => Unpacked::TarGz,
        Form::Program | Form::Sysext => Unpacked::Program { name: name.as_str() },
    };
    let listing = unpack(&mut open()?, unpacked, &Nowhere, &Limits::USUAL)
        .with_context(|| format!("a node would refuse {:?}", file.display().to_string()))?;
    let programs = programs(&listing)?;
    anyhow::ensure!(!programs.is_empty(), "there is no program in {:?}", file.display().to_string());
    Ok(Inspected { known, form, programs, extension: None })
}

fn is_image(file: &Path) -> bool {
    file.extension().is_some_and(|ending| ending == IMAGE)
}

/// All files that can be executed.
fn programs(listing: &Listing) -> anyhow::Result<Vec<ProgramPath>> {
    let is_program = |kind: &EntryKind| matches!(kind, EntryKind::File { mode, .. } if mode & 0o111 != 0);
    let paths = listing.entries.iter().filter(|entry| is_program(&entry.kind));
    Ok(paths.map(|entry| ProgramPath::new(entry.path.as_str())).collect::<Result<_, _>>()?)
}

/// Takes everything and keeps nothing: what an archive holds is known without writing it.
struct Nowhere;

impl Folder for Nowhere {
    fn make_folder(&self, _: &Path, _: u32) -> Result<(), DiskError> {
        Ok(())
    }

    fn create(&self, _: &Path, _: u32) -> Result<Box<dyn Write + Send>, DiskError> {
        Ok(Box::new(std::io::sink()))
    }

    fn symlink(&self, _: &str, _: &Path) -> Result<(), DiskError> {
        Ok(())
    }

    fn hard_link(&self, _: &Path, _: &Path) -> Result<(), DiskError> {
        Ok(())
    }
}
