//! A bundle on its way to a machine: user data in each format, and what keeps machines of a group coming back.
//!
//! Inputs: a [`Bundle`], and how nodestrap itself gets onto the machine ([`Installation`]). Outputs: the bytes of the user
//! data with their digest ([`user_data`]), and the documents with which a provider starts machines that carry it
//! ([`machines`]). The way back, from user data to bundle, is [`bundle::read_user_data`].
//!
//! | format | installs nodestrap | carries additional parts | whole user data as gzip |
//! |---|---|---|---|
//! | cloud-config | no | no | AWS, OpenStack |
//! | MIME | by a part handler | any | AWS, OpenStack |
//! | Ignition 3.4, 2.3 | as a remote file with its hash | Ignition configs | never: Ignition does not unpack it |

mod bootstrap_unit;
mod cloud_config;
mod gzip;
mod ignition;
pub mod machines;
mod mime;

use std::fmt;

use bundle::{Bundle, Digest, File, S3, Stub, UserDataPart, is_lower_hex, validate_url};

use crate::error::RenderError;

pub use bootstrap_unit::bootstrap_unit;
pub use cloud_config::cloud_config;
pub use mime::PART_HANDLER;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    CloudConfig,
    /// `multipart/mixed`, as cloud-init reads it.
    Mime,
    /// Spec 3.4.0.
    Ignition3,
    /// Spec 2.3.0, of Container Linux and Flatcar.
    Ignition2,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provider {
    Aws,
    Gce,
    Azure,
    Openstack,
    /// Machines of one's own: NoCloud, a config drive, or a file on the disk.
    Metal,
}

/// How nodestrap itself reaches the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Installation {
    /// The image brings the binary, and `k8s-node-bootstrap.service` enabled.
    InImage,
    Download {
        /// Mirrors, in the order in which they are tried; Ignition knows only one source and gets the first.
        urls: Vec<String>,
        /// Of the binary, 64 lower-case hexadecimal digits.
        sha256: String,
        /// The same, 128 digits; Ignition 2.3 verifies nothing else.
        sha512: Option<String>,
        /// Ignition 2.3 knows none, and asks the mirror directly.
        proxy: Proxy,
    },
}

/// By whom the world is reached, and what is reached without.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Proxy {
    pub http: Option<String>,
    pub https: Option<String>,
    /// Names, suffixes, addresses and networks.
    pub direct: Vec<String>,
}

impl Proxy {
    fn is_none(&self) -> bool {
        self.http.is_none() && self.https.is_none()
    }
}

/// Where bundles lie that are too large for user data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Store {
    /// Base addresses; [`Stub::object_name`] names the object under each.
    pub urls: Vec<String>,
    /// PEM, for `https`; `None`: what the machine trusts already.
    pub certificate_authorities: Option<String>,
    /// For those in buckets.
    pub s3: Option<S3>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compress {
    /// The whole user data as gzip wherever the provider hands it on unchanged and the machine unpacks it.
    WhereTaken,
    Never,
}

pub struct Delivery<'a> {
    pub bundle: &'a Bundle,
    pub installation: &'a Installation,
    /// Where the binary lies or is put.
    pub nodestrap_path: &'a str,
    pub additional: &'a [UserDataPart],
    pub store: Option<&'a Store>,
    pub provider: Provider,
    pub compress: Compress,
}

/// What a machine is started with. It may hold secrets: keep it as such.
#[derive(Clone, PartialEq, Eq)]
pub struct UserData {
    pub bytes: Vec<u8>,
    pub media_type: &'static str,
    /// Of `bytes`.
    pub digest: Digest,
    /// What it is made of and how many bytes each takes, before the whole is compressed.
    pub parts: Vec<(String, usize)>,
    pub carries: Carries,
}

/// What lies at [`bundle::BUNDLE_PATH`] once the user data has arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Carries {
    Bundle,
    /// The bundle itself has to be published in the store, before the first machine starts.
    Stub(Stub),
}

/// The user data of a group of machines. If the whole bundle is more than the provider takes, a stub goes in its place,
/// given a store; without one that is an error which names the largest parts.
pub fn user_data(format: Format, delivery: &Delivery<'_>) -> Result<UserData, RenderError> {
    delivery.bundle.validate().map_err(|problem| RenderError::Bundle { problem })?;
    validate_installation(delivery.installation)?;
    let (json, digest) = delivery.bundle.to_json_with_digest();
    let whole = assemble(format, delivery, &digest, json.as_bytes(), Carries::Bundle)?;
    let Some(limit) = delivery.provider.limit().filter(|limit| whole.bytes.len() > *limit) else {
        return Ok(whole);
    };
    let Some(store) = delivery.store else {
        return Err(too_large(delivery, limit, &whole, &delivery.bundle.files));
    };
    let stub = Stub::new(delivery.bundle, &store.urls, store.certificate_authorities.as_deref(), store.s3.as_ref())
        .map_err(|source| RenderError::Stub { source })?;
    let json = stub.to_json();
    let small = assemble(format, delivery, &digest, json.as_bytes(), Carries::Stub(stub))?;
    if small.bytes.len() > limit {
        return Err(too_large(delivery, limit, &small, &[]));
    }
    Ok(small)
}

