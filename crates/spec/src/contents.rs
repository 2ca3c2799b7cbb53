//! Texts that other programs read, written in place or taken from a file: systemd units and OpenPGP keys. What their reader
//! would ignore or refuse is a mistake here. No message repeats a line: units may carry secrets.

use serde_json::{Value, json};
use trust::openpgp::{Keyring, KeyringError};

use crate::items::value_or_file;
use crate::record::{Context, SpecValue};
use crate::tree::{Kind, Node};
use crate::values::Invalid;
use crate::view::Look;

/// The field of a keyring.
pub(crate) const KEYS: &str = "keys";

macro_rules! contents {
    ($($(#[$doc:meta])+ $name:ident($field:expr, $check:path, private: $private:literal)),+ $(,)?) => {
        $(
            $(#[$doc])+
            #[derive(Clone, Debug, PartialEq, Eq)]
            pub struct $name(pub String);

            impl SpecValue for $name {
                fn decode<'n>(context: Context<'n>, node: &'n Node) -> Option<Self> {
                    let text = context.files.checked_text_or_file(context.drafts, node, $field, $check);
                    if $private && text.is_none() && !matches!(node.kind, Kind::Map(_)) {
                        context.drafts.hide(node.span);
                    }
                    text.map(Self)
                }

                fn to_json(&self, _: Look) -> Value {
                    Value::from(self.0.as_str())
                }

                fn schema() -> Value {
                    value_or_file(json!({ "type": "string" }))
                }
            }
        )+
    };
}

contents!(
    /// A systemd unit, or a drop-in for one.
    UnitText("content", validate_unit, private: false),
    /// A whole service, or the body of its `[Service]` section.
    HookText("unit", validate_hook, private: false),
    /// Public keys in ASCII armour. What is none may be a pasted private key.
    PublicKeys(KEYS, validate_public_keys, private: true),
);

fn validate_unit(text: &str) -> Result<(), Invalid> {
    read_unit(text, None, |_, _| {})
}

/// A text without the section is the body of it.
fn validate_hook(text: &str) -> Result<(), Invalid> {
    let is_whole = text.lines().any(|line| line.trim() == "[Service]");
    let mut runs = false;
    read_unit(text, (!is_whole).then_some("Service"), |section, key| {
        runs |= section == "Service" && ["ExecStart", "ExecStop", "SuccessAction"].contains(&key);
    })?;
    match runs {
        true => Ok(()),
        false => Err(Invalid::new("this service runs nothing").advise("write ExecStart=/path/of/a/program")),
    }
}

/// Lines as systemd reads them; unknown sections and keys are its business. `seen` gets each section and key.
fn read_unit<'t>(text: &'t str, body_of: Option<&'t str>, mut seen: impl FnMut(&str, &str)) -> Result<(), Invalid> {
    const SECTIONS: &str = "write a section above it: [Unit], [Service], [Install] …";
    let mut section = body_of;
    let mut first_outside = None;
    let mut goes_on = false;
    for (number, line) in (1..).zip(text.trim_start_matches('\u{feff}').lines()) {
        let content = line.trim();
        if content.starts_with(['#', ';']) {
            continue;
        }
        let backslashes = line.bytes().rev().take_while(|byte| *byte == b'\\').count();
        if std::mem::replace(&mut goes_on, backslashes % 2 == 1) || content.is_empty() {
            continue;
        }
        if let Some(opened) = content.strip_prefix('[') {
            let closed = opened.strip_suffix(']').filter(|name| !name.is_empty());
            section = Some(closed.ok_or_else(|| {
                Invalid::new(format!("line {number} of the unit is not a section")).advise("write it as [Service]")
            })?);
            continue;
        }
        let key = content.split_once('=').map(|(key, _)| key.trim_end()).filter(|key| !key.is_empty());
        let key = key.ok_or_else(|| {
            Invalid::new(format!("line {number} of the unit is neither [Section] nor Key=value"))
                .advise("comments start with #; a line that goes on in the next one ends with \\")
        })?;
        match section {
            Some(section) => seen(section, key),
            None => first_outside = first_outside.or(Some(number)),
        }
    }
    match (section, first_outside) {
        (None, _) => Err(Invalid::new("the unit has no section, so systemd would ignore all of it").advise(SECTIONS)),
        (Some(_), Some(number)) => {
            Err(Invalid::new(format!("line {number} of the unit stands before its first section")).advise(SECTIONS))
        }
        (Some(_), None) => Ok(()),
    }
}

pub(crate) const SHAPE_OF_KEYS: &str =
    "ASCII armour is needed (\"-----BEGIN PGP PUBLIC KEY BLOCK-----\" …): `gpg --armor --export ID`";

/// What the keys say is read as it will be when they are needed: a damaged or revoked key helps nobody.
fn validate_public_keys(text: &str) -> Result<(), Invalid> {
    let private = || Err(Invalid::new("this is a private key; only the public one belongs here").advise(SHAPE_OF_KEYS));
    let armour = text.lines().find_map(|line| line.trim().strip_prefix("-----BEGIN PGP ")?.strip_suffix("-----"));
    match armour {
        None => return Err(Invalid::new("not an OpenPGP keyring").advise(SHAPE_OF_KEYS)),
        Some("PRIVATE KEY BLOCK") => return private(),
        Some(_) => {}
    }
    match Keyring::parse(text.as_bytes()) {
        Ok(_) => Ok(()),
        Err(KeyringError::SecretKey) => private(),
        Err(other) => Err(Invalid::new(other.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(result: Result<(), Invalid>) -> String {
        result.map_or_else(|invalid| invalid.message, |()| "fine".to_owned())
    }

    #[test]
    fn units_are_read_as_systemd_reads_them() {
        for fine in [
            "[Service]",
            "\u{feff}# a comment\n\n[Unit]\r\nDescription = two words\r\n",
            "[X-Mine]\nAnything=goes\n[Service]\nEnvironment=\n",
            "[Service]\nExecStart=/bin/sh -c \\\n  # skipped\n  'no assignment here' \\\n\n[Install]\nWantedBy=a.target",
        ] {
            assert_eq!(message(validate_unit(fine)), "fine", "{fine}");
        }
        for (bad, why) in [
            ("", "no section"),
            ("# only this\n", "no section"),
            ("ExecStart=/bin/true\n", "no section"),
            ("\nA=1\n[Unit]\n", "line 2 of the unit stands before"),
            ("[Unit\nA=1\n", "line 1 of the unit is not a section"),
            ("[]\n", "line 1 of the unit is not a section"),
            ("[Service]\nExecStart /bin/true\n", "line 2 of the unit is neither"),
            ("[Service]\n=x\n", "line 2 of the unit is neither"),
            ("[Service]\nA=ends with two \\\\\nhunter2\n", "line 3 of the unit is neither"),
        ] {
            let message = message(validate_unit(bad));
            assert!(message.contains(why) && !message.contains("hunter2"), "{bad}: {message}");
        }
    }

    #[test]
    fn a_hook_is_a_service_or_the_body_of_one() {
        for fine in ["ExecStart=/bin/true", "[Unit]\nAfter=a.service\n[Service]\nExecStart=/bin/true\n"] {
            assert_eq!(message(validate_hook(fine)), "fine", "{fine}");
        }
        for bad in ["", "Environment=A=b", "[Unit]\nAfter=a.service\nExecStart=/bin/true", "[Service]\n"] {
            assert_eq!(message(validate_hook(bad)), "this service runs nothing", "{bad}");
        }
        assert!(message(validate_hook("/bin/true")).contains("neither"));
        assert!(message(validate_hook("A=b\n[Service]\nExecStart=/bin/true")).contains("before"));
    }

    #[test]
    fn keyrings_hold_public_keys() {
        let armour = |what: &str, body: &str| format!("-----BEGIN PGP {what}-----\n{body}-----END PGP {what}-----\n");
        let public = |body: &str| armour("PUBLIC KEY BLOCK", body);
        // Of the examples; its secret half was thrown away.
        let key = include_str!("../../../examples/artefacts-keys.asc");
        for fine in [key.to_owned(), format!("my key\n{key}"), format!("{key}{key}")] {
            assert_eq!(message(validate_public_keys(&fine)), "fine", "{fine}");
        }
        for (bad, why) in [
            (String::new(), "not an OpenPGP keyring"),
            ("https://example.com/key.asc".to_owned(), "not an OpenPGP keyring"),
            (armour("SIGNATURE", "\niHUEABYK\n"), "the keyring"),
            (public("\nnot a key\n"), "the keyring"),
            (public("\n"), "the keyring"),
            (key[..key.len() / 2].to_owned(), "the keyring is damaged"),
        ] {
            let message = message(validate_public_keys(&bad));
            assert!(message.contains(why), "{bad}: {message}");
        }
    }
}
