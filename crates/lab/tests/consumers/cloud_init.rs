//! `cloud-init schema` for each cloud-config, cloud-init's own reader for each multipart message, and what they write.

use anyhow::{Context, Result, ensure};
use lab::consumers::{CloudInitVerdict, FileKind, UserData, check_delivered};

use crate::support::{Report, cases, consumers, file_with, files_of, sha256};

const BUNDLE: &str = "/etc/nodestrap/bundle.json";

/// All in one start of cloud-init; the first is right, the others are wrong in the way that is named.
fn judge(right: &str, wrong: &[(String, &str)]) -> Option<CloudInitVerdict> {
    let consumers = consumers()?;
    let texts = std::iter::once(right).chain(wrong.iter().map(|(text, _)| text.as_str()));
    let written: Vec<_> = texts.map(file_with).collect();
    let files: Vec<UserData> =
        written.iter().map(|file| UserData { name: String::new(), path: file.path().to_owned() }).collect();
    let mut verdicts = consumers.check_user_data(&files).expect("cloud-init").into_iter().map(|(_, verdict)| verdict);
    let verdict_of_right = verdicts.next()?;
    assert!(verdict_of_right.complaints.is_empty(), "{verdict_of_right:?}");
    for ((text, expected), verdict) in wrong.iter().zip(verdicts) {
        assert!(verdict.complaints.join("\n").contains(expected), "{expected}: {text}\n{verdict:?}");
    }
    Some(verdict_of_right)
}

pub(crate) fn check(verdict: &CloudInitVerdict) -> Result<()> {
    ensure!(verdict.complaints.is_empty(), "{}", verdict.complaints.join("\n"));
    ensure!(!verdict.types.is_empty(), "cloud-init sees no part in it");
    let bundle = verdict.written.get(BUNDLE).with_context(|| format!("cloud-init writes no {BUNDLE}"))?;
    ensure!(bundle.mode == "0600", "{BUNDLE} has secrets and gets the mode {}", bundle.mode);
    check_delivered(&cases(), &bundle.text)
}

#[test]
fn all_user_data_holds_to_the_schema_and_writes_the_bundle() {
    let Some(consumers) = consumers() else { return };
    let golden = files_of(FileKind::UserData);
    let files: Vec<UserData> =
        golden.iter().map(|(_, name, path)| UserData { name: name.clone(), path: path.clone() }).collect();
    let mut report = Report::default();
    for ((case, file, _), (name, verdict)) in golden.iter().zip(consumers.check_user_data(&files).expect("cloud-init"))
    {
        assert_eq!(*file, name);
        report.add(&case.name, file, check(&verdict));
    }
    report.finish("user data", 5);
}

#[test]
fn a_cloud_config_that_breaks_the_schema_is_refused() {
    let right = "#cloud-config\nwrite_files:\n  - path: /etc/x\n    content: hello\n    permissions: '0600'\n";
    let wrong = [
        (right.replace("content:", "contents:"), "'contents' was unexpected"),
        (right.replace("path: /etc/x", "path: 5"), "is not of type 'string'"),
        (right.replace("write_files", "write_file"), "no module of cloud-init knows the key 'write_file'"),
    ];
    let Some(verdict) = judge(right, &wrong) else { return };
    assert_eq!(verdict.written["/etc/x"].text, "hello");
}

/// A handler for one type of our own, and a part of that type.
const MESSAGE: &str = "Content-Type: multipart/mixed; boundary=\"=\"\nMIME-Version: 1.0\n\n\
    --=\nContent-Type: text/part-handler\n\n\
    #part-handler\n\
    def list_types():\n    return ['application/x-thing']\n\
    def handle_part(data, ctype, filename, payload):\n\
    \x20   if ctype not in ('__begin__', '__end__'):\n\
    \x20       open('/etc/' + filename, 'wb').write(payload)\n\
    --=\nContent-Type: application/x-thing\nContent-Disposition: attachment; filename=\"thing\"\n\nhello\n\
    --=\nContent-Type: text/cloud-config\n\n#cloud-config\nruncmd: [[sync]]\n\
    --=--\n";

#[test]
fn a_multipart_message_with_a_part_that_nothing_handles_is_refused() {
    let wrong = [
        (MESSAGE.replace("return ['application/x-thing']", "return ['application/x-other']"), "handles a part of type"),
        (MESSAGE.replace("'wb'", "'w'"), "Failed calling handler"),
        (MESSAGE.replace("def list_types()", "def list_types("), "SyntaxError"),
        (MESSAGE.replace("def handle_part", "def handel_part"), "Failed calling handler"),
        (MESSAGE.replace("runcmd: [[sync]]", "runcmd: hello"), "is not of type 'array'"),
    ];
    let Some(verdict) = judge(MESSAGE, &wrong) else { return };
    assert_eq!(verdict.types, ["text/part-handler", "application/x-thing", "text/cloud-config"]);
    assert_eq!(verdict.written["/etc/thing"].sha256, sha256(b"hello"));
}
