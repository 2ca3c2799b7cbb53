//! Which platform this is, by what the machine itself carries. The network is not asked.
//!
//! In this order, the first that says anything:
//! 1. the setting `/etc/nodestrap/platform`, or `nodestrap.platform=` on the kernel's command line: for machines that carry
//!    no sign of their platform or that of another one, such as containers, which see the firmware of their host;
//! 2. a NoCloud seed folder; 3. the firmware's words; 4. `ignition.platform.id=`, with which images are built for a platform;
//! 5. a config drive or a NoCloud volume, and not both. A machine with none of these runs on metal.

use std::path::Path;

use host::disk::Disk;
use host::volumes::{Search, Volume, VolumeError, Volumes};

use crate::error::CloudError;
use crate::{Metadata, Platform, Said, dmi, nocloud, openstack};

pub const PLATFORM_SETTING: &str = "/etc/nodestrap/platform";
const COMMAND_LINE: &str = "/proc/cmdline";
const COMMAND_LINE_KEY: &str = "nodestrap.platform";
const IMAGE_KEY: &str = "ignition.platform.id";
const TEXT_LIMIT: u64 = 64 * 1024;

/// A platform, why it is believed, and where it keeps what it says.
pub struct Identified {
    pub platform: Platform,
    /// The file, the folder or the volume that says so.
    pub by: String,
    pub(crate) place: Place,
    /// Where its metadata service is, if somebody said so.
    pub(crate) address: Option<String>,
}

pub(crate) enum Place {
    /// Only over the network, or nowhere.
    Elsewhere,
    Seed(&'static str),
    Volume(Volume),
}

impl Identified {
    /// Whether what it says comes over the network, and so is worth keeping.
    pub fn is_remote(&self) -> bool {
        let has_service = !matches!(self.platform, Platform::NoCloud | Platform::Metal);
        has_service && matches!(self.place, Place::Elsewhere)
    }

    /// Whether it was read from a volume, which may be gone after the first boot.
    pub fn is_on_volume(&self) -> bool {
        matches!(self.place, Place::Volume(_))
    }

    /// Whether nothing said anything; a setting that says metal is a word.
    pub fn is_by_absence(&self) -> bool {
        self.by.starts_with(NO_MARK)
    }

