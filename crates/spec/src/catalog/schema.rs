//! The shape of a configuration document.

/// What may stand at a place.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Schema {
    Bool,
    Int {
        min: i64,
        max: i64,
    },
    Float,
    Text,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// A Go duration, as text.
    Duration,
    List(&'static Schema),
    /// Any keys, values of one kind.
    Map(&'static Schema),
    Object(&'static [Field]),
    /// No table of it: the scalars mean what YAML 1.2 says.
    Free,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) schema: Schema,
}

pub(crate) const fn field(name: &'static str, schema: Schema) -> Field {
    Field { name, schema }
}

pub(crate) const INT32: Schema = Schema::Int { min: i32::MIN as i64, max: i32::MAX as i64 };
pub(crate) const INT64: Schema = Schema::Int { min: i64::MIN, max: i64::MAX };
pub(crate) const COUNT: Schema = Schema::Int { min: 0, max: i32::MAX as i64 };
pub(crate) const COUNT64: Schema = Schema::Int { min: 0, max: i64::MAX };
pub(crate) const PERCENT: Schema = Schema::Int { min: 0, max: 100 };
pub(crate) const TEXTS: Schema = Schema::List(&Schema::Text);
pub(crate) const TEXT_MAP: Schema = Schema::Map(&Schema::Text);
