//! What torcx writes when it has applied a profile: without it `torcx.target` fails.

use std::collections::BTreeMap;

/// Gone after a boot.
pub const SEAL_PATH: &str = "/run/metadata/torcx";

const LOWER: &str = "TORCX_LOWER_PROFILES";
const UPPER: &str = "TORCX_UPPER_PROFILE";
const PROFILE: &str = "TORCX_PROFILE_PATH";
const PROGRAMS: &str = "TORCX_BINDIR";
const UNPACKED: &str = "TORCX_UNPACKDIR";

/// Texts are empty where the seal does not say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seal {
    /// In the order in which they were merged.
    pub lower_profiles: Vec<String>,
    /// The profile that was the next one when the machine booted.
    pub upper_profile: String,
    pub profile_path: String,
    pub programs: String,
    pub unpacked: String,
}

impl Seal {
    /// Takes what it can: what is no assignment of these is left out, as systemd does.
    pub fn parse(text: &str) -> Self {
        let assignments = text.lines().filter_map(|line| line.trim().split_once('='));
        let said: BTreeMap<&str, &str> = assignments.map(|(key, value)| (key, value.trim_matches('"'))).collect();
        let get = |key| said.get(key).copied().unwrap_or_default().to_owned();
        let lower = get(LOWER);
        Self {
            lower_profiles: lower.split(':').filter(|name| !name.is_empty()).map(str::to_owned).collect(),
            upper_profile: get(UPPER),
            profile_path: get(PROFILE),
            programs: get(PROGRAMS),
            unpacked: get(UNPACKED),
        }
    }

    pub fn to_text(&self) -> String {
        let lower = self.lower_profiles.join(":");
        let lines = [
            (LOWER, lower.as_str()),
            (UPPER, &self.upper_profile),
            (PROFILE, &self.profile_path),
            (PROGRAMS, &self.programs),
            (UNPACKED, &self.unpacked),
        ];
        lines.map(|(key, value)| format!("{key}=\"{value}\"\n")).concat()
    }
}
