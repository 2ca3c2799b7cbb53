//! `golden/<case>`: what each spec is rendered to, byte by byte. `UPDATE_GOLDEN=1` rewrites it.

use super::*;

type Tree = BTreeMap<String, Vec<u8>>;

fn tree(bundle: &Bundle) -> Tree {
    let mut tree: Tree = bundle.to_folder().into_iter().map(|(path, _, content)| (path, content)).collect();
    tree.insert("bundle.json".to_owned(), bundle.to_json().into_bytes());
    tree.insert("cloud-config.yaml".to_owned(), cloud_config(bundle).unwrap().into_bytes());
    tree.insert("gate.env".to_owned(), render_gate(&bundle.gate, &BTreeMap::new()));
    tree
}

fn load(folder: &Path, prefix: &str, tree: &mut Tree) {
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        if entry.path().is_dir() {
            load(&entry.path(), &format!("{name}/"), tree);
        } else if name != "spec.yaml" {
            tree.insert(name, fs::read(entry.path()).unwrap());
        }
    }
}

fn update(folder: &Path, expected: &Tree, actual: &Tree) {
    for path in expected.keys() {
        fs::remove_file(folder.join(path)).unwrap();
    }
    for (path, content) in actual {
        let path = folder.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
}

#[test]
fn every_case_is_rendered_as_its_golden_tree() {
    for case in [
        "eksctl-al2",
        "eksctl-al2-max-pods-override",
        "eksctl-al2023-token",
        "eksctl-ubuntu",
        "tectonic-flatcar",
        "tectonic-master",
        "tectonic-worker",
    ] {
        let bundle = rendered(case);
        assert_eq!(Bundle::parse(bundle.to_json().as_bytes()).as_ref(), Ok(&bundle), "{case}");
        let (folder, actual) = (golden_root().join(case), tree(&bundle));
        let mut expected = Tree::new();
        load(&folder, "", &mut expected);
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            update(&folder, &expected, &actual);
            continue;
        }
        for path in expected.keys().chain(actual.keys()).collect::<BTreeSet<_>>() {
            let text = |tree: &Tree| tree.get(path).map(|bytes| String::from_utf8_lossy(bytes).into_owned());
            assert_eq!(text(&actual), text(&expected), "{case}/{path}: left is rendered, right is golden");
        }
    }
}
