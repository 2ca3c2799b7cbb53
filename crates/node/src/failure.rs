//! What failed on a machine, as a failed step: sorted into what a retry may mend and what a person must.

use engine::{ErrorClass, StepError};
use host::disk::DiskError;
use host::files::FileError;
use host::snaps::SnapError;
use host::units::UnitError;

pub(crate) fn disk_error(error: &DiskError) -> StepError {
    use std::io::ErrorKind;
    let advice = match error.source.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "free some space on that file system",
        ErrorKind::ReadOnlyFilesystem => {
            "the file system is read-only: look in dmesg for why, then remount it writable"
        }
        ErrorKind::PermissionDenied => "run as root",
        _ => "look in dmesg for what the disk says",
    };
    StepError::needs_operator(chain(error)).with_advice(advice)
}

pub(crate) fn file_error(error: &FileError) -> StepError {
    match error {
        FileError::Disk(disk) => disk_error(disk),
        FileError::Lost { .. } => StepError::needs_operator(chain(error)).with_advice(
            "look in dmesg for what the disk says, and replace a disk that does this again; the next run writes every file anew",
        ),
        other => StepError::needs_operator(chain(other)),
    }
}

pub(crate) fn unit_error(error: &UnitError) -> StepError {
    // Where the service manager is a stand-in, its disk is ours: a full one is not waited for.
    if let UnitError::Call { source, .. } = error {
        let disk = source.downcast_ref::<DiskError>().map(disk_error);
        if let Some(found) = disk.or_else(|| source.downcast_ref::<FileError>().map(file_error)) {
            return StepError { message: chain(error), ..found };
        }
    }
    let (class, advice) = match error {
        UnitError::Bus { .. } => {
            (ErrorClass::Transient, "is this a machine with systemd and dbus? (--root for a folder)")
        }
        UnitError::NotFound { .. } => (ErrorClass::NeedsOperator, "the image must bring this unit"),
        UnitError::Masked { .. } => (ErrorClass::NeedsOperator, "unmask it, or take it out of the image"),
        UnitError::Job { .. } => (ErrorClass::Transient, "journalctl -u with its name says why"),
        UnitError::Deadline { .. } | UnitError::Call { .. } => (ErrorClass::Transient, "systemctl status says more"),
    };
    StepError::new(class, chain(error)).with_advice(advice).with_output(output_of(error))
}

/// What the unit said, for root only.
pub(crate) fn output_of(error: &UnitError) -> Option<String> {
    match error {
        UnitError::Job { output, .. } => output.clone(),
        _ => None,
    }
}

pub(crate) fn snap_error(error: &SnapError) -> StepError {
    let (class, advice) = match error {
        SnapError::Unreachable { .. } => {
            (ErrorClass::Transient, "is snapd installed here? systemctl status snapd.socket")
        }
        SnapError::NotFound { .. } => (ErrorClass::NeedsOperator, "the image must bring this snap"),
        SnapError::Busy { .. } => (ErrorClass::Transient, "snap changes says what is under way"),
        SnapError::Refused { status: 500.., .. } => (ErrorClass::Transient, "journalctl -u snapd says more"),
        SnapError::Refused { .. } => (ErrorClass::NeedsOperator, "run as root; journalctl -u snapd says more"),
        SnapError::Change { .. } => (ErrorClass::Transient, "snap change with its number says why"),
        SnapError::Deadline { .. } => (ErrorClass::Transient, "snap changes says what is under way"),
        SnapError::Answer { .. } => (ErrorClass::NeedsOperator, "look at what listens at /run/snapd.socket"),
    };
    StepError::new(class, chain(error)).with_advice(advice)
}

/// An error with its causes, once.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        next = cause.source();
    }
    text
}
