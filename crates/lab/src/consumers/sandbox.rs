//! A node's tree to run one program in: the Debian of the lab, folders of ours over it, and nothing that it does remains.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use tempfile::TempDir;

/// All mounts are in a namespace of their own, so that the kernel removes them with the last process, however it ends.
const ENTER: &str = r#"
layers=$1 work=$2 input=$3; shift 3
mount -t tmpfs -o mode=0755 tmpfs "$work"
mkdir "$work/upper" "$work/work" "$work/root"
mount -t overlay overlay -o "lowerdir=$layers,upperdir=$work/upper,workdir=$work/work" "$work/root"
mount -t proc proc "$work/root/proc"
mount -t tmpfs tmpfs "$work/root/run"
mount --bind /dev/null "$work/root/dev/null"
mount --bind "$input" "$work/root/mnt"
exec chroot "$work/root" "$@"
"#;

/// Alive as long as the command that it made may run.
pub(super) struct Sandbox {
    work: TempDir,
    /// The first is the top one.
    layers: Vec<PathBuf>,
}

impl Sandbox {
    pub(super) fn over(layers: &[&Path]) -> Result<Self> {
        let work = tempfile::tempdir().context("making a folder for the sandbox")?;
        Ok(Self { work, layers: layers.iter().map(|layer| (*layer).to_owned()).collect() })
    }

    /// A program of the tree, with a folder of this machine under `/mnt`.
    pub(super) fn command(&self, input: &Path, program: &str) -> Command {
        let layers: Vec<String> = self.layers.iter().map(|layer| layer.display().to_string()).collect();
        let mut command = without_network();
        command.args(["--mount", "--pid", "--fork", "--kill-child", "sh", "-euc", ENTER, "sandbox"]);
        command.arg(layers.join(":")).arg(self.work.path()).arg(input).arg(program);
        // There is no systemd to talk to: `systemctl enable` makes its links, `systemctl start` does nothing.
        command
            .env_clear()
            .env("SYSTEMD_OFFLINE", "1")
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("LC_ALL", "C.UTF-8");
        command
    }
}

/// For a program of this machine, which gets a network namespace in which not even loopback is up.
pub(super) fn without_network() -> Command {
    let mut command = Command::new("unshare");
    command.arg("--net");
    command
}
