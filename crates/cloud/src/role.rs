//! The credentials of an instance role: what opens a private bucket to a machine that was given no key.

use std::time::{Duration, SystemTime};

use fetch::{Credentials, Secret};
use serde::Deserialize;

use crate::aws::Session;
use crate::error::CloudError;
use crate::service::{DOCUMENT_LIMIT, Presence, word};
use crate::{Asking, Identified, Platform};

const FOLDER: &str = "/latest/meta-data/iam/security-credentials/";

/// No `Debug`: it holds secrets.
#[derive(Clone)]
pub struct RoleCredentials {
    pub credentials: Credentials,
    /// The platform has fresh ones some minutes before.
    pub expires: SystemTime,
}

/// `None` if the machine has no role, or is on a platform whose roles open no S3 store.
pub fn role_credentials(
    identified: &Identified,
    asking: &Asking<'_>,
) -> Result<Option<RoleCredentials>, CloudError> {
    if identified.platform != Platform::Aws {
        return Ok(None);
    }
    let mut session = Session::new(identified, asking)?;
    let name = |body: &[u8]| word(body, is_role);
    let role = session.get("the name of the instance role", FOLDER, DOCUMENT_LIMIT, Presence::Perhaps, name)?;
    let Some(role) = role else { return Ok(None) };
    let path = format!("{FOLDER}{role}");
    session.get("the credentials of the instance role", &path, DOCUMENT_LIMIT, Presence::Always, parse)
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Document {
    code: String,
    #[serde(default)]
    access_key_id: String,
    #[serde(default)]
    secret_access_key: String,
    #[serde(default)]
    token: String,
    #[serde(default)]
    expiration: String,
}

/// What is wrong is said without a word of the document.
fn parse(body: &[u8]) -> Result<RoleCredentials, String> {
    let wrong = || "its answer does not have the form of credentials".to_owned();
    let document: Document = serde_json::from_slice(body).map_err(|_| wrong())?;
    if document.code != "Success" {
        let code: String = document.code.chars().filter(char::is_ascii_alphanumeric).take(64).collect();
        return Err(format!("it has no credentials for the instance role: {code}"));
    }
    let Document { access_key_id, secret_access_key, token, expiration, .. } = document;
    let printable = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
    if ![&access_key_id, &secret_access_key, &token].iter().all(|text| printable(text)) {
        return Err(wrong());
    }
    let credentials = Credentials {
        access_key: access_key_id,
        secret_key: Secret::new(secret_access_key),
        session_token: Some(Secret::new(token)),
    };
    Ok(RoleCredentials { credentials, expires: parse_moment(&expiration).ok_or_else(wrong)? })
}

/// A name as IAM allows it; it becomes part of a path.
fn is_role(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"+=,.@_-".contains(&byte);
    (1..=64).contains(&text.len()) && text.bytes().all(allowed) && !matches!(text, "." | "..")
}

/// `2026-11-18T07:00:00Z`.
fn parse_moment(text: &str) -> Option<SystemTime> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let numbers = |text: &str, between: char| -> Option<[u64; 3]> {
        let parts: Option<Vec<u64>> = text.split(between).map(|part| part.parse().ok()).collect();
        parts?.try_into().ok()
    };
    let ([year, month, day], [hour, minute, second]) = (numbers(date, '-')?, numbers(time, ':')?);
    if !(1970..=9999).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    if hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    // Years that begin in March have their leap day at the end.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1 - 719_468;
    Some(SystemTime::UNIX_EPOCH + Duration::from_secs(((days * 24 + hour) * 60 + minute) * 60 + second))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_read() {
        let seconds = |text: &str| {
            parse_moment(text).and_then(|moment| moment.duration_since(SystemTime::UNIX_EPOCH).ok()).map(|d| d.as_secs())
        };
        assert_eq!(seconds("1970-01-01T00:00:00Z"), Some(0));
        assert_eq!(seconds("2000-02-29T23:59:59Z"), Some(951_868_799));
        assert_eq!(seconds("2013-05-24T00:00:00Z"), Some(1_369_353_600));
        assert_eq!(seconds("2100-03-01T00:00:00Z"), Some(4_107_542_400));
        for wrong in ["", "2013-05-24", "2013-13-01T00:00:00Z", "2013-05-24T24:00:00Z", "x-05-24T00:00:00Z"] {
            assert_eq!(seconds(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn what_is_wrong_with_credentials_is_said_without_them() {
        for document in [
            r#"{"Code":"Success","AccessKeyId":"AK","SecretAccessKey":"canary","Token":"canary"}"#,
            r#"{"Code":"Success","AccessKeyId":"AK","SecretAccessKey":"canary canary","Token":"t"}"#,
            r#"{"Code":"AssumeRoleUnauthorizedAccess","SecretAccessKey":"canary"}"#,
            r#"{"SecretAccessKey":"canary""#,
            "<html>canary</html>",
        ] {
            let problem = parse(document.as_bytes()).err().unwrap_or_default();
            assert!(!problem.is_empty() && !problem.contains("canary"), "{problem}");
        }
    }
}
