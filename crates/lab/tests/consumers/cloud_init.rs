//! `cloud-init schema` for each cloud-config, cloud-init's own reader for each multipart message, and what they write.

use anyhow::{Context, Result, ensure};
use lab::consumers::{Case, CloudInitVerdict, UserData};

use crate::support::{Report, cases_with, consumers, file_with, sha256};

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

fn check_golden(file_name: &str, at_least: usize) {
    let Some(consumers) = consumers() else { return };
    let cases = cases_with(file_name);
    let files: Vec<UserData> =
        cases.iter().map(|(case, path)| UserData { name: case.name.clone(), path: path.clone() }).collect();
    let mut report = Report::default();
    for ((case, _), (name, verdict)) in cases.iter().zip(consumers.check_user_data(&files).expect("cloud-init")) {
        assert_eq!(case.name, name);
        let outcome = match verdict.complaints.as_slice() {
            [] if verdict.types.is_empty() => Err(anyhow::anyhow!("cloud-init sees no part in it")),
            [] => check_bundle(case, &verdict),
            complaints => Err(anyhow::anyhow!("{}", complaints.join("\n"))),
        };
        report.add(&case.name, file_name, outcome);
    }
    report.finish(file_name, at_least);
}

fn check_bundle(case: &Case, verdict: &CloudInitVerdict) -> Result<()> {
    let bundle = verdict.written.get(BUNDLE).with_context(|| format!("cloud-init writes no {BUNDLE}"))?;
    ensure!(bundle.mode == "0600", "{BUNDLE} has secrets and gets the mode {}", bundle.mode);
    case.check_delivered(&bundle.text)
}

#[test]
fn every_cloud_config_holds_to_the_schema_and_writes_the_bundle() {
    check_golden("cloud-config.yaml", 5);
}

#[test]
fn every_multipart_message_is_understood_and_writes_the_bundle() {
    check_golden("user-data.mime", 0);
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
