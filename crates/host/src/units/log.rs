//! What a unit wrote last, from the files of systemd-journald.
//!
//! In: one run of a unit. Out: its last lines, oldest first. Best effort: a file that is damaged,
//! foreign or just being written gives fewer lines, never an error. Read directly, because the node runs no commands;
//! reference: `JOURNAL_FILE_FORMAT` of systemd. Compressed fields, which only very long lines are, are not unpacked.
//!
//! Lines are found by unit and time. What journald knows of a process it reads from `/proc` and from files of systemd when it
//! comes to a line: of one that has ended by then it has the name of the unit, which came with the connection, but not the
//! invocation.
//!
//! journald moves what it has written: a rotation renames a file and begins another, a flush copies those of `/run` to
//! `/var` and removes them. So lines are gathered from all files of this boot, those of the past too, and a file that
//! was renamed while we looked is found under its new name.
#![allow(clippy::disallowed_methods, reason = "this is where the journal of the machine is read")]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use data_encoding::HEXLOWER;

/// Where journald keeps the logs of this boot only, and of all boots. In this order: a flush fills the second before it
/// empties the first.
pub(super) const JOURNAL_FOLDERS: [&str; 2] = ["/run/log/journal", "/var/log/journal"];
/// Enough to say why something failed; the rest is for `journalctl`.
const LINES_SHOWN: usize = 5;
const CHARACTERS_SHOWN: usize = 200;

const SIGNATURE: &[u8] = b"LPKSHHRH";
/// As long as the header was in the first release.
const FILE_HEADER: usize = 208;
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
/// One listing finds the files and one more that there are no others; journald does not rotate faster than we list.
const LISTINGS_LIMIT: usize = 16;

/// One run of a unit.
pub(super) struct Run {
    pub(super) unit: String,
    /// 32 hexadecimal digits. A line that has another one is of another run.
    pub(super) invocation: String,
    /// The boot that it is of.
    pub(super) boot: [u8; 16],
    /// A moment before it began, in microseconds of the monotonic clock. A file that ended before, or in another boot, is not read: a
    /// machine may have gigabytes of them.
    pub(super) since: u64,
}

/// A line, and where it belongs.
struct Line {
    monotonic: u64,
    /// Within one file, and over a rotation, in the order in which lines came; a flush counts anew.
    sequence: u64,
    identity: Identity,
    text: String,
}

/// The same in each file that has a copy of the entry: its times, a hash of its fields, and for those that are alike in
/// all that (a line said twice in a microsecond) how many of them came before in the same file.
type Identity = (u64, u64, u64, usize);

/// Of all files together.
pub(super) fn last_lines(folders: &[impl AsRef<Path>], run: &Run) -> Vec<String> {
    merge(open_all(folders, run), run)
}

fn merge(journals: Vec<Journal>, run: &Run) -> Vec<String> {
    let mut lines: Vec<Line> = Vec::new();
    let mut known = BTreeSet::new();
    for journal in journals {
        let found = journal.lines_of(run).unwrap_or_default();
        lines.extend(found.into_iter().filter(|line| known.insert(line.identity)));
    }
    // All are of one boot. The other clock may be set while a machine boots.
    lines.sort_by_key(|line| (line.monotonic, line.sequence));
    let passed_over = lines.len().saturating_sub(LINES_SHOWN);
    lines.into_iter().skip(passed_over).map(|line| line.text).collect()
}

/// Of the boot that is under way.
pub(super) fn boot_id() -> Option<[u8; 16]> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    HEXLOWER.decode(text.trim().replace('-', "").as_bytes()).ok()?.try_into().ok()
}

/// The last of these lines, as one; nothing if there are none.
pub fn quote_last_lines<'a>(words: &str, lines: impl DoubleEndedIterator<Item = &'a str>) -> Option<String> {
    let mut quoted: Vec<String> = lines.rev().take(LINES_SHOWN).map(|line| format!("{:?}", shown(line))).collect();
    quoted.reverse();
    (!quoted.is_empty()).then(|| format!("{words}: {}", quoted.join(", ")))
}

