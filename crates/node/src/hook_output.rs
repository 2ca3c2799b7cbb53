//! What a hook says: into a file of its own while it runs, and from there into the log of the machine when it has ended.
//!
//! The file has the words as soon as they are said. journald comes to them when it likes, and of a process that has ended by
//! then it does not know much.
//!
//! | | |
//! |---|---|
//! | in | the output of the hook's unit, which systemd 240 or later appends to the file that the unit names (as rendered) |
//! | out | the end of it: in the log of the machine, in the name of the unit; and the last lines of a hook that failed in nodestrap's journal |
//! | without a file | an older systemd, a unit that says otherwise: the words are in the log already, and `host` finds them there |
//!
//! Whatever a hook prints may be a secret. All of these are for root; what everybody is told (report, sentinels, webhook, console,
//! `systemctl status`) names the hook, and the file to look into.
//!
//! Only making room for the file can fail; what it says is a help and no more.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bundle::{HOOK_OUTPUT_FOLDER, HOOK_OUTPUT_FOLDER_MODE, hook_output_path};
use host::disk::{Disk, DiskError};
use host::units::{UnitError, UnitName, Units, quote_last_lines};

/// Of what a hook says, so much is told to the log of the machine: some hundred lines.
const TOLD_LIMIT: u64 = 64 * 1024;
/// journald takes 10,000 in 30 seconds from a service, and our own are to come.
const LINES_LIMIT: usize = 2000;
/// `/run` is memory that all services of a machine need: a file that takes more is cut down to its end, as journald would
/// have done with its own.
const SPACE_LIMIT: u64 = 16 * 1024 * 1024;
const KEPT_LIMIT: u64 = 1024 * 1024;

pub(crate) struct HookOutput<'a> {
    disk: &'a dyn Disk,
    unit: UnitName,
    path: PathBuf,
}

impl<'a> HookOutput<'a> {
    /// Makes room for what a hook is going to say. What an earlier run of it said goes.
    pub(crate) fn prepare(disk: &'a dyn Disk, unit: &str) -> Result<Self, DiskError> {
        let path = PathBuf::from(hook_output_path(unit));
        disk.make_folder(Path::new(HOOK_OUTPUT_FOLDER), HOOK_OUTPUT_FOLDER_MODE)?;
        disk.remove(&path)?;
        Ok(Self { disk, unit: UnitName(unit.to_owned()), path })
    }

    pub(crate) fn run(&self, units: &dyn Units, deadline: Duration) -> Result<(), UnitError> {
        let mut ended = units.restart_and_watch(&self.unit, deadline, &mut || self.bound());
        self.bound();
        let (bytes, size) = self.read_end();
        let text = String::from_utf8_lossy(&bytes);
        let lines = last_lines(&text, size > TOLD_LIMIT);
        if let Err(UnitError::Job { detail, output, .. }) = &mut ended
            && let Some(quoted) = quote_last_lines("its last lines", lines.iter().copied())
        {
            detail.push_str(&format!("; what it said is in {}, for root", self.path.display()));
            *output = Some(quoted);
        }
        let cut = format!("(the end of {size} bytes of output; {} has more of it)", self.path.display());
        let told: Vec<&str> = (size > TOLD_LIMIT).then_some(cut.as_str()).into_iter().chain(lines).collect();
        if !told.is_empty() {
            units.log(&self.unit, &told);
        }
        ended
    }

    /// One that cannot be cut down is as it would be without us.
    fn bound(&self) {
        if self.size() > SPACE_LIMIT {
            let _ = self.disk.empty_start(&self.path, KEPT_LIMIT);
        }
    }

    fn size(&self) -> u64 {
        self.disk.stat(&self.path).ok().flatten().map_or(0, |found| found.size)
    }

    /// And how much there was in all.
    fn read_end(&self) -> (Vec<u8>, u64) {
        let size = self.size();
        (self.disk.read_end(&self.path, TOLD_LIMIT).ok().flatten().unwrap_or_default(), size)
    }
}

/// Without empty ones, and without the first if it may be the end of one.
fn last_lines(text: &str, is_cut: bool) -> Vec<&str> {
    let whole = match text.split_once('\n') {
        Some((_, rest)) if is_cut && !rest.is_empty() => rest,
        _ => text,
    };
    let lines: Vec<&str> = whole.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
    lines[lines.len().saturating_sub(LINES_LIMIT)..].to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_whole_not_empty_and_not_too_many() {
        assert_eq!(last_lines("one\r\n\n  two \nthree", false), ["one", "  two", "three"]);
        assert_eq!(last_lines("ne\ntwo\n", true), ["two"]);
        assert_eq!(last_lines("one very long line\n", true), ["one very long line"]);
        assert!(last_lines("", true).is_empty());
        let many = "x\n".repeat(LINES_LIMIT) + "y\n";
        let last = last_lines(&many, false);
        assert_eq!((last.len(), last[0], last[LINES_LIMIT - 1]), (LINES_LIMIT, "x", "y"));
    }
}
