use super::*;

#[test]
fn is_the_same_on_every_machine() {
    let sandbox = Sandbox::delivered();
    golden("plan.txt", &sandbox.run("plan", &[]).expect(0).out);
    golden("plan.json", &sandbox.run("plan", &["-o", "json"]).expect(0).out);
    agree(|format| sandbox.run("plan", &["-o", format]), 0);
}

#[test]
fn touches_nothing() {
    let sandbox = Sandbox::delivered();
    let before = sandbox.snapshot();
    let ran = sandbox.run("plan", &[]).expect(0);
    assert_eq!(ran.err, "");
    assert_eq!(sandbox.snapshot(), before);
    sandbox.run("apply", &[]).expect(0);
    let before = sandbox.snapshot();
    let again = sandbox.run("plan", &[]).expect(0).out;
    assert_eq!(sandbox.snapshot(), before);
    assert!(!again.contains("to do"), "{again}");
    assert_eq!(again.matches("already so").count(), 21);
}

#[test]
fn touches_nothing_and_works_without_root() {
    let sandbox = Sandbox::for_nobody();
    let before = sandbox.snapshot();
    let ran = sandbox.run_as_nobody("plan", &[]).expect(0);
    assert_eq!(sandbox.snapshot(), before);
    assert_eq!(ran.out, Sandbox::delivered().run("plan", &[]).expect(0).out);
}

#[test]
fn knows_no_boot_and_no_journal() {
    let sandbox = Sandbox::delivered();
    let digest = |sandbox: &Sandbox| sandbox.run("plan", &["-o", "json"]).expect(0).json()["digest"].clone();
    let before = digest(&sandbox);
    sandbox.run("apply", &[]).expect(0);
    sandbox.write("/run/nodestrap/boot_id", "00000000-0000-4000-8000-000000000002\n");
    assert_eq!(digest(&sandbox), before);
    sandbox.write("/etc/hostname", "node-2\n");
    assert_ne!(digest(&sandbox), before);
}

#[test]
fn says_what_will_block_apply() {
    let sandbox = Sandbox::delivered();
    sandbox.remove("/usr/bin/kubelet");
    let ran = sandbox.run("plan", &[]).expect(4);
    assert!(ran.out.contains("blocked: ") && ran.out.contains("/usr/bin/kubelet"), "{}", ran.out);
}