/// What is open stays whole, whatever happens to its name. So files are listed until a listing has nothing new: what was
/// renamed or removed between listing and opening has then been found where it is now.
fn open_all(folders: &[impl AsRef<Path>], run: &Run) -> Vec<Journal> {
    let mut opened = Opened::default();
    for _ in 0..LISTINGS_LIMIT {
        if opened.add(&list_journals(folders), run) == News::None {
            break;
        }
    }
    opened.journals
}

#[derive(Default)]
struct Opened {
    seen: BTreeSet<(u64, u64)>,
    journals: Vec<Journal>,
}

#[derive(PartialEq, Debug)]
enum News {
    Some,
    None,
}

impl Opened {
    fn add(&mut self, paths: &[PathBuf], run: &Run) -> News {
        let mut news = News::None;
        for path in paths {
            match File::open(path).and_then(|file| Ok((file.metadata()?, file))) {
                Ok((found, file)) if self.seen.insert((found.dev(), found.ino())) => {
                    news = News::Some;
                    self.journals.extend(Journal::read(file).filter(|journal| journal.may_know(run)));
                }
                Err(error) if error.kind() == ErrorKind::NotFound => news = News::Some,
                Ok(_) | Err(_) => {}
            }
        }
        news
    }
}

fn list_journals(folders: &[impl AsRef<Path>]) -> Vec<PathBuf> {
    let machines = folders.iter().flat_map(|folder| list(folder.as_ref()));
    machines.flat_map(|machine| list(&machine)).filter(|path| is_journal(path)).collect()
}

/// Files of the past have an `@` in their names, and a `~` at the end if journald could not close them.
fn is_journal(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.ends_with(".journal") || name.ends_with(".journal~")
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
    /// Of the last entry, or of whoever wrote last.
    boot: [u8; 16],
    /// Of the last entry.
    monotonic: u64,
}

struct Object {
    at: u64,
    kind: u8,
    flags: u8,
    size: u64,
}

impl Journal {
    fn read(file: File) -> Option<Self> {
        let mut header = [0; FILE_HEADER];
        file.read_exact_at(&mut header, 0).ok()?;
        let flags = u32::from_le_bytes(header[12..16].try_into().ok()?);
        header.starts_with(SIGNATURE).then_some(Self {
            file,
            is_compact: flags & COMPACT != 0,
            first_object: number(&header[88..96])?,
            last_object: number(&header[136..144])?,
            boot: header[56..72].try_into().ok()?,
            monotonic: number(&header[200..208])?,
        })
    }

    fn may_know(&self, run: &Run) -> bool {
        self.boot == run.boot && self.monotonic >= run.since
    }

    fn lines_of(&self, run: &Run) -> Option<Vec<Line>> {
        let field = self.find_data(format!("_SYSTEMD_UNIT={}", run.unit).as_bytes())?;
        let mut alike = BTreeMap::new();
        let mut lines = Vec::new();
        for mut line in self.entries_of(&field)?.into_iter().filter_map(|entry| self.line(entry, run)) {
            let before: &mut usize = alike.entry(line.identity).or_default();
            line.identity.3 = *before;
            *before += 1;
            lines.push(line);
        }
        Some(lines)
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
        let head = self.read_at(field.at + 40, 24)?;
        let (first, mut array) = (number(&head[..8])?, number(&head[8..16])?);
        let mut left = number(&head[16..24])?.saturating_sub(1);
        let mut entries = VecDeque::from([first]);
        for _ in 0..ARRAYS_LIMIT {
            if array == 0 || left == 0 {
                break;
            }
            let object =
                self.object(array).filter(|object| object.kind == ENTRY_ARRAY && object.size <= OBJECT_LIMIT)?;
            let bytes = self.read_at(array + ARRAY_HEADER, object.size.checked_sub(ARRAY_HEADER)?)?;
            let width = if self.is_compact { 4 } else { 8 };
            for entry in bytes.chunks_exact(width).filter_map(number).take(left.try_into().ok()?) {
                entries.push_back(entry);
                left -= 1;
                if entries.len() > LINES_SHOWN {
                    entries.pop_front();
                }
            }
            array = number(&self.read_at(array + OBJECT_HEADER, 8)?)?;
        }
        Some(entries)
    }

