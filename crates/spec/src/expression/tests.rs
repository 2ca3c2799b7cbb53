use proptest::prelude::*;

use super::*;

fn m5_large() -> Variables {
    Variables::of(&instances::find("m5.large").unwrap())
}

fn value(text: &str) -> i64 {
    text.parse::<Expression>().unwrap().evaluate(&m5_large()).unwrap()
}

#[test]
fn expressions_have_the_value_that_arithmetic_gives_them() {
    for (text, expected) in [
        ("default_enis * (ips_per_eni - 1) + 2", 29),
        ("min(max_pods, 110)", 29),
        ("max(max_pods, 110)", 110),
        ("min(3, 1, 2)", 1),
        ("1 + 2 * 3", 7),
        ("(1 + 2) * 3", 9),
        ("10 - 3 - 2", 5),
        ("100 / 7 / 2", 7),
        ("-7 / 2", -3),
        ("--3", 3),
        ("2 - -3", 5),
        ("cpus < 30 ? 110 : 250", 110),
        ("(vcpus >= 30) ? 250 : memory_mib / 1024", 8),
        ("cpus == 2 ? 1 < 2 ? 3 : 4 : 5", 3),
        ("cpus != 2 ? 1 : 2 != 2 ? 3 : 4", 4),
        ("min(max_pods > 20 ? 20 : 1, cpus <= 2 ? 30 : 1)", 20),
        ("\t42\n", 42),
    ] {
        assert_eq!(value(text), expected, "{text}");
    }
}

#[test]
fn mistakes_say_what_where_and_what_to_write() {
    for (text, message, advice) in [
        ("", "the end where a number, a variable or \"(\" is needed (column 1", "default_enis * (ips_per_eni - 1)"),
        ("1 +", "the end where a number", "an expression is like"),
        ("1 2", "\"2\" where an operator or the end is needed (column 3", "an expression is like"),
        ("(1", "the end where \")\" is needed (column 3", "an expression is like"),
        ("min 3", "\"3\" where \"(\" is needed (column 5", "an expression is like"),
        ("min()", "\")\" where a number", "an expression is like"),
        ("maxpods + 1", "\"maxpods\" is neither a variable nor a function (column 1", "did you mean \"max_pods\"?"),
        ("3 * gpus_of_it", "\"gpus_of_it\" is neither", "there are default_enis, ips_per_eni, max_pods, cpus"),
        ("1.5 * cpus", "\"1.5\" is not a whole number (column 1", "multiply and divide"),
        ("0x10", "\"0x10\" is not a whole number", "digits only"),
        ("99999999999999999999", "does not fit into 64 bits (column 1", "smaller factors"),
        ("ä + $", "'ä' has no meaning (column 1", "whole numbers, variables"),
        ("1 = 2 ? 1 : 2", "\"=\" is not a comparison (column 3", "=="),
        ("1 < 2", "a comparison is not a number (column 1", "CONDITION ? A : B"),
        ("1 + (1 < 2)", "a comparison is not a number (column 5", "CONDITION ? A : B"),
        ("cpus ? 1 : 2", "a number stands before \"?\" (column 6", "begins at column 1"),
        ("1 < 2 ? 3", "the end where \":\" is needed (column 10", "an expression is like"),
        ("1 < 2 < 3 ? 1 : 2", "a comparison is not a number (column 1", "CONDITION ? A : B"),
    ] {
        let invalid = text.parse::<Expression>().unwrap_err();
        assert!(invalid.message.contains(message), "{text}: {}", invalid.message);
        assert!(invalid.advice.as_deref().is_some_and(|given| given.contains(advice)), "{text}: {invalid:?}");
    }
}

#[test]
fn values_that_do_not_exist_are_errors() {
    let failure = |text: &str, variables: &Variables| {
        text.parse::<Expression>().unwrap().evaluate(variables).unwrap_err().message
    };
    assert_eq!(failure("10 / (cpus - 2)", &m5_large()), "division by zero (column 4 of the expression)");
    assert!(failure("9223372036854775807 + 1", &m5_large()).contains("64 bits (column 21"));
    assert!(failure("-(-9223372036854775807 - 1)", &m5_large()).contains("64 bits (column 1 "));
    assert!(failure("(-9223372036854775807 - 1) / -1", &m5_large()).contains("64 bits"));
    let unknown = Variables { cpus: Some(4), ..Variables::default() };
    assert_eq!(failure("cpus + max_pods", &unknown), "max_pods is not known here (column 8 of the expression)");
    // The branch that is not taken need not be known.
    let expression: Expression = "cpus > 2 ? 110 : max_pods".parse().unwrap();
    assert_eq!(expression.evaluate(&unknown), Ok(110));
}

