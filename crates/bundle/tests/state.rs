//! What is wanted against what is there: every difference is named, and no secret is shown.

mod sample;

use bundle::resource::unit::{Activity, Found};
use bundle::resource::{Aspect, Difference, file, snap, unit};
use bundle::{File, Start, Unit, UnitNature};
use sample::{CANARY, path, sample, unit_name};

const RUNS: UnitNature = UnitNature { oneshot: false, installable: true };
const ENDS: UnitNature = UnitNature { oneshot: true, installable: true };

fn aspects(differences: &[Difference]) -> Vec<Aspect> {
    differences.iter().map(|difference| difference.what).collect()
}

fn compare_unit(start: Start, activity: Activity, nature: UnitNature, enabled: bool) -> Vec<Aspect> {
    let wanted = Unit { name: unit_name("a.service"), start, brought: None };
    aspects(&unit::compare(&wanted, &Found { activity, enabled, needs_reload: false, result: "", nature }))
}

#[test]
fn whether_a_unit_has_to_run_depends_on_what_it_is() {
    let (before, others) = (Start::BeforeGate, Start::ByOthers);
    for (start, activity, nature, is_fine) in [
        (before, Activity::Active, RUNS, true),
        (before, Activity::Activating, ENDS, true),
        (before, Activity::Inactive, RUNS, false),
        (before, Activity::Inactive, ENDS, true),
        (before, Activity::Failed, ENDS, false),
        (before, Activity::NotFound, ENDS, false),
        (others, Activity::Inactive, RUNS, true),
        (others, Activity::Failed, RUNS, false),
        (others, Activity::Masked, RUNS, false),
    ] {
        let expected: &[Aspect] = if is_fine { &[] } else { &[Aspect::Active] };
        assert_eq!(compare_unit(start, activity, nature, true), expected, "{start:?} {activity:?} {nature:?}");
    }
}

#[test]
fn only_what_has_an_install_section_has_to_start_at_boot() {
    let without_install = UnitNature { installable: false, ..RUNS };
    assert_eq!(compare_unit(Start::BeforeGate, Activity::Active, RUNS, false), [Aspect::Enabled]);
    assert_eq!(compare_unit(Start::AfterGate, Activity::Active, RUNS, false), [Aspect::Enabled]);
    assert_eq!(compare_unit(Start::BeforeGate, Activity::Active, without_install, false), []);
    assert_eq!(compare_unit(Start::ByOthers, Activity::Active, RUNS, false), []);
    // What is not there cannot be enabled either; one difference is enough.
    assert_eq!(compare_unit(Start::BeforeGate, Activity::NotFound, RUNS, false), [Aspect::Active]);
}

#[test]
fn a_file_differs_by_content_mode_and_owner_and_a_secret_by_nothing_that_tells_it() {
    let found = |content| file::Found::File { mode: 0o640, owner: Some((0, 7)), size: 9, content };
    let public = File::public(path("/etc/a.yaml"), "a: 1\n");
    let differences = file::compare(&public, &found(Some(b"a: 2\n")));
    assert_eq!(aspects(&differences), [Aspect::Content, Aspect::Mode, Aspect::Owner]);
    assert_eq!(differences[0].values[0].to_string(), "a: 1 → 2");
    assert_eq!(aspects(&file::compare(&public, &file::Found::Absent)), [Aspect::Presence]);
    let same = file::Found::File { mode: 0o644, owner: None, size: 5, content: Some(b"a: 1\n") };
    assert_eq!(file::compare(&public, &same), []);
    let secret = File::secret(path("/etc/a.yaml"), format!("a: {CANARY}\n"));
    for content in [Some(&b"a: canary of another\n"[..]), None] {
        let differences = file::compare(&secret, &found(content));
        assert_eq!(aspects(&differences), [Aspect::Content, Aspect::Mode, Aspect::Owner]);
        let shown = format!("{differences:?} {}", serde_json::to_string(&differences).unwrap());
        assert!(!shown.contains("canary") && !shown.contains("sha256"), "{shown}");
    }
}

#[test]
fn of_a_snap_only_what_is_wanted_counts() {
    let wanted = sample().snap.unwrap();
    let (mut aliases, mut settings) = (wanted.aliases.clone(), wanted.settings.clone());
    aliases.insert("kubectl".to_owned(), "of.others".to_owned());
    settings.insert("v".to_owned(), "9".to_owned());
    let compare = |aliases, settings, stopped: &[String]| {
        aspects(&snap::compare(&wanted, &snap::Found { aliases, settings, stopped }))
    };
    assert_eq!(compare(&aliases, &settings, &[]), []);
    let nothing = Default::default();
    let all = [Aspect::Alias, Aspect::Setting, Aspect::Active];
    assert_eq!(compare(&nothing, &nothing, &["daemon".to_owned()]), all);
}
