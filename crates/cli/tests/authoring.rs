//! `check`, `complete`, `explain` and `render` as people run them.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, reason = "tests own their effects and may panic")]

mod support;

use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Stdio;

use serde_json::Value;
use support::{Times, bundle, entries, example, golden, nodestrap, nodestrap_as_nobody, program, text};

fn on_example(command: &str, more: &[&str]) -> support::Ran {
    let file = example("minimal.yaml").display().to_string();
    let mut arguments = vec![command, &file];
    arguments.extend(more);
    nodestrap(arguments)
}

fn yaml(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("{error}:\n{text}"))
}

/// A spec in a folder of its own, and the path to name it by.
fn spec(content: impl AsRef<[u8]>) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cluster.yaml");
    std::fs::write(&path, content).unwrap();
    let name = path.display().to_string();
    (folder, name)
}

#[test]
fn ten_lines_are_a_spec() {
    assert_eq!(text(example("minimal.yaml")).lines().count(), 10);
    let ran = on_example("check", &[]).expect(0);
    assert_eq!(ran.out, "✓ cluster demo, Kubernetes 1.36.3, node groups: workers\n");
    assert_eq!(ran.err, "");
}

#[test]
fn the_full_example_is_a_spec() {
    let file = example("full.yaml").display().to_string();
    let ran = nodestrap(["check", &file, "-o", "json"]).expect(0);
    assert_eq!(ran.json()["groups"], serde_json::json!(["general", "gpu"]));
}

#[test]
fn a_fleet_is_not_listed_to_its_end() {
    let fleet = |count: usize| {
        let group = |number| {
            format!("---\napiVersion: nodestrap.io/v1alpha1\nkind: NodeGroup\nmetadata: {{name: g{number:02}}}\n")
        };
        minimal_with("", "") + &(0..count).map(group).collect::<String>()
    };
    let (_folder, file) = spec(fleet(19));
    assert!(nodestrap(["check", &file]).expect(0).out.ends_with("g18, workers\n"));
    let (_folder, file) = spec(fleet(24));
    assert!(nodestrap(["check", &file]).expect(0).out.ends_with("g18, g19 and 5 more\n"));
    assert_eq!(nodestrap(["check", &file, "-o", "json"]).expect(0).json()["groups"].as_array().unwrap().len(), 25);
}

#[test]
fn completing_what_was_completed_changes_nothing() {
    for name in ["minimal.yaml", "full.yaml"] {
        let file = example(name).display().to_string();
        let once = nodestrap(["complete", &file, "--show-secrets"]).expect(0).out;
        let (_folder, path) = spec(&once);
        let twice = nodestrap(["complete", &path, "--show-secrets"]).expect(0).out;
        assert_eq!(once, twice, "{name}");
        let piped = pipe_into(&once, &["complete", "--show-secrets", "/dev/stdin"]);
        assert_eq!(once, piped, "{name}");
    }
}

