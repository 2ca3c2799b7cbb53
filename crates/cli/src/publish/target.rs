//! Where a store lies: a folder of this machine, or a bucket. Objects are never changed, only the manifest is replaced.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use fetch::{
    Bucket, Credentials, Digest, Download, Mixing, Network, Patience, Request, S3, S3Settings, Secret, Sink, SinkError,
    Slowest, Style, Upload,
};
use host::disk::{Disk, Kind, RootedDisk};
use host::files;
use host::machine::random_u64;
use sha2::{Digest as _, Sha256};

use crate::outcome::{Code, Failure, OrFail};
use crate::pki::files::now;
use crate::publish::args::StoreArguments;
use crate::publish::read_input;

/// Everybody may read a store: what is secret does not belong there.
const FOLDER_MODE: u32 = 0o755;
const FILE_MODE: u32 = 0o644;
/// Read at once.
const PIECE: usize = 256 * 1024;
/// For one object; a bucket that is slower than this for a hundred megabytes is of no use to a node either.
const OVERALL: Duration = Duration::from_secs(1800);
/// In folders of ours: name, version, object.
const DEEPEST: usize = 4;

pub(super) enum Target {
    Folder { disk: RootedDisk, path: PathBuf },
    Bucket { place: String, settings: S3Settings, credentials: Credentials, authorities: Option<String> },
}

/// What bytes are known by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) size: u64,
    pub(super) sha256: [u8; 32],
}

impl Known {
    pub(super) fn of(bytes: &[u8]) -> Self {
        Self { size: bytes.len() as u64, sha256: Sha256::digest(bytes).into() }
    }

    pub(super) fn read(reader: &mut dyn Read) -> anyhow::Result<Self> {
        Self::read_with(reader, |_| Ok(()))
    }

    /// To the end; whoever wants the bytes gets them piece by piece.
    fn read_with(reader: &mut dyn Read, mut take: impl FnMut(&[u8]) -> anyhow::Result<()>) -> anyhow::Result<Self> {
        let (mut sum, mut piece) = (Sum::default(), vec![0; PIECE]);
        loop {
            match reader.read(&mut piece)? {
                0 => return Ok(sum.known()),
                count => {
                    take(&piece[..count])?;
                    sum.append(&piece[..count])?;
                }
            }
        }
    }

    pub(super) fn digest(&self) -> Digest {
        Digest::Sha256(self.sha256)
    }
}

impl Target {
    pub(super) fn open(arguments: &StoreArguments) -> Result<Self, Failure> {
        let Some(rest) = arguments.store.strip_prefix("s3://") else {
            let path = std::path::absolute(&arguments.store).or_fail(Code::WrongInput)?;
            let disk = RootedDisk::open_trusted(&path, FOLDER_MODE)
                .with_context(|| format!("cannot use the folder {:?}", path.display().to_string()));
            return Ok(Self::Folder { disk: disk.or_fail(Code::NeedsPerson)?, path });
        };
        if rest.split('/').next().is_none_or(str::is_empty) {
            return Err(anyhow::anyhow!("{:?} names no bucket: write s3://BUCKET/FOLDER", arguments.store))
                .or_fail(Code::WrongInput);
        }
        Ok(Self::Bucket {
            place: arguments.store.trim_end_matches('/').to_owned(),
            settings: S3Settings {
                region: arguments.s3_region.clone(),
                endpoint: arguments.s3_endpoint.clone(),
                style: if arguments.s3_path_style { Style::Path } else { Style::Host },
            },
            credentials: Credentials {
                access_key: variable("AWS_ACCESS_KEY_ID")?,
                secret_key: Secret::new(variable("AWS_SECRET_ACCESS_KEY")?),
                session_token: std::env::var("AWS_SESSION_TOKEN").ok().map(Secret::new),
            },
            authorities: arguments.s3_certificate_authority.as_deref().map(read_authorities).transpose()?,
        })
    }

    /// As people know it.
    pub(super) fn place_of(&self, name: &str) -> String {
        match self {
            Self::Folder { path, .. } => path.join(name).display().to_string(),
            Self::Bucket { place, .. } => format!("{place}/{name}"),
        }
    }

    /// A small document, whole; `None` if there is none.
    pub(super) fn read(&self, name: &str, limit: usize) -> anyhow::Result<Option<Vec<u8>>> {
        match self {
            Self::Folder { disk, .. } => Ok(disk.read(&inside(name), limit as u64)?),
            Self::Bucket { .. } => self.in_bucket(|bucket| {
                let place = self.place_of(name);
                if bucket.head(&place)?.is_none() {
                    return Ok(None);
                }
                let request = Request {
                    what: name,
                    urls: std::slice::from_ref(&place),
                    network: bucket.network,
                    limit,
                    patience: bucket.patience,
                    random: &random_u64,
                    tell: &|_| (),
                };
                Ok(Some(fetch::fetch(&request, |body| Ok::<_, std::convert::Infallible>(body.to_vec()))?))
            }),
        }
    }