/// A document before it is compressed and named by its digest.
pub(crate) struct Assembly {
    pub(crate) bytes: Vec<u8>,
    pub(crate) media_type: &'static str,
    pub(crate) parts: Vec<(String, usize)>,
}

fn assemble(
    format: Format,
    delivery: &Delivery<'_>,
    digest: &Digest,
    payload: &[u8],
    carries: Carries,
) -> Result<UserData, RenderError> {
    let assembly = match format {
        Format::CloudConfig => assemble_cloud_config(delivery, digest, payload)?,
        Format::Mime => mime::assemble(delivery, digest, payload)?,
        Format::Ignition3 => ignition::assemble(ignition::Version::V3, delivery, payload)?,
        Format::Ignition2 => ignition::assemble(ignition::Version::V2, delivery, payload)?,
    };
    let gzip = delivery.compress == Compress::WhereTaken && delivery.provider.takes_gzip(format);
    let (bytes, media_type) = if gzip {
        (gzip::compress(&assembly.bytes), "application/gzip")
    } else {
        (assembly.bytes, assembly.media_type)
    };
    let digest = Digest::of(&bytes);
    Ok(UserData { bytes, media_type, digest, parts: assembly.parts, carries })
}

fn assemble_cloud_config(delivery: &Delivery<'_>, digest: &Digest, payload: &[u8]) -> Result<Assembly, RenderError> {
    if matches!(delivery.installation, Installation::Download { .. }) {
        return Err(RenderError::InstallationNeedsMime);
    }
    if let Some(part) = delivery.additional.first() {
        return Err(RenderError::AdditionalPart {
            name: part.name.clone(),
            problem: "cannot be carried by cloud-config, which is one document: use the format mime",
        });
    }
    let bytes = cloud_config::render(delivery.bundle, digest, payload).into_bytes();
    let parts = vec![("bundle".to_owned(), bytes.len())];
    Ok(Assembly { bytes, media_type: "text/cloud-config", parts })
}

impl Provider {
    /// Most bytes of user data, as the machine gets them.
    pub fn limit(self) -> Option<usize> {
        match self {
            Self::Aws => Some(16 * 1024),
            // A value of the metadata.
            Self::Gce => Some(256 * 1024),
            Self::Azure => Some(65_535),
            // Nova counts 65535 characters of base64: four for every three bytes.
            Self::Openstack => Some(65_535 / 4 * 3),
            Self::Metal => None,
        }
    }

    /// Whether user data of this format may be gzip as a whole. cloud-init unpacks it, but not every way to the machine
    /// is made for bytes that are no text, and where the limit is large there is nothing to gain.
    pub fn takes_gzip(self, format: Format) -> bool {
        let cloud_init = matches!(format, Format::CloudConfig | Format::Mime);
        cloud_init && matches!(self, Self::Aws | Self::Openstack)
    }
}

impl fmt::Display for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Aws => "AWS",
            Self::Gce => "GCE",
            Self::Azure => "Azure",
            Self::Openstack => "OpenStack",
            Self::Metal => "metal",
        })
    }
}

/// The bytes are left out: they carry the bundle's secrets.
impl fmt::Debug for UserData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UserData")
            .field("size", &self.bytes.len())
            .field("media_type", &self.media_type)
            .field("digest", &self.digest)
            .field("parts", &self.parts)
            .field("carries", &self.carries)
            .finish_non_exhaustive()
    }
}

fn validate_installation(installation: &Installation) -> Result<(), RenderError> {
    let Installation::Download { urls, sha256, sha512, .. } = installation else { return Ok(()) };
    let refuse = |problem: &'static str| Err(RenderError::Download { problem });
    if urls.is_empty() {
        return refuse("has no address to download from");
    }
    for url in urls {
        if let Err(problem) = validate_url(url) {
            return refuse(problem);
        }
    }
    if !is_lower_hex(sha256, 64) {
        return refuse("needs a SHA-256 of 64 lower-case hexadecimal digits");
    }
    match sha512 {
        Some(digest) if !is_lower_hex(digest, 128) => {
            refuse("has a SHA-512 that is not 128 lower-case hexadecimal digits")
        }
        _ => Ok(()),
    }
}

/// Names what is worth making smaller: the parts of the user data, and the files of the bundle in it.
fn too_large(delivery: &Delivery<'_>, limit: usize, data: &UserData, files: &[File]) -> RenderError {
    const NAMED: usize = 3;
    let largest = |mut sizes: Vec<(String, usize)>| {
        sizes.sort_by(|one, other| other.1.cmp(&one.1).then_with(|| one.0.cmp(&other.0)));
        let named: Vec<String> =
            sizes.iter().take(NAMED).map(|(name, bytes)| format!("'{name}' with {bytes} bytes")).collect();
        named.join(", ")
    };
    let mut parts = largest(data.parts.clone());
    if !files.is_empty() {
        let files = files.iter().map(|file| (file.path.to_string(), file.content.len())).collect();
        parts.push_str(&format!("; in the bundle {}", largest(files)));
    }
    RenderError::UserDataTooLarge {
        provider: delivery.provider,
        bytes: data.bytes.len(),
        limit,
        parts,
        advice: match delivery.store {
            None => "make them smaller, or set delivery.store, so that the machine fetches the bundle from there",
            Some(_) => "make them smaller: the bundle itself is in the store already",
        },
    }
}