fn pipe_into(input: &str, arguments: &[&str]) -> String {
    use std::io::Write as _;
    let mut command = program(support::BINARY);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_redacted_spec_is_refused_and_says_how_to_get_a_whole_one() {
    let redacted = on_example("complete", &[]).expect(0).out;
    assert!(redacted.contains("[redacted]") && !redacted.contains(support::TOKEN_OF_EXAMPLE));
    let (_folder, path) = spec(&redacted);
    for command in ["check", "complete", "render"] {
        let ran = nodestrap([command, &path]).expect(2);
        ran.says(&["redacted", "--show-secrets"]);
        assert_eq!(ran.out, "", "{command}");
    }
}

#[test]
fn all_outputs_parse_and_agree() {
    for (command, more) in [("check", vec![]), ("explain", vec![]), ("explain", vec!["maxPods"])] {
        let in_format = |format: &str| on_example(command, &[&more[..], &["-o", format]].concat()).expect(0).out;
        let json: Value = serde_json::from_str(&in_format("json")).unwrap();
        assert_eq!(json, yaml(&in_format("yaml")), "{command}");
        assert!(!in_format("text").is_empty());
    }
    let json = on_example("complete", &["-o", "json"]).expect(0).json();
    let printed = on_example("complete", &["-o", "yaml"]).expect(0).out;
    assert_eq!(printed, on_example("complete", &[]).expect(0).out);
    let (cluster, group) = printed.split_once("\n---\n").unwrap();
    let fields = |document: &str| yaml(document)["spec"].as_object().unwrap().clone();
    for (name, value) in fields(cluster) {
        assert_eq!(json["cluster"][&name], value, "{name}");
    }
    for (name, value) in fields(group) {
        assert_eq!(json["nodeGroups"]["workers"][&name], value, "{name}");
    }
}

#[test]
fn a_value_is_explained_by_its_whole_path_or_its_unique_end() {
    let whole = on_example("explain", &["cluster.networking.clusterDNS"]).expect(0).out;
    let end = on_example("explain", &["networking.clusterDNS"]).expect(0).out;
    assert_eq!(whole, end);
    // A setting of the cluster comes before what is derived from it in a component's configuration.
    assert_eq!(on_example("explain", &["clusterDNS"]).expect(0).out, whole);
    assert!(whole.contains("10.96.0.10") && whole.contains("derived from"), "{whole}");
    let user = on_example("explain", &["apiServer"]).expect(0).out;
    assert!(user.contains("the user: ") && user.contains("line 5, column"), "{user}");
}

#[test]
fn a_spec_in_several_files_is_explained() {
    let minimal = text(example("minimal.yaml"));
    let (cluster, group) = minimal.split_once("---\n").unwrap();
    let ((_one, cluster), (_other, group)) = (spec(cluster), spec(group));
    let said = nodestrap(["explain", &cluster, &group, "networking.clusterDNS"]).expect(0).out;
    assert_eq!(said, on_example("explain", &["networking.clusterDNS"]).expect(0).out);
    nodestrap(["explain", &group, &cluster]).expect(0);
}

#[test]
fn an_unknown_path_names_the_nearest_one() {
    let ran = on_example("explain", &["clusterDNSS"]).expect(2);
    ran.says(&["there is no setting \"clusterDNSS\"", "did you mean cluster.networking.clusterDNS"]);
    assert_eq!(ran.out, "");
    on_example("explain", &["zzz"]).expect(2).says(&["without a path every value is listed"]);
    on_example("explain", &["binary"]).expect(2).says(&["kubelet.binary", "containerRuntime.binary", "say which"]);
}

/// What is there, and what nobody has without it: static pods, a proxy, a webhook, packages.
fn is_for_others(path: &Value) -> bool {
    let parts = [
        "kubeApiserver.",
        "kubeControllerManager.",
        "kubeScheduler.",
        "etcd.",
        "dnsController.",
        "kubeProxy.",
        "proxy.",
        "report.",
        "packages.",
    ];
    let of_cluster = |part: &str| path.as_str().unwrap().starts_with(&format!("cluster.{part}"));
    // A machine of metal has no limit to its user data, and no size that would be known.
    let of_group = [
        "architecture",
        "machines.prefixDelegation",
        "reservation",
        "delivery.compression",
        "delivery.store.urls",
        "packages.repositories",
    ];
    parts.iter().any(|part| of_cluster(part))
        || of_group.iter().any(|field| path == &format!("nodeGroups.workers.{field}"))
}

#[test]
fn without_a_path_every_value_is_explained() {
    let all = on_example("explain", &["-o", "json"]).expect(0).json();
    let all = all.as_array().unwrap();
    assert!(all.len() > 20);
    for view in all {
        assert!(!view["origin"].as_str().unwrap().is_empty(), "{view}");
        let reaches = if is_for_others(&view["path"]) { vec![] } else { vec!["workers"] };
        assert_eq!(view["reaches"], serde_json::json!(reaches), "{view}");
    }
    assert!(on_example("explain", &["noProxy"]).expect(0).out.contains("reaches  no nodes"));
}

#[test]
fn an_item_of_a_list_is_explained_where_it_stands() {
    let full = example("full.yaml").display().to_string();
    let explained = |path: &str| nodestrap(["explain", &full, path, "-o", "json"]).expect(0).json();
    let written = text(example("full.yaml"));
    let line_of = |part: &str| {
        let index = written.lines().position(|line| line.contains(part)).unwrap();
        format!("line {},", index + 1)
    };
    for (path, value, text) in [
        ("cluster.fileAssets[0].path", "/etc/example/motd", "/etc/example/motd"),
        ("nodeGroups.gpu.fileAssets[0].path", "/etc/example/motd", "/etc/example/motd"),
        ("nodeGroups.gpu.fileAssets[1].path", "/etc/example/license", "/etc/example/license"),
        ("nodeGroups.gpu.fileAssets[1].content", "[redacted]", "/etc/example/license"),
        ("nodeGroups.gpu.hooks.warm-cache.name", "warm-cache", "name: warm-cache"),
        ("nodeGroups.gpu.labels.\"example.com/pool\"", "gpu", "example.com/pool"),
        ("nodeGroups.gpu.sysctls.\"vm.max_map_count\"", "262144", "vm.max_map_count"),
        ("nodeGroups.gpu.sysctls.\"vm.nr_hugepages\"", "1024", "vm.nr_hugepages"),
    ] {
        let views = explained(path);
        assert_eq!(views[0]["value"], value, "{views}");
        assert!(views[0]["origin"].as_str().unwrap().contains(&line_of(text)), "{views} is not on {}", line_of(text));
    }
    let ran = nodestrap(["explain", &full, "cluster.fileAssets[9]"]).expect(2);
    ran.says(&["there is no setting \"cluster.fileAssets[9]\"", "did you mean cluster.fileAssets?"]);
}

/// Only a bundle that is too large for user data is in a store.
#[test]
fn a_store_reaches_groups_whose_bundle_is_in_it() {
    let minimal = text(example("minimal.yaml"));
    let (cluster, group) = minimal.split_once("---\n").unwrap();
    let large: String = (0..9000_u32).map(|index| format!("{:x}", index.wrapping_mul(2_654_435_761))).collect();
    let store = "  delivery: {store: {urls: [https://store.example.com]}}\n  provider: aws\n";
    let other = group.replace("workers", "large");
    let files = format!("spec: {{fileAssets: [{{path: /etc/large, content: {large}}}]}}\n");
    let (_folder, path) = spec(format!("{cluster}{store}---\n{group}---\n{other}{files}"));
    let reaches =
        |wanted: &str| nodestrap(["explain", &path, wanted, "-o", "json"]).expect(0).json()[0]["reaches"].clone();
    assert_eq!(reaches("cluster.delivery.store.urls"), serde_json::json!(["large"]));
    assert_eq!(reaches("cluster.delivery.store.urls[0]"), serde_json::json!(["large"]));
    assert_eq!(reaches("nodeGroups.workers.delivery.store.urls"), serde_json::json!([]));
    assert_eq!(reaches("cluster.apiServer"), serde_json::json!(["large", "workers"]));
}

const MISTAKEN: &str = "\
apiVersion: nodestrap.io/v1alpha1
kind: Cluster
metadata: {name: Demo_1}
spec:
  apiServer: http://10.0.0.10:6443
  kubernetesVersion: v1.36.3
  join: {bootstrapToken: abcdef.tooshort, certificateAuthority: nonsense}
  networking:
    clusterDNS: [10.96.0.300]
    podNetwrok: bridge
---
apiVersion: nodestrap.io/v1alpha1
kind: NodeGroup
metadata: {name: workers}
spec:
  role: master
  kubelet:
    config: {maxPods: many}
";

#[test]
fn all_mistakes_come_at_once_with_their_places() {
    let (folder, path) = spec(MISTAKEN);
    for command in ["check", "complete", "explain", "render"] {
        let ran = nodestrap([command, &path]).expect(2);
        assert_eq!(ran.out, "", "{command}");
        for place in ["3:18", "5:14", "6:22", "7:", "9:18", "10:5", "16:9", "18:23"] {
            ran.says(&[&format!("{path}:{place}")]);
        }
        ran.says(&["9 mistakes", "^^^^", "   podNetwrok: bridge", "did you mean \"podNetwork\"?"]);
        assert!(!ran.err.contains("tooshort"), "a mistyped token is most of a secret:\n{}", ran.err);
        if command == "check" {
            golden("mistakes.txt", &ran.err.replace(&folder.path().display().to_string(), ""));
        }
    }
}

#[test]
fn what_cannot_be_read_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(at("large.yaml"), "#".repeat(2 << 20)).unwrap();
    std::fs::write(at("binary.yaml"), b"a: \xff\n").unwrap();
    std::fs::write(at("empty.yaml"), "").unwrap();
    let here = folder.path().display().to_string();
    for (path, why) in [
        (at("absent.yaml"), "No such file"),
        (here, "Is a directory"),
        (at("large.yaml"), "larger than 1 MiB"),
        (at("binary.yaml"), "not UTF-8"),
        (at("empty.yaml"), "empty"),
    ] {
        let ran = nodestrap(["check", &path]).expect(2);
        ran.says(&[&path, why]);
        assert_eq!(ran.out, "");
    }
}