    /// What an object really is, byte by byte; `None` if there is none.
    pub(super) fn look(&self, name: &str, expected: &Known) -> anyhow::Result<Option<Known>> {
        match self {
            Self::Folder { disk, .. } => match disk.open(&inside(name))? {
                None => Ok(None),
                Some(mut reader) => Ok(Some(Known::read(&mut reader)?)),
            },
            Self::Bucket { .. } => self.in_bucket(|bucket| {
                let place = self.place_of(name);
                let Some(stored) = bucket.head(&place)? else { return Ok(None) };
                if stored.size != expected.size {
                    return Ok(Some(Known { size: stored.size, sha256: stored.sha256.unwrap_or_default() }));
                }
                let mut sum = Sum::default();
                let download = Download {
                    what: name,
                    places: std::slice::from_ref(&place),
                    without: &[],
                    size: stored.size,
                    digest: expected.digest(),
                    mixing: Mixing::Allowed,
                    network: bucket.network,
                    patience: bucket.patience,
                    slowest: Slowest::default(),
                    random: &random_u64,
                    tell: &|_| (),
                };
                let _whole = fetch::download(&download, &mut sum)?;
                Ok(Some(sum.known()))
            }),
        }
    }

    /// Whether the object need not be put again. A bucket is believed what it says of an object that we put there: it verified
    /// the sum then, and reading everything anew would take as long as sending it.
    pub(super) fn has(&self, name: &str, expected: &Known) -> anyhow::Result<bool> {
        match self {
            Self::Folder { .. } => Ok(self.look(name, expected)? == Some(*expected)),
            Self::Bucket { .. } => self.in_bucket(|bucket| {
                let stored = bucket.head(&self.place_of(name))?;
                Ok(stored.is_some_and(|stored| stored.size == expected.size && stored.sha256 == Some(expected.sha256)))
            }),
        }
    }

    /// Durable, and whole for everybody who looks.
    pub(super) fn put_file(&self, name: &str, source: &Path, known: &Known) -> anyhow::Result<()> {
        match self {
            Self::Folder { disk, .. } => put_into_folder(disk, name, source, known),
            Self::Bucket { .. } => {
                let open = || Ok(Box::new(std::fs::File::open(source)?) as Box<dyn Read + Send>);
                self.upload(name, known, &open)
            }
        }
    }

    /// A small document, which replaces the one that is there; `mode` is for folders.
    pub(super) fn put(&self, name: &str, bytes: &[u8], mode: u32) -> anyhow::Result<()> {
        match self {
            Self::Folder { disk, .. } => Ok(files::write_durable(disk, &inside(name), mode, bytes, None)?),
            Self::Bucket { .. } => {
                let open = || Ok(Box::new(std::io::Cursor::new(bytes.to_vec())) as Box<dyn Read + Send>);
                self.upload(name, &Known::of(bytes), &open)
            }
        }
    }

    /// Every object, by name, with its size; sorted.
    pub(super) fn list(&self) -> anyhow::Result<Vec<(String, u64)>> {
        let mut found = Vec::new();
        match self {
            Self::Folder { disk, .. } => list_folder(disk, Path::new("/"), DEEPEST, &mut found)?,
            Self::Bucket { place, .. } => {
                let listed = self.in_bucket(|bucket| Ok(bucket.list(&format!("{place}/"))?))?;
                let rest = place.strip_prefix("s3://").unwrap_or(place);
                let prefix = rest.split_once('/').map_or(String::new(), |(_, folder)| format!("{folder}/"));
                found.extend(
                    listed
                        .into_iter()
                        .filter_map(|object| Some((object.key.strip_prefix(prefix.as_str())?.to_owned(), object.size))),
                );
            }
        }
        found.sort();
        Ok(found)
    }

    pub(super) fn remove(&self, name: &str) -> anyhow::Result<()> {
        match self {
            Self::Folder { disk, .. } => {
                files::remove_durable(disk, &inside(name))?;
                // Folders that became empty go, too; the first that is not ends it.
                let mut folder = inside(name);
                while folder.pop() && folder != Path::new("/") && disk.list(&folder)?.is_empty() {
                    files::remove_durable(disk, &folder)?;
                }
                Ok(())
            }
            Self::Bucket { .. } => self.in_bucket(|bucket| Ok(bucket.delete(&self.place_of(name))?)),
        }
    }

