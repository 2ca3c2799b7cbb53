//! The root of one node: overlay and bind mounts, and the files that make it this node and no other.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::cache::{Cache, layers};
use crate::mounts;
use crate::network::{Addresses, HUB};
use crate::paths::repository;
use crate::state::{NodeImage, Usr};
use crate::usr_partitions::UsrPartitions;

/// Whether a unit is started at boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Enable {
    No,
    AsInstallSectionSays,
}

/// These must not lie on an overlay: containerd mounts overlays of its own in them, the kubelet watches their size.
const STORES: [&str; 2] = ["var/lib/containerd", "var/lib/kubelet"];

/// Folders of a node below the folder of its lab.
#[derive(Debug, Clone)]
pub(crate) struct NodeFolders {
    base: PathBuf,
}

impl NodeFolders {
    pub(crate) fn new(lab: &Path, node: &str) -> Self {
        Self { base: lab.join("nodes").join(node) }
    }

    /// The root as the node sees it, without what it mounts itself (`/run`, `/tmp`, `/proc`).
    pub(crate) fn root(&self) -> PathBuf {
        self.base.join("root")
    }

    /// The product uuid of this node, in a file that is bound over the machine's own: made once, the same in every boot.
    pub(crate) fn product_uuid(&self) -> Result<PathBuf> {
        let path = self.base.join("product_uuid");
        if !path.exists() {
            let uuid = std::fs::read_to_string("/proc/sys/kernel/random/uuid").context("reading a random uuid")?;
            write_file(&path, uuid)?;
        }
        Ok(path)
    }

    /// Mounts the overlay and the stores. Everything survives in the folder, so a second mount finds the old files.
    pub(crate) fn mount(&self, cache: &Cache, image: NodeImage) -> Result<()> {
        let [upper, work, root] = ["upper", "work", "root"].map(|name| self.base.join(name));
        for folder in [&upper, &work, &root] {
            std::fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
        }
        let layers = layers(cache, image)?;
        let layers: Vec<&Path> = layers.iter().map(PathBuf::as_path).collect();
        mounts::overlay(&layers, &upper, &work, &root)?;
        for store in STORES {
            let (inside, outside) = (root.join(store), self.base.join("stores").join(store));
            for folder in [&inside, &outside] {
                std::fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
            }
            mounts::bind(&outside, &inside)?;
        }
        if image.usr() == Usr::Partitions {
            let partitions = UsrPartitions::of(&root);
            partitions.ensure()?;
            partitions.mount(cache, &root.join("usr"))?;
        }
        Ok(())
    }
}

/// What makes a root this node: names, machine id, cloud-init seed.
pub(crate) fn write_identity(root: &Path, name: &str, addresses: &Addresses, user_data: Option<&[u8]>) -> Result<()> {
    write_file(&root.join("etc/hostname"), format!("{name}\n"))?;
    let hosts = format!("127.0.0.1 localhost\n::1 localhost\n{} {name}\n", addresses.v4);
    write_file(&root.join("etc/hosts"), &hosts)?;
    write_file(&root.join("etc/machine-id"), format!("{}\n", random_hex_128()?))?;
    // Nobody answers there: a lookup fails at once instead of reaching the machine's own resolver.
    write_file(&root.join("etc/resolv.conf"), format!("nameserver {}\n", HUB.v4))?;
    let seed = root.join("var/lib/cloud/seed/nocloud");
    write_file(&seed.join("meta-data"), format!("instance-id: i-{name}\nlocal-hostname: {name}\n"))?;
    write_file(&seed.join("user-data"), user_data.unwrap_or(b"#cloud-config\n{}\n"))?;
    std::fs::set_permissions(seed.join("user-data"), std::fs::Permissions::from_mode(0o600)).context("user-data")
}

/// Stands for the registry: the images are there as soon as containerd is.
pub(crate) fn provide_image(root: &Path, image: NodeImage, archive: &Path) -> Result<()> {
    let folder = root.join(match image.usr() {
        Usr::Writable | Usr::ReadOnly => "usr/share/nodestrap-lab/images",
        Usr::Partitions => "var/lib/nodestrap-lab/images",
    });
    std::fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
    let target = folder.join(archive.file_name().unwrap_or_default());
    std::fs::copy(archive, target).with_context(|| format!("copying {}", archive.display())).map(drop)
}

/// What the Debian package of nodestrap does: the program, the shipped units, their enable links.
pub(crate) fn install_nodestrap(root: &Path, program: &Path) -> Result<()> {
    let target = root.join("usr/bin/nodestrap");
    std::fs::copy(program, &target).with_context(|| format!("copying {}", program.display()))?;
    std::fs::set_permissions(&target, std::fs::Permissions::from_mode(0o755)).context("nodestrap")?;
    let units = repository().join("dist/systemd");
    let entries = std::fs::read_dir(&units).with_context(|| format!("reading {}", units.display()))?;
    for entry in entries {
        let path = entry.context("reading the shipped units")?.path();
        if path.extension().is_some_and(|extension| extension == "service") {
            install_unit(root, &path, Enable::AsInstallSectionSays)?;
        }
    }
    Ok(())
}

/// Copies a unit into `/usr/lib/systemd/system` and links it where its `[Install]` section says.
pub(crate) fn install_unit(root: &Path, source: &Path, enable: Enable) -> Result<()> {
    let text = std::fs::read_to_string(source).with_context(|| format!("reading {}", source.display()))?;
    let Some(name) = source.file_name().and_then(|name| name.to_str()) else {
        bail!("{} is no unit file", source.display())
    };
    write_file(&root.join("usr/lib/systemd/system").join(name), &text)?;
    if enable == Enable::No {
        return Ok(());
    }
    for folder in enable_folders(&text) {
        let folder = root.join("etc/systemd/system").join(folder);
        std::fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
        let link = folder.join(name);
        let _ = std::fs::remove_file(&link);
        symlink(Path::new("/usr/lib/systemd/system").join(name), &link)
            .with_context(|| format!("linking {}", link.display()))?;
    }
    Ok(())
}

/// `WantedBy=a b` gives `a.wants`, `b.wants`; `RequiredBy=` likewise.
fn enable_folders(unit: &str) -> Vec<String> {
    let folders = |key: &str, suffix: &str| -> Vec<String> {
        let values = unit.lines().filter_map(|line| line.trim().strip_prefix(key)?.trim_start().strip_prefix('='));
        values.flat_map(str::split_whitespace).map(|target| format!("{target}.{suffix}")).collect()
    };
    [folders("WantedBy", "wants"), folders("RequiredBy", "requires")].concat()
}

/// Writes a file and the folders above it.
pub(crate) fn write_file(path: &Path, content: impl AsRef<[u8]>) -> Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
    }
    std::fs::write(path, content).with_context(|| format!("writing {}", path.display()))
}

/// From the kernel, as a uuid without its dashes: the form of a machine id.
pub(crate) fn random_hex_128() -> Result<String> {
    let uuid = std::fs::read_to_string("/proc/sys/kernel/random/uuid").context("reading a random uuid")?;
    Ok(uuid.trim().replace('-', ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_install_section_names_the_enable_links() {
        let unit =
            "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target a.service\nRequiredBy=b.target\n";
        assert_eq!(enable_folders(unit), ["multi-user.target.wants", "a.service.wants", "b.target.requires"]);
    }

    #[test]
    fn a_unit_without_install_section_is_not_enabled() {
        assert!(enable_folders("[Service]\nExecStart=/bin/true\n").is_empty());
    }
}