#[test]
fn a_file_that_may_not_be_read_is_named() {
    let (folder, path) = spec(text(example("minimal.yaml")));
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o000)).unwrap();
    nodestrap_as_nobody(["check", &path]).expect(2).says(&[&path, "Permission denied"]);
}

#[test]
fn a_file_that_a_spec_refers_to_is_looked_for_beside_it() {
    let (folder, path) = spec(text(example("minimal.yaml")).replace("abcdef.0123456789abcdef", "{file: token.txt}"));
    nodestrap(["check", &path]).expect(2).says(&["token.txt", "No such file", ":6:"]);
    std::fs::write(folder.path().join("token.txt"), "abcdef.0123456789abcdef\n").unwrap();
    let rendered = nodestrap(["render", &path, "--format=bundle"]).expect(0).out;
    assert_eq!(rendered, bundle());
}

#[test]
fn rendering_twice_gives_the_same_bytes() {
    for format in ["cloud-config", "bundle"] {
        let render = || on_example("render", &["--group=workers", "--format", format]).expect(0).out;
        assert_eq!(render(), render(), "{format}");
    }
    let place = tempfile::tempdir().unwrap();
    let folder = |name: &str| {
        let out = place.path().join(name);
        on_example("render", &["--format=folder", "--out", &out.display().to_string()]).expect(0);
        entries(&out, Times::Ignored)
    };
    let first = folder("a");
    assert_eq!(first, folder("b"));
    assert!(first.contains_key("/manifest.json"));
    assert_eq!(names_in(place.path()), ["a", "b"]);
}

