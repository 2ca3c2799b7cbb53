use super::*;

#[test]
fn a_whole_gate_lets_the_kubelet_start() {
    let sandbox = Sandbox::applied();
    let before = sandbox.snapshot();
    let ran = sandbox.run("gate", &[]).expect(0);
    assert_eq!((ran.out.as_str(), ran.err.as_str()), ("", ""));
    assert_eq!(sandbox.snapshot(), before);
}

#[test]
fn an_absent_gate_keeps_it_back() {
    Sandbox::image().run("gate", &[]).expect(3).says(&[GATE, "is shut"]);
}

#[test]
fn a_damaged_gate_is_taken_away_and_the_bootstrap_mends_it() {
    let whole = text(Sandbox::applied().path(GATE));
    let damages = [
        String::new(),
        whole[..whole.len() / 2].to_owned(),
        whole[..whole.len() - 1].to_owned(),
        whole.replace("NODESTRAP_GROUP=\"workers\"", "NODESTRAP_GROUP=\"others\""),
        format!("{whole}EXTRA=\"1\"\n"),
        "\0".repeat(whole.len()),
    ];
    for damaged in damages {
        let sandbox = Sandbox::applied();
        sandbox.write(GATE, &damaged);
        sandbox.run("gate", &[]).expect(3).says(&["was damaged", "is taken away"]);
        assert!(!sandbox.exists(GATE));
        sandbox.run("gate", &[]).expect(3).says(&["is shut"]);
        sandbox.run("apply", &[]).expect(0);
        assert_eq!(text(sandbox.path(GATE)), whole);
    }
}

#[test]
fn apply_itself_mends_a_damaged_gate() {
    let sandbox = Sandbox::applied();
    let whole = sandbox.tree();
    sandbox.write(GATE, "");
    sandbox.run("apply", &[]).expect(0);
    assert_eq!(sandbox.tree(), whole);
}
