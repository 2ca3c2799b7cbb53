//! Keys made and used by GnuPG, as its users have them.
//!
//! In: a folder. Out: a key in two armoured halves, and signatures by it. Fails with what GnuPG said.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use tempfile::TempDir;

use crate::command::stdout_of;

/// How long a key is good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Validity {
    AYear,
    /// For what lies in the cache, which nobody makes anew only because time passes.
    ForEver,
}

pub struct SigningKey {
    /// Armoured; without passphrase, because nobody is there to type it.
    pub secret: PathBuf,
    /// The public half, armoured.
    pub keyring: PathBuf,
}

impl SigningKey {
    /// `signing-key.asc` and `keyring.asc` in a folder that nobody else reads.
    pub fn create(folder: &Path) -> Result<Self> {
        Self::create_for(folder, Validity::AYear)
    }

    pub(crate) fn create_for(folder: &Path, validity: Validity) -> Result<Self> {
        let gnupg = GnuPg::start()?;
        let until = match validity {
            Validity::AYear => "1y",
            Validity::ForEver => "never",
        };
        gnupg.run(|gpg| gpg.args(["--quick-generate-key", "lab <lab@nodestrap.local>", "ed25519", "sign", until]))?;
        let [secret, keyring] =
            ["--export-secret-keys", "--export"].map(|half| gnupg.run(|gpg| gpg.args(["--armor", half])));
        let key = Self::in_folder(folder);
        std::fs::write(&key.secret, secret?).with_context(|| format!("writing {}", key.secret.display()))?;
        std::fs::write(&key.keyring, keyring?).with_context(|| format!("writing {}", key.keyring.display()))?;
        Ok(key)
    }

    /// One that was created there.
    pub(crate) fn in_folder(folder: &Path) -> Self {
        Self { secret: folder.join("signing-key.asc"), keyring: folder.join("keyring.asc") }
    }

    /// A GnuPG that knows this key and no other.
    pub(crate) fn unlocked(&self) -> Result<GnuPg> {
        let gnupg = GnuPg::start()?;
        gnupg.run(|gpg| gpg.arg("--import").arg(&self.secret))?;
        Ok(gnupg)
    }
}

/// A home of its own, and the agent that GnuPG starts for it; both gone with this value.
pub(crate) struct GnuPg {
    home: TempDir,
}

impl GnuPg {
    fn start() -> Result<Self> {
        Ok(Self { home: tempfile::tempdir().context("making a folder for GnuPG")? })
    }

    /// For programs that call gpg themselves.
    pub(crate) fn home(&self) -> &Path {
        self.home.path()
    }

    fn run<'a>(&self, arguments: impl FnOnce(&mut Command) -> &mut Command + 'a) -> Result<String> {
        let mut command = Command::new("gpg");
        command.env("GNUPGHOME", self.home()).args([
            "--batch",
            "--yes",
            "--passphrase",
            "",
            "--pinentry-mode",
            "loopback",
        ]);
        stdout_of(arguments(&mut command))
    }

    /// The text with its signature around it.
    pub(crate) fn clear_sign(&self, text: &Path, signed: &Path) -> Result<()> {
        self.run(|gpg| gpg.arg("--output").arg(signed).arg("--clear-sign").arg(text)).map(drop)
    }

    /// Armoured, beside the file.
    pub(crate) fn detach_sign(&self, file: &Path, signature: &Path) -> Result<()> {
        self.run(|gpg| gpg.arg("--output").arg(signature).args(["--armor", "--detach-sign"]).arg(file)).map(drop)
    }
}

impl Drop for GnuPg {
    fn drop(&mut self) {
        // It starts by itself for the first key, and would stay.
        let mut kill = Command::new("gpgconf");
        kill.env("GNUPGHOME", self.home()).args(["--kill", "gpg-agent"]);
        if let Err(error) = stdout_of(&mut kill) {
            eprintln!("lab: ending the agent of GnuPG: {error:#}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gnupg_makes_a_key_in_two_armoured_halves() {
        if !crate::support::has_program("gpg-agent") {
            eprintln!("SKIPPED: there is no GnuPG on this machine");
            return;
        }
        let folder = tempfile::tempdir().expect("temporary folder");
        let key = SigningKey::create(folder.path()).expect("a key");
        let shown = stdout_of(Command::new("gpg").args(["--batch", "--show-keys", "--with-colons"]).arg(&key.keyring));
        assert!(shown.expect("gpg reads it").lines().any(|line| line.starts_with("pub:")));
        let secret = std::fs::read_to_string(&key.secret).expect("the secret half");
        assert!(secret.starts_with("-----BEGIN PGP PRIVATE KEY BLOCK-----"), "{}", &secret[..40]);
    }
}
