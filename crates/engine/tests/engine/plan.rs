use std::{collections::BTreeMap, time::Duration};

use engine::{Plan, PlanError, StepId};
use proptest::prelude::*;

use crate::support::{Action, plan, step};

fn refused(steps: Vec<engine::Step<Action>>) -> String {
    Plan::new(BTreeMap::new(), steps).unwrap_err().to_string()
}

#[test]
fn two_steps_of_one_name_are_refused() {
    let message = refused(vec![step("a", &[]), step("a", &[])]);
    assert_eq!(message, "two steps of the plan are called `a`: give each step a name of its own");
}

#[test]
fn a_need_that_is_no_step_is_refused_by_name() {
    let message = refused(vec![step("a", &["b"])]);
    assert_eq!(message, "step `a` needs `b`, which is not in the plan: add that step or drop the need");
}

#[test]
fn a_circle_is_refused_and_named_without_the_steps_around_it() {
    let steps = vec![step("x", &["a"]), step("a", &["b"]), step("b", &["c"]), step("c", &["a"]), step("y", &[])];
    let message = refused(steps);
    assert!(message.ends_with("so none can start: `a` needs `b` needs `c` needs `a`"), "{message}");
}

#[test]
fn a_step_that_needs_itself_is_a_circle() {
    let error = Plan::new(BTreeMap::new(), vec![step("a", &["a"])]).unwrap_err();
    assert!(matches!(error, PlanError::Cycle { cycle } if cycle == [StepId::from("a")]));
}

#[test]
fn the_json_under_the_digest_is_compact_and_has_one_order() {
    let action = BTreeMap::from([("b", 1), ("a", 2)]);
    let step =
        engine::Step { id: "w".into(), needs: vec![], action, deadline: Duration::from_millis(1500), barrier: true };
    let inputs = BTreeMap::from([("bundle".to_owned(), "quo\"te".to_owned())]);
    let plan = Plan::new(inputs, vec![step]).unwrap();
    let expected = concat!(
        r#"{"inputs":{"bundle":"quo\"te"},"steps":[{"id":"w","needs":[],"action":{"a":2,"b":1},"#,
        r#""deadlineMs":1500,"barrier":true}]}"#
    );
    assert_eq!(plan.to_json(), expected);
    assert_eq!(plan.digest(), engine::Digest::of(expected.as_bytes()));
}

#[test]
fn the_digest_changes_with_anything_in_the_plan() {
    let base = plan(vec![step("a", &[]), step("b", &["a"])]);
    let mut others = vec![base.clone(); 5];
    others[0].inputs.insert("k".into(), "v".into());
    others[1].steps[0].action.push('!');
    others[2].steps[1].needs.clear();
    others[3].steps[0].deadline = Duration::from_secs(31);
    others[4].steps[0].barrier = true;
    for other in &others {
        assert_ne!(other.digest(), base.digest(), "{}", other.to_json());
    }
}

#[test]
fn a_plan_reads_back_from_its_json_and_is_validated_again() {
    let plan = plan(vec![step("a", &[]), step("b", &["a"])]);
    let text = plan.to_json();
    assert_eq!(serde_json::from_str::<Plan<Action>>(&text).unwrap(), plan);
    let error = serde_json::from_str::<Plan<Action>>(&text.replace(r#"["a"]"#, r#"["z"]"#)).unwrap_err();
    assert!(error.to_string().contains("needs `z`"), "{error}");
}

#[test]
fn the_critical_path_is_the_slowest_chain_and_not_the_longest_list() {
    let plan = plan(vec![step("a", &[]), step("b", &["a"]), step("c", &["b"]), step("slow", &["a"]), step("z", &[])]);
    let durations = [("a", 1), ("b", 2), ("c", 3), ("slow", 9), ("z", 9)];
    let durations = durations.map(|(id, seconds)| (StepId::from(id), Duration::from_secs(seconds))).into();
    assert_eq!(plan.critical_path(&durations), [StepId::from("a"), StepId::from("slow")]);
    assert!(plan.critical_path(&BTreeMap::new()).is_empty());
}

proptest! {
    #[test]
    fn any_graph_is_either_a_plan_or_refused_with_a_true_circle(edges in prop::collection::vec((0..8_usize, 0..8_usize), 0..20)) {
        let name = |n: usize| format!("s{n}");
        let needs = |n: usize| edges.iter().filter(|edge| edge.0 == n).map(|edge| name(edge.1)).collect::<Vec<_>>();
        let steps = (0..8).map(|n| {
            let needs = needs(n);
            step(&name(n), &needs.iter().map(String::as_str).collect::<Vec<_>>())
        }).collect();
        match Plan::new(BTreeMap::new(), steps) {
            Ok(plan) => prop_assert!(edges.iter().all(|&(a, b)| a != b), "{plan:?}"),
            Err(PlanError::Cycle { cycle }) => {
                for (at, id) in cycle.iter().enumerate() {
                    let next = &cycle[(at + 1) % cycle.len()];
                    let number: usize = id.as_str()[1..].parse().unwrap();
                    prop_assert!(needs(number).contains(&next.0), "{id} does not need {next}");
                }
            }
            Err(other) => prop_assert!(false, "{other}"),
        }
    }
}