    /// `None` for what is no entry, or of another run; a line that cannot be read is told of.
    fn line(&self, entry: u64, run: &Run) -> Option<Line> {
        let object = self.object(entry).filter(|object| object.kind == ENTRY && object.size <= OBJECT_LIMIT)?;
        let bytes = self.read_at(entry, object.size)?;
        let (header, items) = bytes.split_at_checked(usize::try_from(ENTRY_HEADER).ok()?)?;
        let (sequence, realtime) = (number(&header[16..24])?, number(&header[24..32])?);
        let (monotonic, hash) = (number(&header[32..40])?, number(&header[56..64])?);
        let fields = self.fields(items);
        let value = |name: &[u8]| fields.iter().find_map(|field| field.strip_prefix(name));
        let is_other = value(b"_SYSTEMD_INVOCATION_ID=").is_some_and(|id| id != run.invocation.as_bytes());
        if header[40..56] != run.boot || monotonic < run.since || is_other {
            return None;
        }
        let text = value(b"MESSAGE=").map_or("(a line too long to be shown here)".into(), String::from_utf8_lossy);
        Some(Line { monotonic, sequence, identity: (monotonic, realtime, hash, 0), text: text.into_owned() })
    }

    /// Those that can be read.
    fn fields(&self, items: &[u8]) -> Vec<Vec<u8>> {
        let width = if self.is_compact { 4 } else { 16 };
        let places = items.chunks_exact(width).filter_map(|item| number(&item[..width.min(8)]));
        let data = places.filter_map(|at| self.object(at).filter(|data| data.kind == DATA && data.flags == 0));
        data.filter_map(|data| self.payload(&data)).collect()
    }

    fn object(&self, at: u64) -> Option<Object> {
        let header = self.read_at(at, OBJECT_HEADER)?;
        let object = Object { at, kind: header[0], flags: header[1], size: number(&header[8..16])? };
        (object.size >= OBJECT_HEADER).then_some(object)
    }

    fn payload(&self, data: &Object) -> Option<Vec<u8>> {
        let length = data.size.checked_sub(self.data_header())?;
        self.read_at(data.at.checked_add(self.data_header())?, length.min(64 * 1024))
    }

    fn data_header(&self) -> u64 {
        if self.is_compact { 72 } else { 64 }
    }

