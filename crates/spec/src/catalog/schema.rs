//! The shape of a configuration document and of a command line, and since when and until when each part exists.

use super::values::Form;

/// What may stand at a place.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Schema {
    Bool,
    Int {
        min: i64,
        max: i64,
    },
    Float,
    /// A number in this range; `f64::MIN_POSITIVE` as the least means above 0.
    Number {
        min: f64,
        max: f64,
    },
    Text,
    Form(Form),
    /// One of these words.
    Choice(&'static [&'static str]),
    /// A Go duration, as text.
    Duration,
    /// A Go duration in this range, in milliseconds.
    Within {
        min: i64,
        max: i64,
    },
    List(&'static Schema),
    /// Any keys, values of one kind.
    Map(&'static Schema),
    Object(&'static [Field]),
    /// These fields, and others of which there is no table.
    Open(&'static [Field]),
    /// No table of it: the scalars mean what YAML 1.2 says.
    Free,
}

/// Minor versions of the product that a table is about: Kubernetes 1.x, etcd 3.x or containerd 2.x.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Availability {
    /// 0: in every version that the catalogue knows.
    pub(crate) since: u32,
    /// The first without it; `u32::MAX`: the newest still has it.
    pub(crate) until: u32,
}

impl Availability {
    pub(crate) const ALWAYS: Self = Self { since: 0, until: u32::MAX };

    pub(crate) const fn contains(self, minor: u32) -> bool {
        self.since <= minor && minor < self.until
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) schema: Schema,
    /// Within that of the field around it.
    pub(crate) available: Availability,
    /// JSON of the component's own default, if it is the same in every version and does not depend on other fields;
    /// see also `changed_builtin`.
    pub(crate) builtin: Option<&'static str>,
}

pub(crate) const fn field(name: &'static str, schema: Schema) -> Field {
    Field { name, schema, available: Availability::ALWAYS, builtin: None }
}

impl Field {
    /// The fields of an object.
    pub(crate) const fn below(&self) -> &'static [Field] {
        match self.schema {
            Schema::Object(fields) | Schema::Open(fields) => fields,
            _ => &[],
        }
    }

    pub(crate) const fn since(mut self, minor: u32) -> Self {
        self.available.since = minor;
        self
    }

    pub(crate) const fn until(mut self, minor: u32) -> Self {
        self.available.until = minor;
        self
    }

    pub(crate) const fn builtin(mut self, json: &'static str) -> Self {
        self.builtin = Some(json);
        self
    }
}

/// How the value of a flag is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FlagKind {
    Bool,
    /// Of 64 bits.
    Int,
    Int32,
    /// Not negative.
    Natural,
    Float,
    Text,
    /// A Go duration.
    Duration,
    Address,
    /// `FIRST-LAST` or `FIRST+COUNT`.
    PortRange,
    /// Separated by commas.
    List,
    /// `key=value`, separated by commas.
    Map,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Flag {
    pub(crate) name: &'static str,
    pub(crate) kind: FlagKind,
    pub(crate) available: Availability,
    /// As `--help` shows it, if it is the same in every version; `None` also stands for an empty one. See also
    /// `changed_builtin`.
    pub(crate) builtin: Option<&'static str>,
    /// In the newest version that has it.
    pub(crate) deprecated: bool,
}

pub(crate) const fn flag(name: &'static str, kind: FlagKind) -> Flag {
    Flag { name, kind, available: Availability::ALWAYS, builtin: None, deprecated: false }
}

impl Flag {
    pub(crate) const fn since(mut self, minor: u32) -> Self {
        self.available.since = minor;
        self
    }

    pub(crate) const fn until(mut self, minor: u32) -> Self {
        self.available.until = minor;
        self
    }

    pub(crate) const fn builtin(mut self, shown: &'static str) -> Self {
        self.builtin = Some(shown);
        self
    }

    pub(crate) const fn deprecated(mut self) -> Self {
        self.deprecated = true;
        self
    }
}

pub(crate) const INT32: Schema = Schema::Int { min: i32::MIN as i64, max: i32::MAX as i64 };
pub(crate) const INT64: Schema = Schema::Int { min: i64::MIN, max: i64::MAX };
pub(crate) const TEXTS: Schema = Schema::List(&Schema::Text);
pub(crate) const TEXT_MAP: Schema = Schema::Map(&Schema::Text);
