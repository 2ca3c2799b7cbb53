//! A process that holds keys and tokens leaves no image of its memory behind.

use std::io;

use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};

/// From here on nothing of this process is written to a core file or read by another one of the same user.
///
/// Both are needed: the kernel hands the dump to a program (systemd-coredump) whatever the limit says, and a program that we
/// started would inherit the limit alone.
pub fn forbid_core_dumps() -> io::Result<()> {
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
    Ok(())
}
