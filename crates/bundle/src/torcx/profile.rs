//! Which images torcx applies at the next boot, and which it has applied in this one.

use serde_json::json;

use super::json::{At, FormatError, open, parse};
use super::names::{AddonName, AddonVersion, ProfileName};
use crate::names::InvalidName;

const WHAT: &str = "profile";
const KINDS: [&str; 2] = ["profile-manifest-v0", "profile-manifest-v1"];
/// The profile of the operating system itself, which nobody may change.
const VENDOR: &str = "vendor";
const SUFFIX: &str = ".json";

/// Images in the order in which they are applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    pub kind: ProfileKind,
    pub images: Vec<ImageReference>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProfileKind {
    V0,
    /// Each image may name a remote.
    V1,
}

/// As it was written: what others put into a profile is theirs, and only kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageReference {
    pub name: String,
    /// Empty: an image of a lower profile is taken away.
    pub reference: String,
    /// Where torcx itself may fetch it from; empty in v0.
    pub remote: String,
}

impl Profile {
    /// Without images.
    pub fn empty() -> Self {
        Self { kind: ProfileKind::V0, images: Vec::new() }
    }

    pub fn parse(bytes: &[u8]) -> Result<Self, FormatError> {
        let json = parse(WHAT, bytes)?;
        let (kind, value) = open(WHAT, &json, &KINDS, "'profile-manifest-v0' and 'profile-manifest-v1'")?;
        let kind = if kind == KINDS[0] { ProfileKind::V0 } else { ProfileKind::V1 };
        let image = |at: &At<'_>| {
            let remote = if kind == ProfileKind::V1 { at.field("remote")?.text()? } else { String::new() };
            Ok(ImageReference { name: at.field("name")?.name()?, reference: at.field("reference")?.text()?, remote })
        };
        let images = value.field("images")?.items()?;
        Ok(Self { kind, images: images.iter().map(image).collect::<Result<_, _>>()? })
    }

    /// Which version of an addon is applied; `None` also where it is taken away.
    pub fn version_of(&self, addon: &AddonName) -> Option<&str> {
        let found = self.images.iter().find(|image| image.name == addon.as_str());
        found.map(|image| image.reference.as_str()).filter(|reference| !reference.is_empty())
    }

    /// With this version of an addon, in the place where another one was. Everything else stays, remotes too.
    pub fn with(mut self, addon: &AddonName, version: &AddonVersion) -> Self {
        let mut found = self.images.iter_mut().filter(|image| image.name == addon.as_str());
        match found.next() {
            Some(image) => image.reference = version.to_string(),
            None => {
                let (name, reference) = (addon.to_string(), version.to_string());
                self.images.push(ImageReference { name, reference, remote: String::new() });
            }
        }
        let mut is_first = true;
        self.images.retain(|image| image.name != addon.as_str() || std::mem::take(&mut is_first));
        self
    }

    pub fn to_json(&self) -> String {
        let image = |image: &ImageReference| {
            let mut entry = json!({ "name": image.name, "reference": image.reference });
            if self.kind == ProfileKind::V1 && !image.remote.is_empty() {
                entry["remote"] = image.remote.clone().into();
            }
            entry
        };
        let images: Vec<_> = self.images.iter().map(image).collect();
        let kind = match self.kind {
            ProfileKind::V0 => KINDS[0],
            ProfileKind::V1 => KINDS[1],
        };
        crate::json::pretty(&json!({ "kind": kind, "value": { "images": images } }))
    }
}

impl ProfileName {
    /// What `/etc/torcx/next-profile` says; `None` if it says nothing.
    pub fn parse_next(text: &str) -> Result<Option<Self>, InvalidName> {
        let name = text.trim();
        let name = name.strip_suffix(SUFFIX).unwrap_or(name);
        if name.is_empty() { Ok(None) } else { Self::new(name).map(Some) }
    }

    /// As torcx writes it there.
    pub fn to_next(&self) -> String {
        format!("{self}\n")
    }

    /// Where it is described.
    pub fn path(&self) -> String {
        format!("{}/{self}{SUFFIX}", super::PROFILES_FOLDER)
    }
}

/// Whose images are changed: those of the profile that is to come, unless that is the system's own.
pub fn choose_profile(next: Option<&ProfileName>, wanted: &ProfileName) -> ProfileName {
    next.filter(|next| next.as_str() != VENDOR).unwrap_or(wanted).clone()
}
