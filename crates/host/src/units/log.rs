//! What a unit wrote last, from the files of systemd-journald.
//!
//! In: one invocation of a unit. Out: its last lines, oldest first, fit to be shown. Best effort: a file that is damaged,
//! foreign or just being written gives fewer lines, never an error. Read directly, because the node runs no commands;
//! reference: `JOURNAL_FILE_FORMAT` of systemd. Compressed fields, which only very long lines are, are not unpacked.
#![allow(clippy::disallowed_methods, reason = "this is where the journal of the machine is read")]

use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

/// Where journald keeps the logs of this boot only, and of all boots.
pub(super) const JOURNAL_FOLDERS: [&str; 2] = ["/run/log/journal", "/var/log/journal"];
/// Enough to say why something failed; the rest is for `journalctl`.
pub(super) const LINES_SHOWN: usize = 5;
const CHARACTERS_SHOWN: usize = 200;

const SIGNATURE: &[u8] = b"LPKSHHRH";
/// An incompatible flag of the header: offsets are 32 bits wide.
const COMPACT: u32 = 1 << 4;
const DATA: u8 = 1;
const ENTRY: u8 = 3;
const ENTRY_ARRAY: u8 = 6;
/// Header of each object: type, flags, size.
const OBJECT_HEADER: u64 = 16;
const ENTRY_HEADER: u64 = 64;
const ARRAY_HEADER: u64 = 24;
/// A journal file holds at most some hundred thousand; more means that we follow garbage.
const OBJECTS_LIMIT: usize = 4_000_000;
/// Each array is larger than the one before.
const ARRAYS_LIMIT: usize = 64;
/// No entry has this many fields; a larger object is garbage.
const OBJECT_LIMIT: u64 = 1024 * 1024;

/// The last lines of one invocation (32 hexadecimal digits).
pub(super) fn last_lines(folders: &[impl AsRef<Path>], invocation: &str) -> Vec<String> {
    let files = folders.iter().flat_map(|folder| list(folder.as_ref())).flat_map(|machine| list(&machine));
    // Files of the past have an `@` in their names.
    let live = files.filter(|path| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.ends_with(".journal") && !name.contains('@')
    });
    let found = live.filter_map(|path| Journal::open(&path)?.lines_of(invocation));
    found.max_by_key(Vec::len).unwrap_or_default()
}

