//! What programs that a bundle brings need of the machine they run on, looked at before anything changes.
//!
//! In: a bundle and a machine. Out: all that is missing at once, as reasons to stop, and what may be missed later, as remarks.
//! Only what is known to fail is a reason: a kernel of which nobody can tell what it has gets the benefit of the doubt, and
//! so does a folder that stands for a machine, where no program will run.
//!
//! | | a reason to stop | a remark |
//! |---|---|---|
//! | kubelet | `mount` or `umount` is missing: every volume of a pod needs them | neither `iptables` nor `nft`: only pods with a `hostPort` miss them (the plug-in `portmap` runs them); no `conntrack`: only a kube-proxy that runs without its image misses it |
//! | containerd | the kernel has no `overlay` | |
//! | extensions | there is no `systemd-sysext.service`; the kernel has no `overlay`, `squashfs` or `loop`; another extension of the same name | |
//! | modules that the bundle has loaded | neither loaded, nor built in, nor among those of this kernel | |
//! | all | no room for what is to be fetched and unpacked; a folder where a link shall be | |

use std::collections::BTreeMap;
use std::path::Path;

use bundle::{ArtefactForm, Bundle, Component, EXTENSIONS_FOLDER, SYSEXT_UNIT, TREES_FOLDER, Tree};
use engine::StepError;
use host::disk::{Disk, DiskError, Kind, follow};
use host::units::unit_file::{self, Found};

use crate::artefacts::{STORE_FOLDER, is_in_store};
use crate::failure::disk_error;
use crate::resource::tree::links;
use crate::resource::tree::whole::{Glance, glance};
use crate::resource::{extension, host_name};

/// Where units find programs, and so do the kubelet and the container runtime.
const PATH: [&str; 6] = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];
const FILE_SYSTEMS: &str = "/proc/filesystems";
const KERNEL_RELEASE: &str = "/proc/sys/kernel/osrelease";
const MODULES_TO_LOAD: &str = "/etc/modules-load.d/";
const OVERLAY: &str = "overlay";
/// Of all modules of a distribution's kernel, with what each needs.
const TEXT_LIMIT: u64 = 16 * 1024 * 1024;
/// Programs come out at least this many times as large as their archive.
const UNPACKED_AT_LEAST: u64 = 2;

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Missing {
    pub(crate) reasons: Vec<String>,
    pub(crate) remarks: Vec<String>,
}

pub(crate) fn find_missing(disk: &dyn Disk, bundle: &Bundle) -> Result<Missing, StepError> {
    let failed = |error: DiskError| disk_error(&error);
    let mut reasons = links::obstacles(disk, &bundle.trees).map_err(failed)?;
    reasons.extend(sysext_obstacles(disk, bundle).map_err(failed)?);
    let mut missing = Missing { reasons, ..Missing::default() };
    if disk.stat(Path::new(FILE_SYSTEMS)).map_err(failed)?.is_some() {
        add_programs(disk, bundle, &mut missing).map_err(failed)?;
        add_modules(disk, bundle, &mut missing).map_err(failed)?;
    }
    add_space(disk, bundle, &mut missing)?;
    Ok(missing)
}

/// What is in the way of the bundle's extensions.
pub(crate) fn sysext_obstacles(disk: &dyn Disk, bundle: &Bundle) -> Result<Vec<String>, DiskError> {
    let mut obstacles = extension::links::obstacles(disk, &bundle.extensions)?;
    if !bundle.extensions.is_empty() && !matches!(unit_file::find(disk, &host_name(SYSEXT_UNIT))?, Found::File { .. }) {
        obstacles.push(format!("there is no {SYSEXT_UNIT}, which merges system extensions"));
    }
    Ok(obstacles)
}

fn add_programs(disk: &dyn Disk, bundle: &Bundle, missing: &mut Missing) -> Result<(), DiskError> {
    if !bundle.brings(Component::Kubelet) {
        return Ok(());
    }
    for program in ["mount", "umount"] {
        if !is_in_path(disk, program)? {
            missing.reasons.push(format!("there is no {program}, which the kubelet runs for each volume of a pod"));
        }
    }
    missing.remarks.extend(missed_later(disk, bundle)?);
    Ok(())
}

