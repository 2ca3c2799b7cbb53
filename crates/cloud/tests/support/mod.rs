//! A machine with a few files, and a metadata service that it is told to ask.
#![allow(dead_code, reason = "each test file uses its part")]

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cloud::{Answered, Asking, CloudError, Wanted};
use host::disk::Disk;
use host::fake::FakeDisk;
use host::volumes::FolderVolumes;
use lab::metadata::{Instance, MetadataServer, Provider};

pub(crate) fn machine(files: &[(&str, &str)]) -> FakeDisk {
    let disk = FakeDisk::new();
    for (path, text) in files {
        disk.make_folder(Path::new(path).parent().expect("absolute"), 0o755).expect("a folder");
        disk.create(Path::new(path), 0o644, text.as_bytes()).expect("a file");
    }
    disk
}

pub(crate) fn identify(disk: &FakeDisk) -> Result<cloud::Identified, CloudError> {
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    cloud::identify(disk, &FolderVolumes::new(shared))
}

pub(crate) fn name(provider: Provider) -> &'static str {
    match provider {
        Provider::Aws => "aws",
        Provider::Gce => "gce",
        Provider::Azure => "azure",
        Provider::OpenStack => "openstack",
    }
}

pub(crate) fn serve(instance: Instance) -> MetadataServer {
    MetadataServer::start(instance).expect("a server on loopback")
}

/// All that the service says, asked for at most so long.
pub(crate) fn ask(
    provider: Provider,
    address: &str,
    wanted: Wanted,
    deadline: Duration,
) -> Result<Answered, CloudError> {
    ask_telling(provider, address, wanted, deadline).0
}

/// And what was told of failed attempts.
pub(crate) fn ask_telling(
    provider: Provider,
    address: &str,
    wanted: Wanted,
    deadline: Duration,
) -> (Result<Answered, CloudError>, Vec<String>) {
    let disk = machine(&[("/etc/nodestrap/platform", &format!("{} {address}\n", name(provider)))]);
    let told = Mutex::new(Vec::new());
    let tell = |line: &str| told.lock().expect("no panic").push(line.to_owned());
    let asking = Asking { deadline, random: &|| u64::MAX / 2, tell: &tell };
    let answered = identify(&disk).and_then(|identified| cloud::ask(&identified, &disk, wanted, &asking));
    (answered, told.into_inner().expect("no panic"))
}
