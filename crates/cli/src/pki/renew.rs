//! `pki renew`: issues certificates that end soon again.

use pki::{KeyChoice, Renewals, Selection, State, renew};
use serde::Serialize;

use crate::outcome::{Code, OrFail, Outcome};
use crate::pki::args::RenewArguments;
use crate::pki::files::{PkiFolder, load_folder, now, validity};
use crate::pki::inspect::{date_of, day_of};
use crate::show::{Paint, Screen, table};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RenewView {
    renewed: Vec<RenewedView>,
    kept: Vec<String>,
    /// Authorities that end soon; they are not renewed.
    ending_authorities: Vec<String>,
    /// Files that were left alone because they cannot be read.
    unreadable: Vec<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RenewedView {
    file: String,
    expired: String,
    expires: String,
    serial: String,
}

pub(crate) fn run(arguments: RenewArguments, screen: &Screen) -> Outcome {
    if !arguments.folder.is_dir() {
        let shown = arguments.folder.display().to_string();
        return Err(anyhow::anyhow!("{shown:?} is not a folder")).or_fail(Code::WrongInput);
    }
    let folder = PkiFolder::open(&arguments.folder)?;
    let documents = load_folder(&arguments.folder)?.documents;
    let selection = match (arguments.names.is_empty(), arguments.all) {
        (false, _) => Selection::Named(arguments.names),
        (true, true) => Selection::All,
        (true, false) => Selection::Within(arguments.within),
    };
    let choice = if arguments.new_key { KeyChoice::Replace } else { KeyChoice::Keep };
    let now = now();
    let renewals = renew(&documents, &selection, choice, validity(now, arguments.lifetime), now);
    let renewals = renewals.or_fail(Code::NeedsPerson)?;
    // Old keys are safe before the first new one is seen.
    folder.write(&renewals.backups)?;
    folder.write(&renewals.files)?;
    let view = view(&renewals);
    screen.result(&view, || text(&renewals, screen))?;
    Ok(if renewals.unreadable.is_empty() { Code::Done } else { Code::NeedsPerson })
}

fn view(renewals: &Renewals) -> RenewView {
    RenewView {
        renewed: renewals
            .renewed
            .iter()
            .map(|renewed| RenewedView {
                file: renewed.path.clone(),
                expired: date_of(renewed.old.not_after),
                expires: date_of(renewed.new.not_after),
                serial: renewed.new.serial.clone(),
            })
            .collect(),
        kept: renewals.kept.iter().map(|finding| finding.path.clone()).collect(),
        ending_authorities: renewals.ending_authorities().map(|finding| finding.path.clone()).collect(),
        unreadable: renewals.unreadable.iter().map(|finding| finding.path.clone()).collect(),
    }
}

fn text(renewals: &Renewals, screen: &Screen) -> String {
    let tick = screen.paint(Paint::Good, "✓");
    let mut text = format!("{tick} {} renewed, {} kept\n", renewals.renewed.len(), renewals.kept.len());
    let rows = renewals.renewed.iter().map(|renewed| {
        let (old, new) = (day_of(renewed.old.not_after), day_of(renewed.new.not_after));
        vec![renewed.path.clone(), format!("{old} → {new}")]
    });
    text.push_str(&table(&rows.collect::<Vec<_>>()));
    for backup in &renewals.backups {
        text.push_str(&format!("  the old key is {}\n", backup.path));
    }
    if !renewals.renewed.is_empty() {
        text.push_str("  restart the programs that use them\n");
    }
    for (finding, found) in renewals.ending_authorities().filter_map(|finding| Some((finding, finding.certificate()?)))
    {
        let sign = screen.paint(Paint::Bad, "✗");
        let end = match found.state {
            State::Ended => "has expired".to_owned(),
            _ => format!("ends in {} days", found.days_left),
        };
        text.push_str(&format!("{sign} {} {end} and is not renewed: make a new authority\n", finding.path));
    }
    for finding in &renewals.unreadable {
        let (sign, why) = (screen.paint(Paint::Bad, "✗"), finding.fault().unwrap_or_default());
        text.push_str(&format!("{sign} {} was left alone: {why}\n", finding.path));
    }
    text
}
