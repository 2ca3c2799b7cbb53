//! Arithmetic for max pods: `default_enis * (ips_per_eni - 1) + 2`, `min(max_pods, 110)`, `cpus < 30 ? 110 : 250`.
//!
//! The variables are nodeadm's (`maxPodsExpression`), so that its expressions can be kept; unlike there, an expression
//! that is wrong or has no value is an error and never quietly something else.
//!
//! ```text
//! choice     = comparison [ "?" choice ":" choice ]
//! comparison = sum [ ("<" | "<=" | ">" | ">=" | "==" | "!=") sum ]
//! sum        = product { ("+" | "-") product }
//! product    = unary { ("*" | "/") unary }
//! unary      = { "-" } primary
//! primary    = INTEGER | VARIABLE | ("min" | "max") "(" choice { "," choice } ")" | "(" choice ")"
//! ```
//! A comparison is not a number: it stands before "?" only. "/" drops the remainder.

use std::fmt;
use std::str::FromStr;

use crate::instances::{self, AddressMode, InstanceType};
use crate::nearest::nearest;
use crate::values::Invalid;

/// Bounds what a hostile spec can cost; the longest sensible expression is a quarter of it.
const LONGEST: usize = 200;
/// Parentheses, signs, functions and choices inside each other: the parser calls itself this often at most.
const DEEPEST: usize = 24;

/// What a variable stands for on one node; `None` where it is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Variables {
    pub(crate) default_enis: Option<i64>,
    pub(crate) ips_per_eni: Option<i64>,
    pub(crate) max_pods: Option<i64>,
    pub(crate) cpus: Option<i64>,
    pub(crate) memory_mib: Option<i64>,
}

impl Variables {
    /// As nodeadm: `max_pods` is what the type gives with addresses one by one.
    pub(crate) fn of(instance: &InstanceType) -> Self {
        Self {
            default_enis: Some(instance.interfaces.into()),
            ips_per_eni: Some(instance.addresses_per_interface.into()),
            max_pods: Some(instances::max_pods(instance, AddressMode::Secondary).into()),
            cpus: Some(instance.cpus.into()),
            memory_mib: Some(instance.memory_mib.into()),
        }
    }

    fn get(&self, variable: Variable) -> Option<i64> {
        match variable {
            Variable::DefaultEnis => self.default_enis,
            Variable::IpsPerEni => self.ips_per_eni,
            Variable::MaxPods => self.max_pods,
            Variable::Cpus => self.cpus,
            Variable::MemoryMib => self.memory_mib,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Variable {
    DefaultEnis,
    IpsPerEni,
    MaxPods,
    Cpus,
    MemoryMib,
}

/// `vcpus` is nodeadm's newer name of `cpus`.
const NAMES: &[(&str, Variable)] = &[
    ("default_enis", Variable::DefaultEnis),
    ("ips_per_eni", Variable::IpsPerEni),
    ("max_pods", Variable::MaxPods),
    ("cpus", Variable::Cpus),
    ("memory_mib", Variable::MemoryMib),
    ("vcpus", Variable::Cpus),
];
const FUNCTIONS: &[(&str, Extreme)] = &[("min", Extreme::Smallest), ("max", Extreme::Largest)];

impl Variable {
    pub(crate) fn as_str(self) -> &'static str {
        NAMES.iter().find(|(_, variable)| *variable == self).map_or("", |(name, _)| name)
    }
}

/// A checked expression. Equal if written alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expression {
    text: String,
    root: Number,
}

impl Expression {
    pub(crate) fn evaluate(&self, variables: &Variables) -> Result<i64, Invalid> {
        self.root.evaluate(variables)
    }

