//! The arguments of `nodestrap publish` and `nodestrap artefacts`.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Subcommand};
use trust::{Architecture, ArtefactName, OsName, Role, Version};

use crate::pki::args::parse_lifetime;

#[derive(Args)]
pub(crate) struct PublishArguments {
    #[command(flatten)]
    pub(super) store: StoreArguments,
    /// An artefact (repeatable): a program, an archive (tar.gz) with programs inside, or the image (squashfs) of a system extension.
    #[arg(long = "add", value_name = "NAME@VERSION=FILE", required_unless_present_any = ["bundles", "extensions", "ignition"])]
    pub(super) artefacts: Vec<Addition>,
    /// Make the image of a system extension for Flatcar, and publish it (repeatable): what lies under FOLDER/usr is in it.
    #[arg(long = "make-sysext", value_name = "NAME@VERSION=FOLDER")]
    pub(super) extensions: Vec<Addition>,
    /// A bundle, as `nodestrap render --format bundle` writes it (repeatable), in place of artefacts: it is stored under the name
    /// by which user data leads to it.
    #[arg(long = "bundle", value_name = "FILE", conflicts_with_all = ["artefacts", "extensions", "key", "unsigned", "out"])]
    pub(super) bundles: Vec<PathBuf>,
    /// User data for Ignition, as `nodestrap render --format ignition` writes it: it is stored under its digest, and the small
    /// document that leads to it, to be given to machines, is printed. Anybody who has that can read it, until it expires.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["artefacts", "extensions", "bundles", "key", "unsigned", "out"])]
    pub(super) ignition: Option<PathBuf>,
    /// For how long machines can fetch it (s, m, h, d; at most 7d, and with the key of a role no longer than that itself).
    #[arg(long, value_name = "TIME", default_value = "1h", requires = "ignition", value_parser = parse_lifetime)]
    pub(super) expires: Duration,
    /// What the machines are made of, for which these artefacts are.
    #[arg(long, value_name = "ARCHITECTURE", default_value = "amd64", value_parser = parse_word::<Architecture>)]
    pub(super) architecture: Architecture,
    /// The operating system that these artefacts are for (repeatable) [default: any].
    #[arg(long, value_name = "OS")]
    pub(super) os: Vec<OsName>,
    /// The role of the nodes that these artefacts are for [default: any].
    #[arg(long, value_name = "ROLE", value_parser = parse_word::<Role>)]
    pub(super) role: Option<Role>,
    /// The secret OpenPGP key that signs the manifest, as `gpg --export-secret-keys` writes it.
    #[arg(long, value_name = "FILE", required_unless_present_any = ["unsigned", "bundles", "ignition"])]
    pub(super) key: Option<PathBuf>,
    /// A file with the passphrase of the key, if it has one.
    #[arg(long, value_name = "FILE", requires = "key")]
    pub(super) passphrase_file: Option<PathBuf>,
    /// Sign nothing; specs that use it must say `unsigned: true`, and nodes say so for ever.
    #[arg(long, conflicts_with = "key")]
    pub(super) unsigned: bool,
    /// For how long the manifest can be used (s, m, h, d, y).
    #[arg(long, value_name = "TIME", default_value = "90d", value_parser = parse_lifetime)]
    pub(super) lifetime: Duration,
    /// Write the manifest to this file too, and its signature beside it, for `artefacts.manifest` of a spec.
    #[arg(long, value_name = "FILE")]
    pub(super) out: Option<PathBuf>,
}

#[derive(Args)]
pub(crate) struct ArtefactsArguments {
    #[command(subcommand)]
    pub(crate) command: ArtefactsCommand,
}

#[derive(Subcommand)]
pub(crate) enum ArtefactsCommand {
    /// What a store has, by its manifest.
    #[command(after_help = "Example:\n  nodestrap artefacts list ./store --keyring release.asc")]
    List(StoreArguments),
    /// Read everything that the manifest names, and compare size and digest.
    #[command(after_help = "Example:\n  nodestrap artefacts verify s3://nodes/artefacts --keyring release.asc \
                            --s3-region eu-central-1\n\nExit codes: 0 all is whole, 4 something is not.")]
    Verify(StoreArguments),
    /// Remove what the manifest does not name any more.
    #[command(after_help = "Example:\n  nodestrap artefacts gc ./store --keyring release.asc --dry-run")]
    Gc(GcArguments),
}

#[derive(Args)]
pub(crate) struct GcArguments {
    #[command(flatten)]
    pub(super) store: StoreArguments,
    /// Show what would be removed, and touch nothing.
    #[arg(long)]
    pub(super) dry_run: bool,
}

#[derive(Args)]
pub(crate) struct StoreArguments {
    /// A folder of this machine, or s3://BUCKET/FOLDER. The key of a bucket comes from the environment: AWS_ACCESS_KEY_ID,
    /// AWS_SECRET_ACCESS_KEY and, if there is one, AWS_SESSION_TOKEN.
    #[arg(value_name = "FOLDER|s3://…")]
    pub(super) store: String,
    /// Public OpenPGP keys, by one of which the manifest that is in the store is signed (repeatable).
    #[arg(long = "keyring", value_name = "FILE")]
    pub(super) keyrings: Vec<PathBuf>,
    /// The region of the bucket.
    #[arg(long, value_name = "REGION", default_value = "us-east-1")]
    pub(super) s3_region: String,
    /// The service, if it is not that of AWS.
    #[arg(long, value_name = "URL")]
    pub(super) s3_endpoint: Option<String>,
    /// The bucket stands in the path, not in the name of the host.
    #[arg(long)]
    pub(super) s3_path_style: bool,
    /// Authorities (PEM) by which the service may be known, besides those of this machine.
    #[arg(long, value_name = "FILE")]
    pub(super) s3_certificate_authority: Option<PathBuf>,
}

/// `NAME@VERSION=FILE`.
#[derive(Clone)]
pub(crate) struct Addition {
    pub(super) name: ArtefactName,
    pub(super) version: Version,
    pub(super) file: PathBuf,
}

impl FromStr for Addition {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let shape = || "write NAME@VERSION=FILE, such as kubelet@1.36.3=./kubelet".to_owned();
        let (what, file) = text.split_once('=').filter(|(_, file)| !file.is_empty()).ok_or_else(shape)?;
        let (name, version) = what.split_once('@').ok_or_else(shape)?;
        Ok(Self {
            name: ArtefactName::new(name).map_err(|error| error.to_string())?,
            version: Version::new(version).map_err(|error| error.to_string())?,
            file: PathBuf::from(file),
        })
    }
}

fn parse_word<T: FromStr<Err: ToString>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error: T::Err| error.to_string())
}