    /// The address at which a machine without any key can fetch an object until it expires: over https only.
    pub(super) fn presign(&self, name: &str, expires: Duration) -> anyhow::Result<String> {
        if matches!(self, Self::Folder { .. }) {
            anyhow::bail!("a folder has no address that a machine could be given; use a bucket (s3://…)");
        }
        let address = self.in_bucket(|bucket| {
            let s3 = bucket.network.s3.context("this store is no bucket")?;
            Ok(s3.presign(&self.place_of(name), expires)?)
        })?;
        // What user data holds is secret, and so is the address.
        anyhow::ensure!(
            address.starts_with("https://"),
            "the endpoint of the bucket is not https, which user data needs"
        );
        Ok(address)
    }

    fn upload(
        &self,
        name: &str,
        known: &Known,
        open: &dyn Fn() -> std::io::Result<Box<dyn Read + Send>>,
    ) -> anyhow::Result<()> {
        let upload = Upload { size: known.size, sha256: known.sha256, open };
        self.in_bucket(|bucket| Ok(bucket.put(&self.place_of(name), &upload)?))
    }

    fn in_bucket<T>(&self, ask: impl FnOnce(&Bucket<'_>) -> anyhow::Result<T>) -> anyhow::Result<T> {
        let Self::Bucket { settings, credentials, authorities, .. } = self else {
            anyhow::bail!("this store is no bucket")
        };
        let s3 = S3 { settings, credentials: Some(credentials), now: &now };
        let network = Network { authorities: authorities.as_deref(), s3: Some(s3), ..Network::default() };
        ask(&Bucket { network, patience: Patience::of_download(OVERALL), random: &random_u64 })
    }
}

fn read_authorities(path: &Path) -> Result<String, Failure> {
    let shown = path.display().to_string();
    String::from_utf8(read_input(path)?).with_context(|| format!("{shown:?} is no PEM")).or_fail(Code::WrongInput)
}

fn variable(name: &str) -> Result<String, Failure> {
    let value = std::env::var(name).ok().filter(|value| !value.is_empty());
    value
        .ok_or_else(|| anyhow::anyhow!("a bucket needs a key: set {name} in the environment"))
        .or_fail(Code::WrongInput)
}

fn inside(name: &str) -> PathBuf {
    Path::new("/").join(name)
}

/// Under a temporary name until it is whole and on the disk.
fn put_into_folder(disk: &RootedDisk, name: &str, source: &Path, known: &Known) -> anyhow::Result<()> {
    let path = inside(name);
    let (Some(folder), Some(file)) = (path.parent(), path.file_name()) else { anyhow::bail!("{name:?} is no name") };
    files::make_folder_durable(disk, folder, FOLDER_MODE)?;
    let temporary = folder.join(format!(".{}.nodestrap-new", file.to_string_lossy()));
    disk.remove(&temporary)?;
    disk.create(&temporary, FILE_MODE, &[])?;
    let append = |piece: &[u8]| Ok(disk.append(&temporary, piece)?);
    let copied = std::fs::File::open(source).map_err(anyhow::Error::from);
    let copied = copied.and_then(|mut file| Known::read_with(&mut file, append)).and_then(|copied| {
        anyhow::ensure!(copied == *known, "{:?} changed while it was read", source.display().to_string());
        disk.sync_file(&temporary)?;
        disk.rename(&temporary, &path)?;
        Ok(disk.sync_folder(folder)?)
    });
    if copied.is_err() {
        // Space back; the first error is the one that counts.
        let _ = disk.remove(&temporary);
    }
    copied
}

fn list_folder(disk: &RootedDisk, folder: &Path, depth: usize, found: &mut Vec<(String, u64)>) -> anyhow::Result<()> {
    for name in disk.list(folder)? {
        let path = folder.join(&name);
        match disk.stat(&path)? {
            Some(stat) if stat.kind == Kind::File => {
                let relative = path.strip_prefix("/").unwrap_or(&path);
                found.push((relative.display().to_string(), stat.size));
            }
            Some(stat) if stat.kind == Kind::Folder && depth > 0 => list_folder(disk, &path, depth - 1, found)?,
            _ => {}
        }
    }
    Ok(())
}

/// Bytes that are only counted and hashed.
#[derive(Default)]
struct Sum {
    hasher: Sha256,
    size: u64,
}

impl Sum {
    fn known(self) -> Known {
        Known { size: self.size, sha256: self.hasher.finalize().into() }
    }
}

impl Sink for Sum {
    fn kept(&self) -> u64 {
        self.size
    }

    fn append(&mut self, bytes: &[u8]) -> Result<(), SinkError> {
        self.hasher.update(bytes);
        self.size += bytes.len() as u64;
        Ok(())
    }

    fn discard(&mut self) -> Result<(), SinkError> {
        *self = Self::default();
        Ok(())
    }
}