/// What a node becomes Ready without, and some pods or proxies miss.
pub(crate) fn missed_later(disk: &dyn Disk, bundle: &Bundle) -> Result<Vec<String>, DiskError> {
    let mut remarks = Vec::new();
    // What is about to be installed is missed by nobody.
    let is_coming = |name: &str| {
        let packages = bundle.packages.iter().flat_map(|packages| &packages.packages);
        packages.into_iter().any(|package| package.name.starts_with(name))
    };
    if !is_in_path(disk, "iptables")? && !is_in_path(disk, "nft")? && !is_coming("iptables") && !is_coming("nft") {
        remarks.push(
            "there is neither iptables nor nft on this machine: a pod that asks for a port of the host (hostPort) does not \
             start, unless the cluster's network brings its own; services need neither, if kube-proxy runs from its image"
                .to_owned(),
        );
    }
    if !is_in_path(disk, "conntrack")? && !is_coming("conntrack") {
        remarks.push(
            "there is no conntrack on this machine: a kube-proxy that runs without its image could not forget old \
             connections"
                .to_owned(),
        );
    }
    Ok(remarks)
}

pub(crate) fn is_in_path(disk: &dyn Disk, program: &str) -> Result<bool, DiskError> {
    for folder in PATH {
        let found = follow(disk, &Path::new(folder).join(program))?;
        if found.is_some_and(|stat| stat.kind == Kind::File && stat.mode & 0o111 != 0) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn add_modules(disk: &dyn Disk, bundle: &Bundle, missing: &mut Missing) -> Result<(), DiskError> {
    let mut wanted: BTreeMap<String, &str> = BTreeMap::new();
    for file in bundle.files.iter().filter(|file| file.path.starts_with(MODULES_TO_LOAD)) {
        let lines = file.content.text().unwrap_or_default().lines().map(str::trim);
        let named = lines.filter(|line| !line.is_empty() && !line.starts_with(['#', ';']));
        wanted.extend(named.map(|name| (name.to_owned(), "which the bundle has loaded")));
    }
    if bundle.brings(Component::Containerd) {
        wanted.insert(OVERLAY.to_owned(), "which containerd keeps images with");
    }
    if !bundle.extensions.is_empty() {
        let merged = [
            (OVERLAY, "which lays extensions over /usr"),
            ("squashfs", "which extensions are"),
            ("loop", "which images need"),
        ];
        wanted.extend(merged.map(|(name, what_for)| (name.to_owned(), what_for)));
    }
    let kernel = Kernel::look(disk)?;
    for (module, what_for) in wanted {
        if kernel.lacks(disk, &module)? {
            missing.reasons.push(format!("the kernel {} has no {module}, {what_for}", kernel.release));
        }
    }
    Ok(())
}

struct Kernel {
    release: String,
    file_systems: String,
    /// Paths of modules, those that are built in and those that can be loaded; `None`: nobody knows.
    modules: Option<String>,
}

impl Kernel {
    fn look(disk: &dyn Disk) -> Result<Self, DiskError> {
        let text = |path: &str| -> Result<Option<String>, DiskError> {
            let bytes = disk.read(Path::new(path), TEXT_LIMIT)?;
            Ok(bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
        };
        let release = text(KERNEL_RELEASE)?.unwrap_or_default().trim().to_owned();
        let mut modules = None;
        for root in ["/lib/modules", "/usr/lib/modules"] {
            let built_in = text(&format!("{root}/{release}/modules.builtin"))?;
            let loadable = text(&format!("{root}/{release}/modules.dep"))?;
            if let (false, Some(built_in), Some(loadable)) = (release.is_empty(), built_in, loadable) {
                modules = Some(built_in + "\n" + &loadable);
                break;
            }
        }
        Ok(Self { release, file_systems: text(FILE_SYSTEMS)?.unwrap_or_default(), modules })
    }

    /// Known not to have it: it is not there now, and cannot be loaded.
    fn lacks(&self, disk: &dyn Disk, module: &str) -> Result<bool, DiskError> {
        let spelled = module.replace('-', "_");
        let is_file_system = self.file_systems.lines().any(|line| line.split_whitespace().next_back() == Some(module));
        let is_there = is_file_system || disk.stat(Path::new(&format!("/sys/module/{spelled}")))?.is_some();
        // A line of modules.dep is `kernel/fs/overlayfs/overlay.ko.xz: kernel/…`, one of modules.builtin a path alone.
        let name_of = |line: &str| -> Option<String> {
            let path = line.split(':').next()?.trim();
            let name = path.rsplit('/').next()?;
            Some(name.split(".ko").next()?.replace('-', "_"))
        };
        let Some(modules) = &self.modules else { return Ok(false) };
        Ok(!is_there && !modules.lines().any(|line| name_of(line).as_ref() == Some(&spelled)))
    }
}

fn add_space(disk: &dyn Disk, bundle: &Bundle, missing: &mut Missing) -> Result<(), StepError> {
    let failed = |error: DiskError| disk_error(&error);
    // By file system: the place that stands for it, and how much is to be written there.
    let mut needed: BTreeMap<u64, (&str, u64)> = BTreeMap::new();
    for tree in &bundle.trees {
        if glance(disk, &tree.folder()).map_err(failed)? == Glance::Whole {
            continue;
        }
        let to_fetch = if is_in_store(disk, tree)? { 0 } else { tree.artefact.size };
        for (place, bytes) in [(STORE_FOLDER, to_fetch), (TREES_FOLDER, unpacked(tree))] {
            let device = device_of(disk, Path::new(place)).map_err(failed)?;
            needed.entry(device).or_insert((place, 0)).1 += bytes;
        }
    }
    for extension in &bundle.extensions {
        if disk.stat(Path::new(&extension.image())).map_err(failed)?.is_some() {
            continue;
        }
        let size = extension.artefact.size;
        let to_fetch = if is_in_store(disk, extension)? { 0 } else { size };
        for (place, bytes) in [(STORE_FOLDER, to_fetch), (EXTENSIONS_FOLDER, size)] {
            let device = device_of(disk, Path::new(place)).map_err(failed)?;
            needed.entry(device).or_insert((place, 0)).1 += bytes;
        }
    }
    for (place, bytes) in needed.into_values() {
        let free = disk.free_space(Path::new(place)).map_err(failed)?;
        if let Some(free) = free.filter(|free| *free < bytes) {
            let (free, bytes) = (megabytes(free), megabytes(bytes));
            missing.reasons.push(format!("{place} needs at least {bytes} MB, and its file system has {free} MB"));
        }
    }
    Ok(())
}

fn unpacked(tree: &Tree) -> u64 {
    match tree.artefact.form {
        ArtefactForm::Program | ArtefactForm::Sysext => tree.artefact.size,
        ArtefactForm::TarGz => tree.artefact.size.saturating_mul(UNPACKED_AT_LEAST),
    }
}

fn megabytes(bytes: u64) -> u64 {
    bytes.div_ceil(1_000_000)
}

fn device_of(disk: &dyn Disk, path: &Path) -> Result<u64, DiskError> {
    for place in path.ancestors() {
        if let Some(stat) = disk.stat(place)? {
            return Ok(stat.device);
        }
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel(modules: Option<&str>) -> Kernel {
        Kernel {
            release: "6.1".to_owned(),
            file_systems: "nodev\tsysfs\n\text4\nnodev\tfuse\n".to_owned(),
            modules: modules.map(str::to_owned),
        }
    }

    #[test]
    fn a_kernel_lacks_what_is_neither_loaded_nor_built_in_nor_loadable_and_only_if_that_is_known() {
        let disk = host::fake::FakeDisk::new();
        disk.make_folder(Path::new("/sys/module/br_netfilter"), 0o755).unwrap();
        let known = kernel(Some("kernel/fs/ext2/ext2.ko\nkernel/net/xt-nat.ko.xz: kernel/net/x_tables.ko.xz\n"));
        for (module, lacks) in [
            ("overlay", true),
            ("br_netfilter", false),
            ("br-netfilter", false),
            ("ext4", false),
            ("fuse", false),
            ("ext2", false),
            ("xt_nat", false),
            // What another one needs is a file of its own.
            ("x_tables", true),
        ] {
            assert_eq!(known.lacks(&disk, module).unwrap(), lacks, "{module}");
        }
        assert!(!kernel(None).lacks(&disk, "overlay").unwrap(), "nobody knows");
    }
}