#[test]
fn a_number_of_pods_is_at_least_one() {
    let pods = |text: &str| text.parse::<Expression>().unwrap().evaluate_pods(&m5_large());
    assert_eq!(pods("max_pods"), Ok(29));
    assert_eq!(pods("2147483647"), Ok(2_147_483_647));
    for text in ["max_pods - 29", "-1", "2147483648", "4294967297"] {
        assert!(pods(text).unwrap_err().message.contains("max pods cannot be"), "{text}");
    }
}

#[test]
fn length_and_depth_are_bounded() {
    let long = vec!["1"; 101].join("+");
    assert!(long.parse::<Expression>().unwrap_err().message.contains("200 bytes"));
    let longest = vec!["1"; 100].join("+");
    assert_eq!(value(&longest), 100);
    for (open, close) in [("(", ")"), ("-", ""), ("min(", ")"), ("1<2?1:", "")] {
        let nested = |levels: usize| format!("{}1{}", open.repeat(levels), close.repeat(levels));
        assert!(nested(10).parse::<Expression>().is_ok(), "{open}");
        assert!(nested(30).parse::<Expression>().unwrap_err().message.contains("levels"), "{open}");
    }
}

/// Expressions with only those operators that Rust spells alike, and their value.
fn arithmetic() -> impl Strategy<Value = (String, Option<i64>)> {
    let leaf = (0..1000i64).prop_map(|value| (value.to_string(), Some(value)));
    leaf.prop_recursive(4, 12, 2, |inner| {
        (inner.clone(), prop::sample::select(vec!["+", "-", "*", "/", "<"]), inner).prop_map(
            |((left, a), operator, (right, b))| {
                let both = a.zip(b);
                match operator {
                    "+" => (format!("({left} + {right})"), both.and_then(|(a, b)| a.checked_add(b))),
                    "-" => (format!("({left}-{right})"), both.and_then(|(a, b)| a.checked_sub(b))),
                    "*" => (format!("{left} *({right})"), both.and_then(|(a, b)| a.checked_mul(b))),
                    "/" => (format!("({left}/ ({right}))"), both.and_then(|(a, b)| a.checked_div(b))),
                    _ => {
                        let chosen = both.map(|(a, b)| if a < b { 1 } else { 2 });
                        (format!("({left} < {right} ? 1 : 2)"), chosen)
                    }
                }
            },
        )
    })
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in "\\PC{0,80}", variables in prop::array::uniform5(any::<Option<i64>>())) {
        let [default_enis, ips_per_eni, max_pods, cpus, memory_mib] = variables;
        let variables = Variables { default_enis, ips_per_eni, max_pods, cpus, memory_mib };
        if let Ok(expression) = text.parse::<Expression>() {
            let _ = expression.evaluate_pods(&variables);
        }
    }

    #[test]
    fn no_row_of_words_makes_it_panic(
        words in prop::collection::vec(prop::sample::select(vec![
            "+", "-", "*", "/", "(", ")", ",", "?", ":", "<", ">=", "==", "min", "max(", "cpus", "max_pods", "0",
            "7", "9223372036854775807", " ",
        ]), 0..40),
        variables in prop::array::uniform5(any::<Option<i64>>()),
    ) {
        let [default_enis, ips_per_eni, max_pods, cpus, memory_mib] = variables;
        let variables = Variables { default_enis, ips_per_eni, max_pods, cpus, memory_mib };
        if let Ok(expression) = words.concat().parse::<Expression>() {
            let _ = expression.evaluate_pods(&variables);
        }
    }

    #[test]
    fn arithmetic_agrees_with_rust((text, expected) in arithmetic()) {
        prop_assume!(text.len() <= LONGEST);
        let found = text.parse::<Expression>().unwrap().evaluate(&Variables::default()).ok();
        prop_assert_eq!(found, expected, "{}", text);
    }
}
