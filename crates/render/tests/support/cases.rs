//! Each folder `golden/<case>` with its `spec.yaml`, and the specs of `examples`, completed and rendered.

use std::fs;
use std::path::{Path, PathBuf};

use bundle::Bundle;
use render::{GroupDelivery, render_group};
use spec::CompleteSpec;

pub(crate) fn tests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../render/tests")
}

pub(crate) fn spec_text(case: &str) -> String {
    let path = tests().join("golden").join(case).join("spec.yaml");
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

pub(crate) fn complete(case: &str) -> CompleteSpec {
    complete_text(case, spec_text(case))
}

pub(crate) fn complete_text(name: &str, text: String) -> CompleteSpec {
    let parsed = spec::parse(&[spec::Source::new(format!("{name}/spec.yaml"), text)]);
    let spec = parsed.resolve(|file| fs::read(tests().join(&file.path)).map_err(|error| error.to_string()));
    let complete = spec.and_then(|spec| spec::complete(&spec));
    complete.unwrap_or_else(|mistakes| panic!("{}", spec::render_mistakes(&mistakes, spec::Colour::Plain)))
}

pub(crate) fn delivery(spec: &CompleteSpec) -> GroupDelivery<'_> {
    let [group] = spec.groups.as_slice() else { panic!("a case has one group") };
    render_group(spec, group.name.value.as_str()).unwrap_or_else(|error| panic!("{error}"))
}

pub(crate) fn bundle(case: &str) -> Bundle {
    delivery(&complete(case)).bundle
}
