//! A folder that stands for a machine, as `nodestrap --root` takes it: for all that a test can see without a boot.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use anyhow::{Context, Result};

const IMAGE: [(&str, &str); 5] = [
    ("etc/os-release", "ID=debian\nVERSION_ID=\"12\"\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n"),
    ("etc/hostname", "node-1\n"),
    ("etc/machine-id", "0123456789abcdef0123456789abcdef\n"),
    ("run/nodestrap/boot_id", "00000000-0000-4000-8000-000000000001\n"),
    (
        "usr/lib/systemd/system/containerd.service",
        "[Service]\nExecStart=/usr/bin/containerd\n\n[Install]\nWantedBy=multi-user.target\n",
    ),
];

/// What a vendor delivers: an operating system and the programs that the bundle counts on.
pub fn write_image(root: &Path, bundle: &str) -> Result<()> {
    let write = |path: &str, content: &str, mode: u32| -> Result<()> {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap_or(root)).with_context(|| format!("the folder of {path:?}"))?;
        fs::write(&path, content).with_context(|| format!("writing {path:?}"))?;
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).with_context(|| format!("the mode of {path:?}"))
    };
    for (path, content) in IMAGE {
        write(path, content, 0o644)?;
    }
    let bundle: serde_json::Value = serde_json::from_str(bundle).context("parsing the bundle")?;
    let programs = bundle["bundle"]["requiredPrograms"].as_array();
    for path in programs.context("the bundle does not say which programs it needs")? {
        let path = path.as_str().context("the name of a program is no text")?;
        write(path.trim_start_matches('/'), "", 0o755)?;
    }
    Ok(())
}

#[derive(Clone, Copy, PartialEq)]
pub enum Times {
    Seen,
    Ignored,
}

/// Everything in a folder by its path there: mode, owner, perhaps times, and content or target.
pub fn entries(root: &Path, times: Times) -> Result<BTreeMap<String, String>> {
    let mut found = BTreeMap::new();
    let mut todo = vec![root.to_owned()];
    while let Some(path) = todo.pop() {
        let metadata = path.symlink_metadata().with_context(|| format!("looking at {path:?}"))?;
        let mut entry = format!("{:06o} {}:{}", metadata.mode(), metadata.uid(), metadata.gid());
        if times == Times::Seen {
            let (modified, changed) = (metadata.mtime_nsec(), metadata.ctime_nsec());
            entry.push_str(&format!(" {}.{modified} {}.{changed}", metadata.mtime(), metadata.ctime()));
        }
        if metadata.is_symlink() {
            entry.push_str(&format!(" -> {}", path.read_link()?.display()));
        } else if metadata.is_dir() {
            for child in path.read_dir().with_context(|| format!("listing {path:?}"))? {
                todo.push(child?.path());
            }
        } else {
            let content = fs::read(&path).with_context(|| format!("reading {path:?}"))?;
            entry.push_str(&format!("\n{}", String::from_utf8_lossy(&content)));
        }
        found.insert(format!("/{}", path.strip_prefix(root)?.display()), entry);
    }
    Ok(found)
}