    fn read_at(&self, at: u64, length: u64) -> Option<Vec<u8>> {
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
    const BOOT: [u8; 16] = [3; 16];

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

        fn entry(&mut self, sequence: u64, microsecond: u64, hash: u64, fields: &[u64]) -> u64 {
            let realtime = microsecond + 1_000_000;
            let boot = u64::from_le_bytes([BOOT[0]; 8]);
            let numbers = [sequence, realtime, microsecond, boot, boot, hash];
            let mut body: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
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

        /// These lines of our unit, said one microsecond after the other, among those of another one.
        fn with_lines(is_compact: bool, lines: &[(u8, &str)]) -> Vec<u8> {
            let timed: Vec<_> = (1..).zip(lines).map(|(time, (flags, line))| (time, *flags, *line)).collect();
            Self::with_times(is_compact, 1, &timed)
        }

        /// Numbered from `sequence` on.
        fn with_times(is_compact: bool, sequence: u64, lines: &[(u64, u8, &str)]) -> Vec<u8> {
            let mut writer = Self::new(is_compact);
            let other = writer.data(0, b"_SYSTEMD_UNIT=other.service");
            let ours = writer.data(0, b"_SYSTEMD_UNIT=unit.service");
            let invocation = writer.data(0, format!("_SYSTEMD_INVOCATION_ID={ID}").as_bytes());
            let mut entries = Vec::new();
            for (sequence, (time, flags, line)) in (sequence..).step_by(2).zip(lines) {
                let noise = writer.data(0, b"MESSAGE=noise");
                writer.entry(sequence, *time, 1, &[noise, other]);
                let message = writer.data(*flags, format!("MESSAGE={line}").as_bytes());
                let hash = line.bytes().map(u64::from).sum();
                // Each second one was read when its process had ended.
                let fields = [ours, message, invocation];
                entries.push(writer.entry(sequence + 1, *time, hash, &fields[..2 + entries.len() % 2]));
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
            writer.bytes[56..72].copy_from_slice(&BOOT);
            writer.put(200, lines.last().unwrap().0);
            writer.bytes
        }
    }

    /// What journald keeps in `/run` and in `/var`.
    struct Machine(tempfile::TempDir);

    impl Machine {
        fn new(files: &[(&str, &[u8])]) -> Self {
            let machine = Self(tempfile::tempdir().unwrap());
            machine.folders().iter().for_each(|folder| std::fs::create_dir_all(folder.join("machine")).unwrap());
            files.iter().for_each(|(name, bytes)| std::fs::write(machine.path(name), bytes).unwrap());
            machine
        }

        fn folders(&self) -> [PathBuf; 2] {
            ["run", "var"].map(|name| self.0.path().join(name))
        }

        fn path(&self, name: &str) -> PathBuf {
            let (folder, name) = name.split_once('/').unwrap();
            self.0.path().join(folder).join("machine").join(name)
        }

        fn lines(&self) -> Vec<String> {
            last_lines(&self.folders(), &run())
        }
    }

    fn run() -> Run {
        Run { unit: "unit.service".to_owned(), invocation: ID.to_owned(), boot: BOOT, since: 1 }
    }

    fn read(bytes: &[u8]) -> Vec<String> {
        Machine::new(&[("var/system.journal", bytes), ("var/other.txt", b"not looked at")]).lines()
    }

    #[test]
    fn gives_the_last_lines_of_one_invocation_in_both_widths() {
        for is_compact in [false, true] {
            let lines =
                [(0, "one"), (0, "two"), (0, "three"), (0, "four\u{1b}[31m"), (4, "packed"), (0, "six"), (0, "7")];
            let expected = ["three", "four\u{1b}[31m", "(a line too long to be shown here)", "six", "7"];
            assert_eq!(read(&Writer::with_lines(is_compact, &lines)), expected, "{is_compact}");
            assert_eq!(read(&Writer::with_lines(is_compact, &[(0, "alone")])), ["alone"]);
        }
    }

    #[test]
    fn lines_are_quoted_without_what_steers_a_terminal_and_cut_where_they_are_long() {
        let lines = ["1", "2", "three", "four\u{1b}[31m", "five \t", "six", &"x".repeat(300)];
        let long = "x".repeat(CHARACTERS_SHOWN);
        let expected = format!("its words: \"three\", \"four [31m\", \"five\", \"six\", \"{long}…\"");
        assert_eq!(quote_last_lines("its words", lines.into_iter()), Some(expected));
        assert_eq!(quote_last_lines("its words", [].into_iter()), None);
    }

    #[test]
    fn what_was_said_before_a_rotation_is_found_and_comes_first() {
        let before = Writer::with_times(true, 1, &[(1, 0, "one"), (2, 0, "two"), (3, 0, "three"), (3, 0, "four")]);
        let after = Writer::with_times(false, 9, &[(3, 0, "five"), (4, 0, "six")]);
        let rotated = Machine::new(&[("var/system@1-2.journal", &before), ("var/system.journal", &after)]);
        assert_eq!(rotated.lines(), ["two", "three", "four", "five", "six"]);
        // journald died, and its successor put the file aside.
        let aside = Machine::new(&[("var/system@1-2.journal~", &before), ("run/system.journal", &after)]);
        assert_eq!(aside.lines(), ["two", "three", "four", "five", "six"]);
        let all = Machine::new(&[("run/system@1-2.journal", &before)]);
        assert_eq!(all.lines(), ["one", "two", "three", "four"]);
    }

    #[test]
    fn a_rotation_or_a_flush_between_listing_and_opening_hides_nothing() {
        let words = Writer::with_lines(true, &[(0, "last"), (0, "words")]);
        let other = Writer::new(true).bytes;
        for moved_to in ["run/system@1-2.journal", "var/system.journal"] {
            let machine = Machine::new(&[("run/system.journal", &words)]);
            let listed = list_journals(&machine.folders());
            std::fs::rename(machine.path("run/system.journal"), machine.path(moved_to)).unwrap();
            if moved_to.starts_with("run") {
                std::fs::write(machine.path("run/system.journal"), &other).unwrap();
            }
            let mut opened = Opened::default();
            assert_eq!(opened.add(&listed, &run()), News::Some, "{moved_to}: look again");
            while opened.add(&list_journals(&machine.folders()), &run()) == News::Some {}
            // Nor does one that comes while we read.
            machine.folders().iter().for_each(|folder| std::fs::remove_dir_all(folder).unwrap());
            assert_eq!(merge(opened.journals, &run()), ["last", "words"], "{moved_to}");
        }
    }

    #[test]
    fn what_a_flush_has_copied_is_told_once_and_what_was_said_twice_is_told_twice() {
        let lines = [(1, 0, "one"), (2, 0, "again"), (2, 0, "again"), (3, 0, "three")];
        let source = Writer::with_times(true, 50, &lines);
        for copied in 1..=lines.len() {
            let copy = Writer::with_times(true, 1, &lines[..copied]);
            let flushed = Machine::new(&[("run/system.journal", &source), ("var/system.journal", &copy)]);
            assert_eq!(flushed.lines(), ["one", "again", "again", "three"], "{copied} copied");
        }
    }

    #[test]
    fn files_that_cannot_know_the_run_are_left_alone() {
        let bytes = Writer::with_lines(true, &[(0, "one"), (0, "two")]);
        let machine = Machine::new(&[("var/system@1-2.journal", &bytes)]);
        let lines = |run: Run| last_lines(&machine.folders(), &run);
        assert!(lines(Run { boot: [4; 16], ..run() }).is_empty(), "of another boot");
        assert!(lines(Run { since: 3, ..run() }).is_empty(), "it ended before the run began");
    }

    #[test]
    fn lines_of_other_runs_and_boots_are_told_from_ours_in_one_file() {
        let mut bytes = Writer::with_lines(true, &[(0, "one"), (0, "two"), (0, "three")]);
        let read = |bytes: &[u8], run: Run| last_lines(&Machine::new(&[("var/system.journal", bytes)]).folders(), &run);
        assert_eq!(read(&bytes, Run { since: 2, ..run() }), ["two", "three"], "an earlier run of the same unit");
        let other = ID.replace('0', "f");
        assert_eq!(read(&bytes, Run { invocation: other, ..run() }), ["one", "three"], "only those that do not say");
        assert!(read(&bytes, Run { unit: "it.service".to_owned(), ..run() }).is_empty());
        // journald goes on with the file of the boot before.
        bytes[56..72].fill(4);
        assert!(read(&bytes, Run { boot: [4; 16], ..run() }).is_empty());
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
    fn this_boot_has_an_id() {
        assert!(boot_id().is_some_and(|id| id != [0; 16]));
    }

    #[test]
    fn without_a_journal_there_are_no_lines() {
        assert!(last_lines(&["/nonexistent"], &run()).is_empty());
    }
}
