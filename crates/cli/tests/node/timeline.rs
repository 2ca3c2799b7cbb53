use super::*;

#[test]
fn without_a_journal_there_is_advice() {
    let ran = Sandbox::delivered().run("timeline", &[]).expect(2);
    ran.says(&["no journal yet", "nodestrap apply"]);
    assert_eq!(ran.out, "");
}

#[test]
fn shows_every_step_of_every_run() {
    let sandbox = Sandbox::delivered();
    sandbox.remove("/usr/bin/kubelet");
    sandbox.run("apply", &[]).expect(4);
    sandbox.write("/usr/bin/kubelet", "");
    sandbox.chmod("/usr/bin/kubelet", 0o755);
    sandbox.run("apply", &[]).expect(0);
    let before = sandbox.snapshot();
    let drawn = sandbox.run("timeline", &[]).expect(0).out;
    for word in ["run 1 of 2", "run 2 of 2", "check-programs", "commit-files", "open-gate", "critical path"] {
        assert!(drawn.contains(word), "no {word:?}:\n{drawn}");
    }
    let events = agree(|format| sandbox.run("timeline", &["-o", format]), 0);
    let runs = events.as_array().unwrap().iter().filter(|event| event["kind"] == "runStarted").count();
    assert_eq!(runs, 2);
    assert_eq!(sandbox.snapshot(), before);
}

#[test]
fn draws_a_picture() {
    let sandbox = Sandbox::applied();
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("timeline.svg");
    let ran = sandbox.run("timeline", &["--svg", &file.display().to_string()]).expect(0);
    assert_eq!(ran.out, "");
    let picture = text(&file);
    assert!(picture.trim_start().starts_with("<svg") || picture.starts_with("<?xml"), "{picture}");
    assert_well_formed(&picture);
    assert!(picture.contains("commit-files"));
    assert_eq!(sandbox.run("timeline", &["--svg", "-"]).expect(0).out, picture);
    sandbox.run("timeline", &["--svg", "/nonexistent/picture.svg"]).expect(4).says(&["/nonexistent/picture.svg"]);
}

/// Every element is closed in order, attributes are quoted, and no character that needs escaping stands alone.
fn assert_well_formed(xml: &str) {
    let mut open: Vec<&str> = Vec::new();
    let mut rest = xml;
    while let Some(start) = rest.find('<') {
        check_text(&rest[..start]);
        let end = rest[start..].find('>').expect("a tag ends") + start;
        let tag = &rest[start + 1..end];
        rest = &rest[end + 1..];
        if tag.starts_with('?') || tag.starts_with('!') {
            continue;
        }
        assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name), "{tag}");
        } else if !tag.ends_with('/') {
            open.push(tag.split_whitespace().next().unwrap());
        }
    }
    check_text(rest);
    assert!(open.is_empty(), "never closed: {open:?}");
}

fn check_text(text: &str) {
    for (at, _) in text.match_indices('&') {
        let entity = text[at..].split(';').next().unwrap();
        assert!(["&amp", "&lt", "&gt", "&quot", "&apos"].contains(&entity) || entity.starts_with("&#"), "{text}");
    }
    assert!(!text.contains('>'), "{text}");
}
