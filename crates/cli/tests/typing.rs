//! `schema` and `completions`: what helps while people type.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, reason = "tests own their effects and may panic")]

mod support;

use support::{BINARY, finish, nodestrap, program};

#[test]
fn the_schema_is_one_for_both_kinds_in_both_formats() {
    let printed = nodestrap(["schema"]).expect(0);
    assert_eq!(printed.err, "");
    let schema = printed.json();
    assert_eq!(schema, spec::json_schema());
    assert_eq!(schema["oneOf"].as_array().unwrap().len(), 2);
    let yaml = nodestrap(["schema", "-o", "yaml"]).expect(0).out;
    assert_eq!(serde_saphyr::from_str::<serde_json::Value>(&yaml).unwrap(), schema);
}

#[test]
fn each_shell_gets_a_script_that_knows_the_commands() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = nodestrap(["completions", shell]).expect(0).out;
        for word in ["explain", "timeline", "--show-secrets"] {
            assert!(script.contains(word.trim_start_matches("--")), "{shell} does not know {word}");
        }
    }
    nodestrap(["completions", "tcsh"]).expect(2).says(&["tcsh", "bash"]);
}

/// Whether bash itself offers what we mean.
#[test]
fn bash_completes_a_command_an_option_and_a_value() {
    let offers = |words: &[&str]| {
        let script = r#"
            binary=$1; shift
            eval "$("$binary" completions bash)"
            COMP_WORDS=(nodestrap "$@"); COMP_CWORD=$#
            _nodestrap nodestrap "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}" 2>/dev/null
            printf '%s\n' "${COMPREPLY[@]}"
        "#;
        let mut bash = program("bash");
        bash.args(["-c", script, "bash", BINARY]).args(words);
        finish(bash).expect(0).out
    };
    assert_eq!(offers(&["tim"]), "timeline\n");
    assert_eq!(offers(&["complete", "--sho"]), "--show-secrets\n");
    assert_eq!(offers(&["pki", "ins"]), "inspect\n");
    assert_eq!(offers(&["check", "--output", "ya"]), "yaml\n");
}