    pub(crate) fn nothing_said(&self, source: &str) -> Metadata {
        let nothing = Said::nothing(source);
        Metadata {
            platform: Said::new(self.platform.name(), self.by.clone()),
            instance_id: nothing.clone(),
            instance_type: nothing.clone(),
            local_ipv4: nothing.clone(),
            region: nothing.clone(),
            zone: nothing,
        }
    }
}

const NO_MARK: &str = "no platform left its mark";

/// Reads only.
pub fn identify(disk: &dyn Disk, volumes: &dyn Volumes) -> Result<Identified, CloudError> {
    let command_line = read_text(disk, COMMAND_LINE)?.unwrap_or_default();
    if let Some(setting) = read_setting(disk, &command_line)? {
        return place(setting, disk, volumes);
    }
    if let Some(seed) = nocloud::find_seed(disk)? {
        return Ok(found(Platform::NoCloud, seed.to_owned(), Place::Seed(seed)));
    }
    if let Some((platform, file)) = dmi::load(disk)?.platform() {
        let setting = Setting { platform, by: format!("{}/{file}", dmi::DMI_FOLDER), address: None };
        return place(setting, disk, volumes);
    }
    let image = parameter(&command_line, IMAGE_KEY).and_then(parse_platform);
    if let Some(platform) = image.filter(|platform| *platform != Platform::Metal) {
        let setting = Setting { platform, by: format!("{IMAGE_KEY} in {COMMAND_LINE}"), address: None };
        return place(setting, disk, volumes);
    }
    by_volume(volumes)
}

/// All kinds are looked for: two volumes that fit, of whichever kind, are as ambiguous as two of one kind, since a disk that
/// somebody attached could speak for the platform otherwise. A drive that cannot be read may be anybody's, so it does not keep
/// another one from being found. Where there is none, it is the failure: a machine whose platform cannot be read is not one
/// without a platform.
fn by_volume(volumes: &dyn Volumes) -> Result<Identified, CloudError> {
    let (mut candidates, mut told_of, mut failure) = (Vec::new(), Vec::new(), None);
    for (platform, sought) in [(Platform::OpenStack, &openstack::DRIVE), (Platform::NoCloud, &nocloud::VOLUME)] {
        match volumes.open_labelled(sought) {
            Ok(Search { volume, unreadable }) => {
                candidates.extend(volume.map(|volume| (platform, volume)));
                told_of.extend(unreadable);
            }
            Err(error) if error.may_pass() => {
                told_of.push(error.to_string());
                failure = failure.or(Some(error));
            }
            Err(error) => return Err(error.into()),
        }
    }
    if candidates.len() > 1 {
        let volumes = candidates.iter().map(|(_, volume)| volume.to_string()).collect();
        return Err(VolumeError::Ambiguous { volumes }.into());
    }
    match (candidates.pop(), failure) {
        (Some((platform, volume)), _) => Ok(found(platform, told(volume.to_string(), &told_of), Place::Volume(volume))),
        (None, Some(error)) => Err(error.into()),
        (None, None) => Ok(found(Platform::Metal, told(NO_MARK.to_owned(), &told_of), Place::Elsewhere)),
    }
}

fn found(platform: Platform, by: String, place: Place) -> Identified {
    Identified { platform, by, place, address: None }
}

/// What could not be read may have said something else.
fn told(by: String, unreadable: &[String]) -> String {
    std::iter::once(&by).chain(unreadable).map(String::as_str).collect::<Vec<_>>().join("; ")
}

struct Setting {
    platform: Platform,
    by: String,
    address: Option<String>,
}

/// Where a platform that is known by now keeps what it says.
fn place(setting: Setting, disk: &dyn Disk, volumes: &dyn Volumes) -> Result<Identified, CloudError> {
    let Setting { platform, by, address } = setting;
    let sought = match platform {
        Platform::NoCloud => match nocloud::find_seed(disk)? {
            Some(seed) => return Ok(Identified { platform, by, place: Place::Seed(seed), address }),
            None => Some(&nocloud::VOLUME),
        },
        // Whoever names an address wants that asked.
        Platform::OpenStack if address.is_none() => Some(&openstack::DRIVE),
        _ => None,
    };
    let Some(sought) = sought else { return Ok(Identified { platform, by, place: Place::Elsewhere, address }) };
    let Search { volume, unreadable } = volumes.open_labelled(sought)?;
    let place = volume.map_or(Place::Elsewhere, Place::Volume);
    Ok(Identified { platform, by: told(by, &unreadable), place, address })
}

/// `None`: nobody said anything, or `auto`.
fn read_setting(disk: &dyn Disk, command_line: &str) -> Result<Option<Setting>, CloudError> {
    let file = read_text(disk, PLATFORM_SETTING)?;
    let line = file.as_deref().unwrap_or_default().lines().map(str::trim).find(|line| {
        !line.is_empty() && !line.starts_with('#') // the rest is for people
    });
    let (text, path) = match (line, parameter(command_line, COMMAND_LINE_KEY)) {
        (Some(line), _) => (line, PLATFORM_SETTING),
        (None, Some(word)) => (word, COMMAND_LINE),
        (None, None) => return Ok(None),
    };
    let unknown = || CloudError::Setting { path, found: text.chars().take(80).collect() };
    let mut words = text.split_whitespace();
    let name = words.next().unwrap_or_default();
    let address = words.next().map(str::to_owned);
    let has_rest = words.next().is_some();
    if name == "auto" && address.is_none() {
        return Ok(None);
    }
    let platform = parse_platform(name).filter(|_| !has_rest).ok_or_else(unknown)?;
    if address.as_ref().is_some_and(|address| !address.starts_with("http://")) {
        return Err(unknown());
    }
    Ok(Some(Setting { platform, by: path.to_owned(), address }))
}

/// By our names and by those that images are built with.
fn parse_platform(name: &str) -> Option<Platform> {
    Some(match name {
        "aws" | "ec2" => Platform::Aws,
        "gce" | "gcp" => Platform::Gce,
        "azure" => Platform::Azure,
        "openstack" | "openstack-metadata" => Platform::OpenStack,
        "nocloud" => Platform::NoCloud,
        "metal" => Platform::Metal,
        _ => return None,
    })
}

/// The last of several counts, as for the kernel.
fn parameter<'a>(command_line: &'a str, key: &str) -> Option<&'a str> {
    let mut words = command_line.split_whitespace().filter_map(|word| word.split_once('='));
    words.rfind(|(name, _)| *name == key).map(|(_, value)| value)
}

fn read_text(disk: &dyn Disk, path: &str) -> Result<Option<String>, CloudError> {
    let bytes = disk.read(Path::new(path), TEXT_LIMIT)?;
    Ok(bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
}
