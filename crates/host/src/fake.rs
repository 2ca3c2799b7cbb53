//! A machine in memory that can be killed, lose power, run full and have no service manager: for the tests of every
//! crate that stands on [`crate::Disk`], [`crate::Units`] or [`crate::Machine`].
//!
//! ```
//! use host::disk::Disk;
//! use host::fake::{Crash, FakeDisk, Moment};
//! let disk = FakeDisk::new();
//! disk.crash_point().crash_at(2, Moment::Before);
//! disk.create("/a".as_ref(), 0o600, b"one").unwrap();
//! disk.create("/b".as_ref(), 0o600, b"two").unwrap_err(); // killed here: everything fails from now on
//! let disk = disk.after_crash(Crash::ProcessKill, 0);
//! assert_eq!(disk.list("/".as_ref()).unwrap(), ["a", "run"]);
//! ```
//!
//! A run under test: count the operations of a clean run, then for each `n` build the same machine, `crash_at(n)`, run,
//! take `after_crash`, run again, and compare [`FakeDisk::tree_digest`] with that of the clean run.

mod clock;
mod crash;
mod disk;
mod machine;
mod names;
mod open;
mod packages;
mod promise;
mod snaps;
mod sysext;
mod tree;
mod units;
mod update_engine;

pub use clock::FakeClock;
pub use crash::{Crash, CrashPoint, Fault, Moment, Repeat};
pub use disk::{Entry, FakeDisk};
pub use machine::FakeMachine;
pub use packages::{FakePackage, FakeRepository};
pub use promise::Promise;
pub use snaps::FakeSnaps;
pub use sysext::fake_sysext;
pub use units::FakeUnits;
pub use update_engine::{FakeUpdateEngine, Finds};
