//! What does not depend on the layout reaches its nodes, too.

use super::*;

const EXTRAS: &str = r#"
  sysctls: {vm.max_map_count: "262144"}
  kernelModules: [ip_vs]
  ntpServers: [time.example.com]
  proxy: {http: "http://proxy.example.com:3128"}
  fileAssets: [{path: /etc/example/secret, content: hidden, secret: true}]
  units:
    - {name: example.service, content: "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n"}
    - {name: update-engine.service, state: disabled}
    - {name: of-the-image.service, state: masked}
  hooks: [{name: warm-up, slot: before-kubelet, unit: "ExecStart=/bin/true\n"}]
"#;

#[test]
fn files_units_and_hooks_of_the_users_and_the_system_below() {
    for (case, time) in [
        ("eksctl-al2", "/etc/chrony.conf"),
        ("eksctl-ubuntu", "/etc/systemd/timesyncd.conf.d/90-nodestrap.conf"),
        ("tectonic-worker", "/etc/systemd/timesyncd.conf.d/90-nodestrap.conf"),
    ] {
        let text = load_spec(case)
            .replace("  tectonic: {", "  tectonic: {upgradeOS: false, ")
            .replace("  proxy: {http: \"http://proxy.example.com:3128\"}\n", "");
        let bundle = render(&complete_text(&text.replacen("  join:", &format!("{EXTRAS}  join:"), 1)));
        let kubelet = bundle.join.kubelet_unit.clone();
        for path in [
            "/etc/sysctl.d/91-nodestrap-user.conf",
            "/etc/modules-load.d/nodestrap-user.conf",
            time,
            "/etc/systemd/system/example.service",
            "/etc/systemd/system/nodestrap-hook-warm-up.service",
            &format!("/etc/systemd/system/{kubelet}.d/10-proxy.conf"),
        ] {
            assert!(paths(&bundle).contains(&path), "{case}: {path}");
        }
        for (name, idleness) in
            [("update-engine.service", Idleness::Disabled), ("of-the-image.service", Idleness::Masked)]
        {
            assert!(
                bundle.idle_units.iter().any(|unit| unit.name == *name && unit.idleness == idleness),
                "{case}: {name}"
            );
        }
        let secret = bundle.files.iter().find(|file| file.path == "/etc/example/secret").unwrap();
        assert_eq!(secret.secrecy, Secrecy::Secret, "{case}");
        assert_eq!(bundle.hooks[0].slot, Slot::BeforeKubelet, "{case}");
        // What a user adds is there before the kubelet, which starts last but for what waits for it.
        let order: Vec<&str> = bundle.units.iter().map(|unit| unit.name.as_str()).collect();
        let at = |name: &str| order.iter().position(|unit| *unit == name).unwrap();
        assert!(at("nodestrap-kernel.service") < at("example.service"), "{case}");
        assert!(at("example.service") < at(&kubelet), "{case}");
    }
}