fn names_in(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn the_order_of_the_files_does_not_matter() {
    let whole = text(example("minimal.yaml"));
    let (cluster, group) = whole.split_once("---\n").unwrap();
    let (_one, cluster) = spec(cluster);
    let (_other, group) = spec(group);
    let render = |files: [&str; 2]| nodestrap(["render", files[0], files[1], "--format=bundle"]).expect(0).out;
    assert_eq!(render([&cluster, &group]), bundle());
    assert_eq!(render([&group, &cluster]), bundle());
}

#[test]
fn what_is_rendered_with_secrets_is_for_its_owner_only() {
    let place = tempfile::tempdir().unwrap();
    let out = |name: &str| place.path().join(name).display().to_string();
    on_example("render", &["--out", &out("user-data")]).expect(0);
    on_example("render", &["--format=bundle", "--out", &out("bundle.json")]).expect(0);
    on_example("render", &["--format=folder", "--out", &out("folder")]).expect(0);
    let mode = |name: &str| std::fs::metadata(out(name)).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode("user-data"), 0o600);
    assert_eq!(mode("bundle.json"), 0o600);
    assert_eq!(mode("folder"), 0o700);
    assert_eq!(text(out("bundle.json")), bundle());
    assert_eq!(mode("folder/root/etc/kubernetes/bootstrap-kubelet.kubeconfig"), 0o600);
}