fn list(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

struct Journal {
    file: File,
    is_compact: bool,
    first_object: u64,
    last_object: u64,
}

struct Object {
    at: u64,
    kind: u8,
    flags: u8,
    size: u64,
}

impl Journal {
    fn open(path: &Path) -> Option<Self> {
        let file = File::open(path).ok()?;
        let mut header = [0; 144];
        file.read_exact_at(&mut header, 0).ok()?;
        let (is_ours, flags) = (header.starts_with(SIGNATURE), u32::from_le_bytes(header[12..16].try_into().ok()?));
        let (first_object, last_object) = (number(&header[88..96])?, number(&header[136..144])?);
        is_ours.then_some(Self { file, is_compact: flags & COMPACT != 0, first_object, last_object })
    }

    fn lines_of(&self, invocation: &str) -> Option<Vec<String>> {
        let field = self.find_data(format!("_SYSTEMD_INVOCATION_ID={invocation}").as_bytes())?;
        let entries = self.entries_of(&field)?;
        Some(entries.into_iter().filter_map(|entry| self.message(entry)).collect())
    }

    /// Objects lie one behind the other, at multiples of eight.
    fn find_data(&self, payload: &[u8]) -> Option<Object> {
        let size = self.data_header() + payload.len() as u64;
        let mut at = self.first_object;
        for _ in 0..OBJECTS_LIMIT {
            if at == 0 || at > self.last_object {
                return None;
            }
            let object = self.object(at)?;
            if object.kind == DATA && object.size == size && self.payload(&object)? == payload {
                return Some(object);
            }
            at = at.checked_add(object.size)?.checked_next_multiple_of(8)?;
        }
        None
    }

    /// Where the last entries lie that have this field. The first one stands in the field itself, the others in a chain
    /// of arrays.
    fn entries_of(&self, field: &Object) -> Option<VecDeque<u64>> {
        let head = self.read(field.at + 40, 24)?;
        let (first, mut array) = (number(&head[..8])?, number(&head[8..16])?);
        let mut left = number(&head[16..24])?.saturating_sub(1);
        let mut entries = VecDeque::from([first]);
        for _ in 0..ARRAYS_LIMIT {
            if array == 0 || left == 0 {
                break;
            }
            let object =
                self.object(array).filter(|object| object.kind == ENTRY_ARRAY && object.size <= OBJECT_LIMIT)?;
            let bytes = self.read(array + ARRAY_HEADER, object.size.checked_sub(ARRAY_HEADER)?)?;
            let width = if self.is_compact { 4 } else { 8 };
            for entry in bytes.chunks_exact(width).filter_map(number).take(left.try_into().ok()?) {
                entries.push_back(entry);
                left -= 1;
                if entries.len() > LINES_SHOWN {
                    entries.pop_front();
                }
            }
            array = number(&self.read(array + OBJECT_HEADER, 8)?)?;
        }
        Some(entries)
    }

    /// `None` for what is no entry; a line that cannot be read is told of.
    fn message(&self, entry: u64) -> Option<String> {
        let object = self.object(entry).filter(|object| object.kind == ENTRY && object.size <= OBJECT_LIMIT)?;
        let bytes = self.read(entry + ENTRY_HEADER, object.size.checked_sub(ENTRY_HEADER)?)?;
        let width = if self.is_compact { 4 } else { 16 };
        for field in bytes.chunks_exact(width).filter_map(|item| number(&item[..width.min(8)])) {
            let Some(data) = self.object(field).filter(|object| object.kind == DATA && object.flags == 0) else {
                continue;
            };
            let payload = self.payload(&data)?;
            if let Some(line) = payload.strip_prefix(b"MESSAGE=") {
                return Some(shown(&String::from_utf8_lossy(line)));
            }
        }
        Some("(a line too long to be shown here)".to_owned())
    }

    fn object(&self, at: u64) -> Option<Object> {
        let header = self.read(at, OBJECT_HEADER)?;
        let object = Object { at, kind: header[0], flags: header[1], size: number(&header[8..16])? };
        (object.size >= OBJECT_HEADER).then_some(object)
    }

    fn payload(&self, data: &Object) -> Option<Vec<u8>> {
        let length = data.size.checked_sub(self.data_header())?;
        self.read(data.at.checked_add(self.data_header())?, length.min(64 * 1024))
    }

    fn data_header(&self) -> u64 {
        if self.is_compact { 72 } else { 64 }
    }

    fn read(&self, at: u64, length: u64) -> Option<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(length.min(OBJECT_LIMIT)).ok()?];
        self.file.read_exact_at(&mut bytes, at).ok()?;
        Some(bytes)
    }
}

/// Little-endian, of four or eight bytes.
fn number(bytes: &[u8]) -> Option<u64> {
    match bytes.len() {
        4 => Some(u64::from(u32::from_le_bytes(bytes.try_into().ok()?))),
        _ => Some(u64::from_le_bytes(bytes.try_into().ok()?)),
    }
}

