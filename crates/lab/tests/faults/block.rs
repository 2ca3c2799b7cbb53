//! A disk in memory that remembers every write and every flush, in order.
//!
//! This kernel has neither device-mapper nor NBD. So the disk is one file of a FUSE file system that this process serves
//! itself, spoken plainly over `/dev/fuse`, with a loop device on top: what the file system above asks of its disk arrives
//! here as WRITE and FSYNC requests.

use std::ffi::CString;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use crate::machine::done;

#[derive(Clone, Debug)]
pub(crate) enum Request {
    Write {
        offset: usize,
        bytes: Vec<u8>,
    },
    /// All writes that were answered before this one are on the medium.
    Flush,
}

#[derive(Default)]
struct Medium {
    image: Vec<u8>,
    requests: Vec<Request>,
    refuses_text: bool,
    refused: usize,
}

/// A loop device whose medium is in this process.
pub(crate) struct RecordedDisk {
    medium: Arc<Mutex<Medium>>,
    file: PathBuf,
    pub(crate) device: String,
    server: Option<JoinHandle<()>>,
}

impl RecordedDisk {
    /// `file` is an empty file, over which the disk is mounted.
    pub(crate) fn create(file: &Path, bytes: usize) -> Self {
        let medium = Arc::new(Mutex::new(Medium { image: vec![0; bytes], ..Medium::default() }));
        let fuse = rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).expect("/dev/fuse");
        let options = format!("fd={},rootmode=100600,user_id=0,group_id=0", fuse.as_raw_fd());
        let options = CString::new(options).unwrap();
        mount("nodestrap-recorded", file, "fuse", MountFlags::empty(), options.as_c_str()).expect("mount the disk");
        let served = Arc::clone(&medium);
        let server = std::thread::spawn(move || serve(&fuse, &served));
        let device = done(&["losetup", "--find", "--show", &file.display().to_string()]);
        Self { medium, file: file.to_owned(), device, server: Some(server) }
    }

    fn with<T>(&self, look: impl FnOnce(&mut Medium) -> T) -> T {
        look(&mut self.medium.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn image(&self) -> Vec<u8> {
        self.with(|medium| medium.image.clone())
    }

    /// From now on the medium refuses what begins as a text does, which is the content of files, or takes it again. What a
    /// file system writes of its own is binary; if that were refused, it would stop altogether.
    pub(crate) fn refuse_text(&self, refuses: bool) {
        self.with(|medium| medium.refuses_text = refuses);
    }

    /// How many writes were refused so far.
    pub(crate) fn refused(&self) -> usize {
        self.with(|medium| medium.refused)
    }

    /// What was asked for since the last call.
    pub(crate) fn take_requests(&self) -> Vec<Request> {
        self.with(|medium| std::mem::take(&mut medium.requests))
    }
}

impl Drop for RecordedDisk {
    fn drop(&mut self) {
        let _ = std::process::Command::new("losetup").args(["--detach", &self.device]).status();
        // The server ends when the last user of the file system has gone.
        let _ = unmount(&self.file, UnmountFlags::DETACH);
        if let Some(server) = self.server.take() {
            let _ = server.join();
        }
    }
}

/// As `linux/fuse.h` numbers them.
mod opcode {
    pub(super) const FORGET: u32 = 2;
    pub(super) const GETATTR: u32 = 3;
    pub(super) const SETATTR: u32 = 4;
    pub(super) const OPEN: u32 = 14;
    pub(super) const READ: u32 = 15;
    pub(super) const WRITE: u32 = 16;
    pub(super) const STATFS: u32 = 17;
    pub(super) const RELEASE: u32 = 18;
    pub(super) const FSYNC: u32 = 20;
    pub(super) const FLUSH: u32 = 25;
    pub(super) const INIT: u32 = 26;
    pub(super) const INTERRUPT: u32 = 36;
    pub(super) const DESTROY: u32 = 38;
    pub(super) const BATCH_FORGET: u32 = 42;
}

const IN_HEADER: usize = 40;
const LARGEST_WRITE: u32 = 128 * 1024;
/// The request, its header and a page to spare.
const BUFFER: usize = LARGEST_WRITE as usize + 8192;
const EIO: i32 = 5;
const ENOSYS: i32 = 38;

fn serve(fuse: &OwnedFd, medium: &Mutex<Medium>) {
    let mut buffer = vec![0; BUFFER];
    loop {
        let length = match rustix::io::read(fuse, &mut buffer) {
            Ok(length) => length,
            // An interrupted request that was withdrawn, or a signal.
            Err(Errno::NOENT | Errno::INTR | Errno::AGAIN) => continue,
            // ENODEV: unmounted.
            Err(_) => return,
        };
        let request = &buffer[..length];
        let (operation, unique) = (u32_at(request, 4), &request[8..16]);
        let answer =
            answer(operation, &request[IN_HEADER..], &mut medium.lock().unwrap_or_else(PoisonError::into_inner));
        let Some(answer) = answer else { continue };
        let (error, body) = answer.map_or_else(|errno| (-errno, Vec::new()), |body| (0, body));
        let mut reply = Vec::with_capacity(16 + body.len());
        reply.extend_from_slice(&u32::try_from(16 + body.len()).unwrap().to_ne_bytes());
        reply.extend_from_slice(&error.to_ne_bytes());
        reply.extend_from_slice(unique);
        reply.extend_from_slice(&body);
        // The kernel has withdrawn the request if this fails.
        let _ = rustix::io::write(fuse, &reply);
    }
}

/// `None`: this request wants no answer.
fn answer(operation: u32, body: &[u8], medium: &mut Medium) -> Option<Result<Vec<u8>, i32>> {
    Some(Ok(match operation {
        opcode::FORGET | opcode::BATCH_FORGET | opcode::INTERRUPT => return None,
        opcode::INIT => init(),
        opcode::GETATTR | opcode::SETATTR => attributes(medium.image.len()),
        opcode::OPEN => vec![0; 16],
        opcode::READ => {
            let from = usize::try_from(u64_at(body, 8)).unwrap().min(medium.image.len());
            let until = (from + u32_at(body, 16) as usize).min(medium.image.len());
            medium.image[from..until].to_vec()
        }
        opcode::WRITE => {
            let (offset, size) = (usize::try_from(u64_at(body, 8)).unwrap(), u32_at(body, 16));
            let bytes = body[40..40 + size as usize].to_vec();
            if medium.refuses_text && bytes[..8].iter().all(|byte| byte.is_ascii_graphic() || b" \n\t".contains(byte)) {
                medium.refused += 1;
                return Some(Err(EIO));
            }
            medium.image[offset..offset + bytes.len()].copy_from_slice(&bytes);
            medium.requests.push(Request::Write { offset, bytes });
            [size.to_ne_bytes(), [0; 4]].concat()
        }
        opcode::FSYNC => {
            medium.requests.push(Request::Flush);
            Vec::new()
        }
        opcode::FLUSH | opcode::RELEASE | opcode::DESTROY => Vec::new(),
        opcode::STATFS => vec![0; 80],
        _ => return Some(Err(ENOSYS)),
    }))
}

/// `fuse_init_out` of protocol 7.31: nothing special is asked for, so every write comes here before it is answered.
fn init() -> Vec<u8> {
    let mut out = Vec::with_capacity(64);
    for word in [7_u32, 31, 0, 0] {
        out.extend_from_slice(&word.to_ne_bytes());
    }
    out.extend_from_slice(&12_u16.to_ne_bytes());
    out.extend_from_slice(&9_u16.to_ne_bytes());
    for word in [LARGEST_WRITE, 1] {
        out.extend_from_slice(&word.to_ne_bytes());
    }
    out.resize(64, 0);
    out
}

/// `fuse_attr_out` of a regular file, valid for an hour.
fn attributes(size: usize) -> Vec<u8> {
    let size = size as u64;
    let mut out = Vec::with_capacity(104);
    for long in [3600, 0, 1, size, size / 512, 0, 0, 0] {
        out.extend_from_slice(&u64::to_ne_bytes(long));
    }
    for word in [0_u32, 0, 0, 0o100_600, 1, 0, 0, 0, 4096, 0] {
        out.extend_from_slice(&word.to_ne_bytes());
    }
    out
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap())
}