#[test]
fn a_folder_that_is_in_use_is_left_alone() {
    let place = tempfile::tempdir().unwrap();
    std::fs::write(place.path().join("precious"), "mine").unwrap();
    let before = entries(place.path(), Times::Seen);
    let out = place.path().display().to_string();
    on_example("render", &["--format=folder", "--out", &out]).expect(2).says(&["is not empty", &out]);
    assert_eq!(entries(place.path(), Times::Seen), before);
}

#[test]
fn a_failed_render_leaves_nothing_behind() {
    let place = tempfile::tempdir().unwrap();
    let (_folder, wrong) = spec(MISTAKEN);
    let out = place.path().join("out").display().to_string();
    for format in ["cloud-config", "bundle", "folder"] {
        nodestrap(["render", &wrong, "--format", format, "--out", &out]).expect(2);
    }
    assert!(names_in(place.path()).is_empty());
    // A file where the folder shall be.
    std::fs::write(&out, "mine").unwrap();
    on_example("render", &["--format=folder", "--out", &out]).expect(2).says(&[&out]);
    assert_eq!(names_in(place.path()), ["out"]);
    assert_eq!(text(&out), "mine");
    // A folder where the file shall be.
    std::fs::remove_file(&out).unwrap();
    std::fs::create_dir(&out).unwrap();
    for format in ["cloud-config", "bundle"] {
        on_example("render", &["--format", format, "--out", &out]).expect(2).says(&[&out, "in the way"]);
    }
    assert_eq!(names_in(place.path()), ["out"]);
    assert!(names_in(Path::new(&out)).is_empty());
}

#[test]
fn a_group_that_is_not_there_names_those_that_are() {
    let file = example("full.yaml").display().to_string();
    nodestrap(["render", &file, "--group", "gup"]).expect(2).says(&["'gup'", "'general'", "'gpu'"]);
    nodestrap(["render", &file]).expect(2).says(&["--group", "general, gpu"]);
    on_example("render", &["--group", "x"]).expect(2).says(&["'x'", "'workers'"]);
}

#[test]
fn user_data_carries_the_bundle() {
    let user_data = on_example("render", &[]).expect(0).out;
    assert!(user_data.starts_with("#cloud-config\n"));
    let document = yaml(&user_data);
    let files = document["write_files"].as_array().unwrap();
    assert_eq!(files.len(), 1);
    assert_eq!(files[0]["path"], "/etc/nodestrap/bundle.json");
    assert_eq!(files[0]["permissions"], "0600");
    assert_eq!(files[0]["encoding"], "gz+b64");
    let packed = data_encoding::BASE64.decode(files[0]["content"].as_str().unwrap().as_bytes()).unwrap();
    let mut unpacked = String::new();
    flate2::read::GzDecoder::new(packed.as_slice()).read_to_string(&mut unpacked).unwrap();
    assert_eq!(unpacked, bundle());
    assert!(user_data.len() < 16 * 1024, "some clouds take no more user data than 16 KiB");
}

/// What the cluster and its one group say besides the minimal example.
fn minimal_with(cluster: &str, group: &str) -> String {
    let minimal = text(example("minimal.yaml")).replacen("\n  join:", &format!("{cluster}\n  join:"), 1);
    format!("{}\nspec:\n  role: worker{group}\n", minimal.trim_end())
}

#[test]
fn check_refuses_what_cannot_be_rendered() {
    let hook =
        |more: &str| format!("\n  hooks: [{{name: a, slot: before-kubelet, unit: \"ExecStart=/bin/true\"{more}}}]");
    let large = format!("\n  provider: aws\n  fileAssets: [{{path: /etc/x, content: {}}}]", noise(40_000));
    let part = |kind: &str, content: &str| {
        format!("\n  additionalUserData: [{{name: a, type: {kind}, content: '{content}'}}]")
    };
    for (cluster, group, why) in [
        (hook(", timeout: 0s"), String::new(), "timeout"),
        ("\n  ntpServers: [\"1.2.3.4:123\"]".to_owned(), String::new(), "1.2.3.4:123"),
        (String::new(), "\n  kubelet: {flags: {node-ip: \"1.2.3.4 x\"}}".to_owned(), "white space"),
        (String::new(), "\n  os: flatcar".to_owned() + &part("text/x-shellscript", "#!/bin/sh"), "a"),
        (large, String::new(), "16384"),
    ] {
        let (_folder, path) = spec(minimal_with(&cluster, &group));
        for arguments in [vec!["check", &path], vec!["render", &path, "--out", "/nonexistent/x"]] {
            let ran = nodestrap(arguments).expect(2);
            ran.says(&[why]);
            assert!(!ran.err.contains("render it again"), "{}", ran.err);
        }
        nodestrap(["check", &path]).expect(2).says(&["group workers: "]);
    }
}