/// One line without what could steer a terminal.
fn shown(line: &str) -> String {
    let line = line.trim_end();
    let more = if line.chars().count() > CHARACTERS_SHOWN { "…" } else { "" };
    let kept = line.chars().take(CHARACTERS_SHOWN).map(|c| if c.is_control() { ' ' } else { c });
    kept.collect::<String>() + more
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0123456789abcdef0123456789abcdef";

    /// Writes journal files as journald does, as far as the reader looks.
    struct Writer {
        bytes: Vec<u8>,
        is_compact: bool,
        last: u64,
    }

    impl Writer {
        fn new(is_compact: bool) -> Self {
            let mut bytes = vec![0; 272];
            bytes[..8].copy_from_slice(SIGNATURE);
            bytes[12..16].copy_from_slice(&(if is_compact { COMPACT | 12 } else { 4 }).to_le_bytes());
            bytes[88..96].copy_from_slice(&272_u64.to_le_bytes());
            Self { bytes, is_compact, last: 0 }
        }

        fn object(&mut self, kind: u8, flags: u8, body: &[u8]) -> u64 {
            self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
            let at = self.bytes.len() as u64;
            self.bytes.extend([kind, flags, 0, 0, 0, 0, 0, 0]);
            self.bytes.extend((OBJECT_HEADER + body.len() as u64).to_le_bytes());
            self.bytes.extend(body);
            self.last = at;
            at
        }

        fn data(&mut self, flags: u8, payload: &[u8]) -> u64 {
            let header = vec![0; if self.is_compact { 56 } else { 48 }];
            self.object(DATA, flags, &[&header, payload].concat())
        }

        fn entry(&mut self, fields: &[u64]) -> u64 {
            let mut body = vec![0; 48];
            for field in fields {
                match self.is_compact {
                    true => body.extend((*field as u32).to_le_bytes()),
                    false => body.extend([field.to_le_bytes(), [7; 8]].concat()),
                }
            }
            self.object(ENTRY, 0, &body)
        }

        fn array(&mut self, entries: &[u64]) -> u64 {
            let mut body = vec![0; 8];
            for entry in entries {
                match self.is_compact {
                    true => body.extend((*entry as u32).to_le_bytes()),
                    false => body.extend(entry.to_le_bytes()),
                }
            }
            self.object(ENTRY_ARRAY, 0, &body)
        }

        fn put(&mut self, at: u64, value: u64) {
            self.bytes[at as usize..at as usize + 8].copy_from_slice(&value.to_le_bytes());
        }

        /// These lines of our unit, among those of another one.
        fn with_lines(is_compact: bool, lines: &[(u8, &str)]) -> Vec<u8> {
            let mut writer = Self::new(is_compact);
            let other = writer.data(0, format!("_SYSTEMD_INVOCATION_ID={}", ID.replace('0', "f")).as_bytes());
            let ours = writer.data(0, format!("_SYSTEMD_INVOCATION_ID={ID}").as_bytes());
            let mut entries = Vec::new();
            for (flags, line) in lines {
                let noise = writer.data(0, b"MESSAGE=noise");
                writer.entry(&[noise, other]);
                let message = writer.data(*flags, format!("MESSAGE={line}").as_bytes());
                entries.push(writer.entry(&[ours, message]));
            }
            // As journald does: the first array is small, and unused places are zero.
            let (first, rest) = entries.split_first().unwrap();
            let (early, late) = rest.split_at(rest.len().min(2));
            let head = writer.array(early);
            let tail = writer.array(&[late, &[0, 0]].concat());
            writer.put(head + OBJECT_HEADER, tail);
            writer.put(ours + 40, *first);
            writer.put(ours + 48, head);
            writer.put(ours + 56, entries.len() as u64);
            let last = writer.last;
            writer.put(136, last);
            writer.bytes
        }
    }

    fn read(bytes: &[u8]) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        let machine = folder.path().join("machine");
        std::fs::create_dir(&machine).unwrap();
        std::fs::write(machine.join("system.journal"), bytes).unwrap();
        std::fs::write(machine.join("system@old.journal"), b"not looked at").unwrap();
        last_lines(&[folder.path()], ID)
    }

    #[test]
    fn gives_the_last_lines_of_one_invocation_in_both_widths() {
        for is_compact in [false, true] {
            let lines =
                [(0, "one"), (0, "two"), (0, "three"), (0, "four\u{1b}[31m"), (4, "packed"), (0, "six"), (0, "7")];
            let expected = ["three", "four [31m", "(a line too long to be shown here)", "six", "7"];
            assert_eq!(read(&Writer::with_lines(is_compact, &lines)), expected, "{is_compact}");
            assert_eq!(read(&Writer::with_lines(is_compact, &[(0, "alone")])), ["alone"]);
            let long = "x".repeat(300);
            let shown = read(&Writer::with_lines(is_compact, &[(0, &long)]));
            assert_eq!(shown, [format!("{}…", "x".repeat(CHARACTERS_SHOWN))]);
        }
    }

    #[test]
    fn a_damaged_file_gives_fewer_lines_and_nothing_worse() {
        let whole = Writer::with_lines(true, &[(0, "one"), (0, "two"), (0, "three")]);
        for length in (0..whole.len()).step_by(7) {
            read(&whole[..length]);
        }
        for at in (0..whole.len()).step_by(8) {
            for value in [0, 1, 0xff] {
                let mut damaged = whole.clone();
                damaged[at..whole.len().min(at + 5)].fill(value);
                read(&damaged);
            }
        }
    }

    #[test]
    fn without_a_journal_there_are_no_lines() {
        assert!(last_lines(&["/nonexistent"], ID).is_empty());
    }
}
