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

/// In which minors of Kubernetes something is there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Availability {
    /// 0: always was.
    pub(crate) since: u32,
    /// The first minor without it.
    pub(crate) until: u32,
}

impl Availability {
    pub(crate) const ALWAYS: Self = Self { since: 0, until: u32::MAX };

    pub(crate) fn includes(self, minor: u32) -> bool {
        (self.since..self.until).contains(&minor)
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) schema: Schema,
    pub(crate) available: Availability,
    /// JSON of the component's own default when the document leaves it out.
    pub(crate) builtin: Option<&'static str>,
}

impl Field {
    /// The fields of an object.
    pub(crate) fn below(&self) -> &'static [Field] {
        match self.schema {
            Schema::Object(fields) => fields,
            _ => &[],
        }
    }
}

pub(crate) const fn field(name: &'static str, schema: Schema) -> Field {
    Field { name, schema, available: Availability::ALWAYS, builtin: None }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FlagKind {
    Text,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Flag {
    pub(crate) name: &'static str,
    pub(crate) kind: FlagKind,
    pub(crate) available: Availability,
    pub(crate) builtin: Option<&'static str>,
    pub(crate) deprecated: bool,
}

pub(crate) const INT32: Schema = Schema::Int { min: i32::MIN as i64, max: i32::MAX as i64 };
pub(crate) const INT64: Schema = Schema::Int { min: i64::MIN, max: i64::MAX };
pub(crate) const COUNT: Schema = Schema::Int { min: 0, max: i32::MAX as i64 };
pub(crate) const COUNT64: Schema = Schema::Int { min: 0, max: i64::MAX };
pub(crate) const PERCENT: Schema = Schema::Int { min: 0, max: 100 };
pub(crate) const TEXTS: Schema = Schema::List(&Schema::Text);
pub(crate) const TEXT_MAP: Schema = Schema::Map(&Schema::Text);