/// Text that does not get shorter by being packed.
fn noise(length: usize) -> String {
    let mut state = 1_u64;
    let mut letter = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"[(state >> 33) as usize % 62])
    };
    (0..length).map(|_| letter()).collect()
}

#[test]
fn all_groups_are_rendered_to_a_file_each_with_its_digest() {
    let group = |name: &str, more: &str| {
        format!(
            "---\napiVersion: nodestrap.io/v1alpha1\nkind: NodeGroup\nmetadata: {{name: {name}}}\nspec:\n  role: worker\n{more}"
        )
    };
    let store = format!(
        "  delivery: {{store: {{urls: [\"https://store.example.com/b\"]}}}}\n  fileAssets: [{{path: /etc/x, content: {}}}]\n",
        noise(40_000)
    );
    let more = [
        group("folders", "  delivery: {format: folder}\n"),
        group("large", &store),
        group("parts", "  delivery: {format: mime}\n"),
    ];
    let (folder, path) = spec(minimal_with("\n  provider: aws", "") + &more.concat());
    let out = folder.path().join("out");
    let ran = nodestrap(["render", &path, "--all", "--out", &out.display().to_string()]).expect(0);
    assert_eq!(
        names_in(&out),
        ["folders.bundle.json", "large.cloud-config.yaml", "parts.mime", "workers.cloud-config.yaml"]
    );
    for name in ["folders", "large", "parts", "workers"] {
        let alone = folder.path().join("alone");
        let format = if name == "folders" { vec!["--format", "bundle"] } else { Vec::new() };
        let target = alone.display().to_string();
        nodestrap([vec!["render", &path, "--group", name, "--out", &target], format].concat()).expect(0);
        let file = names_in(&out).into_iter().find(|file| file.starts_with(name)).unwrap();
        assert_eq!(std::fs::read(out.join(file)).unwrap(), std::fs::read(&alone).unwrap(), "{name}");
    }
    assert_eq!(ran.err.matches("bundle sha256:").count(), 4, "{}", ran.err);
    ran.says(&["publish it as https://store.example.com/b/"]);
    for format in ["folder", "machines"] {
        let ran = nodestrap(["render", &path, "--all", "--format", format, "--out", "/nonexistent/x"]).expect(2);
        ran.says(&["one file for each group"]);
    }
}

#[test]
fn a_folder_needs_a_place() {
    on_example("render", &["--format=folder"]).expect(2).says(&["--out PATH"]);
}

#[test]
fn colour_is_for_those_who_ask() {
    let (_folder, path) = spec(MISTAKEN);
    assert!(!nodestrap(["check", &path]).expect(2).err.contains('\x1b'));
    assert!(nodestrap(["check", &path, "--color=always"]).expect(2).err.contains('\x1b'));
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    let mut command = program(support::BINARY);
    command.arg("explain").arg(example("full.yaml")).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // Closed at once: every write of the command fails.
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
}

#[test]
fn a_wrong_command_line_is_wrong_input() {
    for arguments in [vec![], vec!["aply"], vec!["check"], vec!["render", "x", "--format=tarball"]] {
        let ran = nodestrap(&arguments).expect(2);
        assert_eq!(ran.out, "", "{arguments:?}");
        assert!(ran.err.contains("Usage") || ran.err.contains("possible values"), "{}", ran.err);
    }
}
