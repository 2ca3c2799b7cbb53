//! Reads spec files and what they refer to; prints all mistakes at once.

use std::path::{Path, PathBuf};

use host::machine::LinuxClock;
use spec::{Colour, CompleteSpec, FileReference, Mistake, Source, Timestamp, complete, parse, render_mistakes};

use crate::outcome::{Code, Failure, OrFail};
use crate::show::Screen;

/// Referred files hold a token, a certificate or, the largest, a manifest of artefacts; specs are checked by the parser.
const FILE_LIMIT: u64 = 4 * 1024 * 1024;

/// From files on disk to a spec with every decision made, or all mistakes on standard error.
pub(crate) fn load_complete(files: &[PathBuf], screen: &Screen) -> Result<CompleteSpec, Failure> {
    complete_sources(&load_sources(files, screen)?, screen)
}

/// The same for text that is at hand already.
pub(crate) fn complete_sources(sources: &[Source], screen: &Screen) -> Result<CompleteSpec, Failure> {
    // By the clock of whoever authors: a manifest that has expired is refused here, where somebody can publish a new one.
    let now = Timestamp::from_seconds(LinuxClock::new().now_ms() / 1000);
    let resolved = parse(sources).resolve(read_reference);
    resolved.and_then(|spec| complete(&spec.at(now))).map_err(|mistakes| report(&mistakes, screen))
}

/// The same before the keys are made that it names; `stand_in` gives a file that it refers to and that cannot be read, or
/// the reason back.
pub(crate) fn complete_before_pki(
    sources: &[Source],
    stand_in: impl Fn(&Path, String) -> Result<Vec<u8>, String>,
    screen: &Screen,
) -> Result<CompleteSpec, Failure> {
    let resolved = parse(sources)
        .resolve(|reference| read_reference(reference).or_else(|reason| stand_in(Path::new(&reference.path), reason)));
    resolved.and_then(|spec| spec::complete_before_pki(&spec)).map_err(|mistakes| report(&mistakes, screen))
}

pub(crate) fn load_sources(files: &[PathBuf], screen: &Screen) -> Result<Vec<Source>, Failure> {
    files.iter().map(|file| load_source(file, screen)).collect()
}

fn load_source(file: &Path, screen: &Screen) -> Result<Source, Failure> {
    let name = file.display().to_string();
    let bytes = read_limited(file).map_err(|reason| Failure {
        code: Code::WrongInput,
        error: anyhow::anyhow!("cannot read {name:?}: {reason}"),
    })?;
    Source::from_bytes(name, bytes).map_err(|mistake| report(&[mistake], screen))
}

/// A path in a spec is relative to that spec.
fn read_reference(reference: &FileReference) -> Result<Vec<u8>, String> {
    let beside = Path::new(&reference.position.file).parent().unwrap_or(Path::new("."));
    read_found(&beside.join(&reference.path))
}

/// Of something that nobody named on the command line: a pipe would be waited for for ever.
pub(crate) fn read_found(path: &Path) -> Result<Vec<u8>, String> {
    if std::fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        return Err("it is not a file".to_owned());
    }
    read_limited(path)
}

pub(crate) fn read_limited(path: &Path) -> Result<Vec<u8>, String> {
    use std::io::Read as _;
    let mut bytes = Vec::new();
    let mut file = std::fs::File::open(path).map_err(|error| error.to_string())?;
    // One byte more than allowed tells "too large" from "just fits".
    file.by_ref().take(FILE_LIMIT + 1).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    if bytes.len() as u64 > FILE_LIMIT {
        return Err(format!("larger than {FILE_LIMIT} bytes"));
    }
    Ok(bytes)
}

/// On standard error; nothing if there are none.
pub(crate) fn show_mistakes(mistakes: &[Mistake], screen: &Screen) {
    let colour = if screen.colour_err() { Colour::Ansi } else { Colour::Plain };
    if !mistakes.is_empty() {
        screen.remark(&render_mistakes(mistakes, colour));
    }
}

fn report(mistakes: &[Mistake], screen: &Screen) -> Failure {
    show_mistakes(mistakes, screen);
    Failure { code: Code::WrongInput, error: anyhow::anyhow!("this spec cannot be used; nothing was done") }
}

/// The group that the user names, or the only one there is.
pub(crate) fn choose_group(spec: &CompleteSpec, named: Option<&str>) -> Result<String, Failure> {
    if let Some(name) = named {
        return Ok(name.to_owned());
    }
    match spec.groups.as_slice() {
        [only] => Ok(only.name.value.to_string()),
        groups => {
            let names: Vec<String> = groups.iter().map(|group| group.name.value.to_string()).collect();
            Err(anyhow::anyhow!("there are several node groups; name one with --group: {}", names.join(", ")))
                .or_fail(Code::WrongInput)
        }
    }
}