    /// The value as a number of pods: the kubelet takes no negative number and nodeadm none below 1.
    pub(crate) fn evaluate_pods(&self, variables: &Variables) -> Result<u32, Invalid> {
        let value = self.evaluate(variables)?;
        u32::try_from(value).ok().filter(|pods| (1..=i32::MAX.unsigned_abs()).contains(pods)).ok_or_else(|| {
            Invalid::new(format!("max pods cannot be {value}, the value of \"{}\"", self.text)).advise(format!(
                "the value must be from 1 to {}; max(…, 1) and min(…, 250) keep it in bounds",
                i32::MAX
            ))
        })
    }
}

impl fmt::Display for Expression {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

impl FromStr for Expression {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        if text.len() > LONGEST {
            return Err(Invalid::new(format!("the expression is longer than {LONGEST} bytes"))
                .advise("write the number that it stands for, or a shorter rule"));
        }
        let mut parser = Parser { tokens: tokenise(text)?, at: 0, depth: 0 };
        let start = parser.peek().column;
        let root = number(parser.choice()?, start)?;
        match parser.next() {
            Token { kind: Kind::End, .. } => Ok(Self { text: text.to_owned(), root }),
            extra => Err(extra.unexpected("an operator or the end")),
        }
    }
}

/// Columns count characters from 1, of the expression's own text.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Number {
    Literal(i64),
    Variable { variable: Variable, column: usize },
    Negative { of: Box<Number>, column: usize },
    Binary { operator: Operator, left: Box<Number>, right: Box<Number>, column: usize },
    Extreme { which: Extreme, of: Vec<Number> },
    Choice { condition: Box<Condition>, then: Box<Number>, otherwise: Box<Number> },
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Condition {
    relation: Relation,
    left: Number,
    right: Number,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extreme {
    Smallest,
    Largest,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Relation {
    Less,
    AtMost,
    Greater,
    AtLeast,
    Equal,
    Unequal,
}

impl Number {
    fn evaluate(&self, variables: &Variables) -> Result<i64, Invalid> {
        match self {
            Self::Literal(value) => Ok(*value),
            Self::Variable { variable, column } => variables.get(*variable).ok_or_else(|| {
                mistake(format!("{} is not known here", variable.as_str()), *column)
                    .advise("name the instance type, or write max pods as a number")
            }),
            Self::Negative { of, column } => of.evaluate(variables)?.checked_neg().ok_or_else(|| overflow(*column)),
            Self::Binary { operator, left, right, column } => {
                operator.apply(left.evaluate(variables)?, right.evaluate(variables)?, *column)
            }
            Self::Extreme { which, of } => {
                let values = of.iter().map(|each| each.evaluate(variables)).collect::<Result<Vec<i64>, Invalid>>()?;
                let extreme = match which {
                    Extreme::Smallest => values.into_iter().min(),
                    Extreme::Largest => values.into_iter().max(),
                };
                extreme.ok_or_else(|| Invalid::new("min() and max() need a value"))
            }
            Self::Choice { condition, then, otherwise } => {
                let chosen = if condition.holds(variables)? { then } else { otherwise };
                chosen.evaluate(variables)
            }
        }
    }
}

impl Condition {
    fn holds(&self, variables: &Variables) -> Result<bool, Invalid> {
        let (left, right) = (self.left.evaluate(variables)?, self.right.evaluate(variables)?);
        Ok(match self.relation {
            Relation::Less => left < right,
            Relation::AtMost => left <= right,
            Relation::Greater => left > right,
            Relation::AtLeast => left >= right,
            Relation::Equal => left == right,
            Relation::Unequal => left != right,
        })
    }
}

impl Operator {
    fn apply(self, left: i64, right: i64, column: usize) -> Result<i64, Invalid> {
        let result = match self {
            Self::Add => left.checked_add(right),
            Self::Subtract => left.checked_sub(right),
            Self::Multiply => left.checked_mul(right),
            Self::Divide if right == 0 => {
                return Err(mistake("division by zero", column)
                    .advise("divide by max(…, 1) if the divisor can be 0 on this type"));
            }
            Self::Divide => left.checked_div(right),
        };
        result.ok_or_else(|| overflow(column))
    }
}

fn mistake(what: impl fmt::Display, column: usize) -> Invalid {
    Invalid::new(format!("{what} (column {column} of the expression)"))
}

fn overflow(column: usize) -> Invalid {
    mistake("the value does not fit into 64 bits", column).advise("max pods is a small number: use smaller factors")
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    Integer(i64),
    Variable(Variable),
    Function(Extreme),
    Relation(Relation),
    /// One of `+-*/(),?:`.
    Sign(char),
    End,
}

#[derive(Clone, Debug)]
struct Token {
    kind: Kind,
    /// As written, for messages.
    text: String,
    column: usize,
}

impl Token {
    fn unexpected(&self, wanted: &str) -> Invalid {
        let found = if self.kind == Kind::End { "the end".to_owned() } else { format!("\"{}\"", self.text) };
        mistake(format!("{found} where {wanted} is needed"), self.column)
            .advise("an expression is like default_enis * (ips_per_eni - 1) + 2 or min(max_pods, 110)")
    }
}

fn tokenise(text: &str) -> Result<Vec<Token>, Invalid> {
    let characters: Vec<char> = text.chars().collect();
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(&first) = characters.get(at) {
        let run = |belongs: fn(char) -> bool| -> String {
            characters[at..].iter().copied().take_while(|character| belongs(*character)).collect()
        };
        let column = at + 1;
        let (kind, text) = match first {
            ' ' | '\t' | '\n' | '\r' => {
                at += 1;
                continue;
            }
            '0'..='9' => {
                let digits = run(|character| character.is_ascii_alphanumeric() || matches!(character, '_' | '.'));
                (integer(&digits, column)?, digits)
            }
            'a'..='z' | 'A'..='Z' | '_' => {
                let word = run(|character| character.is_ascii_alphanumeric() || matches!(character, '_' | '.'));
                (name(&word, column)?, word)
            }
            '+' | '-' | '*' | '/' | '(' | ')' | ',' | '?' | ':' => (Kind::Sign(first), first.to_string()),
            '<' | '>' | '=' | '!' => {
                let sign = run(|character| matches!(character, '<' | '>' | '=' | '!'));
                (Kind::Relation(relation(&sign, column)?), sign)
            }
            other => {
                return Err(mistake(format!("{other:?} has no meaning"), column)
                    .advise("use whole numbers, variables, + - * / ( ), min() and max(), and CONDITION ? A : B"));
            }
        };
        at += text.chars().count();
        tokens.push(Token { kind, text, column });
    }
    tokens.push(Token { kind: Kind::End, text: String::new(), column: characters.len() + 1 });
    Ok(tokens)
}

fn integer(digits: &str, column: usize) -> Result<Kind, Invalid> {
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(mistake(format!("\"{digits}\" is not a whole number"), column)
            .advise("write digits only; for a fraction, multiply and divide: max_pods * 9 / 10"));
    }
    digits.parse().map(Kind::Integer).map_err(|_| overflow(column))
}

fn name(word: &str, column: usize) -> Result<Kind, Invalid> {
    let variable = NAMES.iter().find(|(name, _)| *name == word).map(|(_, variable)| Kind::Variable(*variable));
    let function = || FUNCTIONS.iter().find(|(name, _)| *name == word).map(|(_, which)| Kind::Function(*which));
    variable.or_else(function).ok_or_else(|| {
        let names = || NAMES.iter().map(|(name, _)| *name).chain(FUNCTIONS.iter().map(|(name, _)| *name));
        let invalid = mistake(format!("\"{word}\" is neither a variable nor a function"), column);
        match nearest(word, names()) {
            Some(near) => invalid.advise(format!("did you mean \"{near}\"?")),
            None => invalid.advise(format!("there are {}", names().collect::<Vec<_>>().join(", "))),
        }
    })
}

fn relation(sign: &str, column: usize) -> Result<Relation, Invalid> {
    Ok(match sign {
        "<" => Relation::Less,
        "<=" => Relation::AtMost,
        ">" => Relation::Greater,
        ">=" => Relation::AtLeast,
        "==" => Relation::Equal,
        "!=" => Relation::Unequal,
        _ => {
            return Err(mistake(format!("\"{sign}\" is not a comparison"), column)
                .advise("write one of <, <=, >, >=, == and !="));
        }
    })
}

/// A comparison has a place of its own; everything else is a number.
enum Parsed {
    Number(Number),
    Condition(Box<Condition>),
}

fn number(parsed: Parsed, column: usize) -> Result<Number, Invalid> {
    match parsed {
        Parsed::Number(number) => Ok(number),
        Parsed::Condition(_) => Err(mistake("a comparison is not a number", column)
            .advise("say what follows from it: CONDITION ? A : B, for example cpus < 30 ? 110 : 250")),
    }
}

struct Parser {
    /// Never empty: the last is `End`.
    tokens: Vec<Token>,
    at: usize,
    depth: usize,
}

impl Parser {
    fn peek(&self) -> &Token {
        &self.tokens[self.at.min(self.tokens.len() - 1)]
    }

    fn next(&mut self) -> Token {
        let token = self.peek().clone();
        self.at += 1;
        token
    }

    fn takes(&mut self, sign: char) -> bool {
        let is_next = self.peek().kind == Kind::Sign(sign);
        if is_next {
            self.at += 1;
        }
        is_next
    }

    fn expect(&mut self, sign: char) -> Result<(), Invalid> {
        if self.takes(sign) { Ok(()) } else { Err(self.peek().unexpected(&format!("\"{sign}\""))) }
    }

    fn deeper<T>(&mut self, parse: impl FnOnce(&mut Self) -> Result<T, Invalid>) -> Result<T, Invalid> {
        if self.depth == DEEPEST {
            return Err(mistake(format!("more than {DEEPEST} levels inside each other"), self.peek().column)
                .advise("use fewer parentheses"));
        }
        self.depth += 1;
        let parsed = parse(self);
        self.depth -= 1;
        parsed
    }

    fn number(&mut self) -> Result<Number, Invalid> {
        let start = self.peek().column;
        number(self.choice()?, start)
    }

    fn choice(&mut self) -> Result<Parsed, Invalid> {
        let start = self.peek().column;
        let parsed = self.deeper(Self::comparison)?;
        let question = self.peek().column;
        if !self.takes('?') {
            return Ok(parsed);
        }
        let Parsed::Condition(condition) = parsed else {
            return Err(mistake("a number stands before \"?\"", question).advise(format!(
                "compare what begins at column {start} with something, for example cpus < 30 ? 110 : 250"
            )));
        };
        let then = Box::new(self.deeper(Self::number)?);
        self.expect(':')?;
        let otherwise = Box::new(self.deeper(Self::number)?);
        Ok(Parsed::Number(Number::Choice { condition, then, otherwise }))
    }

    fn comparison(&mut self) -> Result<Parsed, Invalid> {
        let start = self.peek().column;
        let parsed = self.sum()?;
        let Kind::Relation(relation) = self.peek().kind else { return Ok(parsed) };
        self.at += 1;
        let left = number(parsed, start)?;
        let start = self.peek().column;
        let right = number(self.sum()?, start)?;
        Ok(Parsed::Condition(Box::new(Condition { relation, left, right })))
    }

    fn sum(&mut self) -> Result<Parsed, Invalid> {
        self.chain(&[('+', Operator::Add), ('-', Operator::Subtract)], Self::product)
    }

    fn product(&mut self) -> Result<Parsed, Invalid> {
        self.chain(&[('*', Operator::Multiply), ('/', Operator::Divide)], Self::unary)
    }

    fn chain(
        &mut self,
        operators: &[(char, Operator)],
        operand: fn(&mut Self) -> Result<Parsed, Invalid>,
    ) -> Result<Parsed, Invalid> {
        let start = self.peek().column;
        let mut left = operand(self)?;
        loop {
            let column = self.peek().column;
            let Some((_, operator)) = operators.iter().find(|(sign, _)| self.takes(*sign)) else { return Ok(left) };
            let right_start = self.peek().column;
            let right = Box::new(number(operand(self)?, right_start)?);
            let boxed = Box::new(number(left, start)?);
            left = Parsed::Number(Number::Binary { operator: *operator, left: boxed, right, column });
        }
    }

    fn unary(&mut self) -> Result<Parsed, Invalid> {
        let column = self.peek().column;
        if !self.takes('-') {
            return self.primary();
        }
        let start = self.peek().column;
        let of = Box::new(number(self.deeper(Self::unary)?, start)?);
        Ok(Parsed::Number(Number::Negative { of, column }))
    }

    fn primary(&mut self) -> Result<Parsed, Invalid> {
        let token = self.next();
        Ok(match token.kind {
            Kind::Integer(value) => Parsed::Number(Number::Literal(value)),
            Kind::Variable(variable) => Parsed::Number(Number::Variable { variable, column: token.column }),
            Kind::Function(which) => {
                self.expect('(')?;
                let mut of = vec![self.number()?];
                while self.takes(',') {
                    of.push(self.number()?);
                }
                self.expect(')')?;
                Parsed::Number(Number::Extreme { which, of })
            }
            Kind::Sign('(') => {
                let inner = self.choice()?;
                self.expect(')')?;
                inner
            }
            _ => return Err(token.unexpected("a number, a variable or \"(\"")),
        })
    }
}

#[cfg(test)]
mod tests;
