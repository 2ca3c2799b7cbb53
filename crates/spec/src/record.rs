//! What a spec is made of, written down once: a `record!` names each field with its type and its meaning, and from that
//! line come the decoder, the complete form, the view that is printed and explained, and the JSON schema for editors.
//!
//! A field has a slot, which says how it is filled: [`Leaf`] (left out: nodestrap decides), [`Required`], [`Maybe`]
//! (left out: not there), [`Nested`] (a record of its own), [`Config`] and [`Flags`] (a component's own settings).

use std::collections::BTreeMap;
use std::marker::PhantomData;

use serde_json::{Map, Value, json};

use crate::catalog::{Component, Release};
use crate::config_tree::ConfigTree;
use crate::decode::{Drafts, Fields};
use crate::origin::{Origin, Setting};
use crate::resolve::Files;
use crate::source::Span;
use crate::tree::Node;
use crate::view::{Look, View};

/// What decoding may ask.
#[derive(Clone, Copy)]
pub(crate) struct Context<'n> {
    pub(crate) drafts: &'n Drafts<'n>,
    pub(crate) files: &'n Files<'n>,
    /// Of the documents' Kubernetes.
    pub(crate) release: &'n Release,
}

/// A type that a user writes as one value.
pub(crate) trait SpecValue: Clone + PartialEq {
    /// Reports what is wrong.
    fn decode<'n>(context: Context<'n>, node: &'n Node) -> Option<Self>;
    fn to_json(&self, look: Look) -> Value;
    fn schema() -> Value;
}

/// A mapping with known fields, made by `record!`.
pub(crate) trait Record: Sized {
    type Spec;
    /// For messages: "… has no field …".
    const WHAT: &'static str;
    fn decode_fields<'n>(context: Context<'n>, fields: Fields<'n>) -> Option<Self::Spec>;
    fn view(&self, look: Look) -> View<'_>;
    fn schema() -> Value;

    fn decode<'n>(context: Context<'n>, node: &'n Node) -> Option<Self::Spec> {
        Self::decode_fields(context, context.drafts.fields(node, Self::WHAT)?)
    }
}

/// How a field of a record is filled.
pub(crate) trait Slot {
    type Spec;
    type Complete;
    const REQUIRED: bool = false;
    fn decode<'n>(context: Context<'n>, fields: &mut Fields<'n>, name: &'static str) -> Option<Self::Spec>;
    /// `None`: the field is not there.
    fn view(complete: &Self::Complete, look: Look) -> Option<View<'_>>;
    fn schema() -> Value;
}

pub(crate) struct Leaf<T>(PhantomData<T>);
pub(crate) struct Required<T>(PhantomData<T>);
pub(crate) struct Maybe<T>(PhantomData<T>);
pub(crate) struct Nested<R>(PhantomData<R>);
pub(crate) struct RequiredNested<R>(PhantomData<R>);
pub(crate) struct Config<C>(PhantomData<C>);
pub(crate) struct Flags<C>(PhantomData<C>);

/// A component whose configuration or flags are a field of a record.
pub(crate) trait Configures {
    const COMPONENT: Component;
}

macro_rules! configures {
    ($($name:ident),+ $(,)?) => {
        $(
            pub(crate) struct $name;
            impl Configures for $name {
                const COMPONENT: Component = Component::$name;
            }
        )+
    };
}

configures!(Kubelet, KubeApiserver, KubeControllerManager, KubeScheduler, KubeProxy, Etcd, Containerd);

fn decode_leaf<'n, T: SpecValue>(
    context: Context<'n>,
    fields: &mut Fields<'n>,
    name: &'static str,
) -> Option<Option<Setting<T>>> {
    if !fields.has(name) {
        fields.entry(name);
        return Some(None);
    }
    fields.optional(name, |_, node| T::decode(context, node)).map(Some)
}

impl<T: SpecValue> Slot for Leaf<T> {
    type Spec = Option<Setting<T>>;
    type Complete = Setting<T>;

    fn decode<'n>(context: Context<'n>, fields: &mut Fields<'n>, name: &'static str) -> Option<Self::Spec> {
        decode_leaf(context, fields, name)
    }

    fn view(complete: &Setting<T>, look: Look) -> Option<View<'_>> {
        Some(spread(complete, look))
    }

    fn schema() -> Value {
        T::schema()
    }
}

/// The keys of a mapping are paths of their own; an empty mapping is a leaf, because it has an origin, too.
fn spread<T: SpecValue>(setting: &Setting<T>, look: Look) -> View<'_> {
    match setting.value.to_json(look) {
        Value::Object(fields) if !fields.is_empty() => {
            View::Branch(fields.into_iter().map(|(key, value)| (key, View::Entry(value, &setting.origin))).collect())
        }
        value => View::Leaf(value, &setting.origin),
    }
}

impl<T: SpecValue> Slot for Maybe<T> {
    type Spec = Option<Setting<T>>;
    type Complete = Option<Setting<T>>;

    fn decode<'n>(context: Context<'n>, fields: &mut Fields<'n>, name: &'static str) -> Option<Self::Spec> {
        decode_leaf(context, fields, name)
    }

    fn view(complete: &Option<Setting<T>>, look: Look) -> Option<View<'_>> {
        complete.as_ref().map(|setting| spread(setting, look))
    }

    fn schema() -> Value {
        T::schema()
    }
}

impl<T: SpecValue> Slot for Required<T> {
    type Spec = Setting<T>;
    type Complete = Setting<T>;
    const REQUIRED: bool = true;

    fn decode<'n>(context: Context<'n>, fields: &mut Fields<'n>, name: &'static str) -> Option<Self::Spec> {
        fields.required(name, |_, node| T::decode(context, node))
    }

    fn view(complete: &Setting<T>, look: Look) -> Option<View<'_>> {
        Some(spread(complete, look))
    }

    fn schema() -> Value {
        T::schema()
    }
}

impl<R: Record> Slot for Nested<R> {
    type Spec = R::Spec;
    type Complete = R;

    fn decode<'n>(context: Context<'n>, fields: &mut Fields<'n>, name: &'static str) -> Option<Self::Spec> {
        match fields.entry(name) {
            Some(entry) => R::decode(context, &entry.value),
            None => R::decode_fields(context, fields.absent(R::WHAT)),
        }
    }

    fn view(complete: &R, look: Look) -> Option<View<'_>> {
        Some(complete.view(look)).filter(|view| !view.is_empty())
    }

    fn schema() -> Value {
        R::schema()
    }
}

/// A record that means something in one case only, such as a layout.
pub(crate) struct Case<R>(PhantomData<R>);

#[derive(Clone)]
pub(crate) struct Written<T> {
    pub(crate) spec: T,
    /// `None`: the user did not write it.
    pub(crate) origin: Option<Origin>,
}

impl<R: Record> Slot for Case<R> {
    type Spec = Written<R::Spec>;
    type Complete = Option<R>;

    fn decode<'n>(context: Context<'n>, fields: &mut Fields<'n>, name: &'static str) -> Option<Self::Spec> {
        let origin = fields.entry(name).map(|entry| context.drafts.user(entry.key_span));
        Some(Written { spec: <Nested<R> as Slot>::decode(context, fields, name)?, origin })
    }

    fn view(complete: &Option<R>, look: Look) -> Option<View<'_>> {
        complete.as_ref().map(|record| record.view(look))
    }

    fn schema() -> Value {
        R::schema()
    }
}

/// A record that is there only if the user writes it.
pub(crate) struct Given<R>(PhantomData<R>);

impl<R: Record> Slot for Given<R> {
    type Spec = Option<Setting<R::Spec>>;
    type Complete = Option<R>;

    fn decode<'n>(context: Context<'n>, fields: &mut Fields<'n>, name: &'static str) -> Option<Self::Spec> {
        let Some(entry) = fields.entry(name) else { return Some(None) };
        let origin = context.drafts.user(entry.key_span);
        R::decode(context, &entry.value).map(|value| Some(Setting { value, origin }))
    }

    fn view(complete: &Option<R>, look: Look) -> Option<View<'_>> {
        complete.as_ref().map(|record| record.view(look))
    }

    fn schema() -> Value {
        R::schema()
    }
}

impl<R: Record> Slot for RequiredNested<R> {
    type Spec = R::Spec;
    type Complete = R;
    const REQUIRED: bool = true;

    fn decode<'n>(context: Context<'n>, fields: &mut Fields<'n>, name: &'static str) -> Option<Self::Spec> {
        fields.required(name, |_, node| R::decode(context, node)).map(|setting| setting.value)
    }

    fn view(complete: &R, look: Look) -> Option<View<'_>> {
        Some(complete.view(look))
    }

    fn schema() -> Value {
        R::schema()
    }
}

impl<C: Configures> Slot for Config<C> {
    type Spec = ConfigTree;
    type Complete = ConfigTree;

    fn decode<'n>(context: Context<'n>, fields: &mut Fields<'n>, name: &'static str) -> Option<Self::Spec> {
        match fields.entry(name) {
            Some(entry) => crate::config::decode_component(context, &entry.value, C::COMPONENT),
            None => Some(ConfigTree::new()),
        }
    }

    fn view(complete: &ConfigTree, look: Look) -> Option<View<'_>> {
        Some(crate::view::config(complete, C::COMPONENT, look)).filter(|view| !view.is_empty())
    }

    fn schema() -> Value {
        crate::schema::config_schema(C::COMPONENT.config().unwrap_or_default())
    }
}

impl<C: Configures> Slot for Flags<C> {
    type Spec = BTreeMap<String, Setting<String>>;
    type Complete = BTreeMap<String, Setting<String>>;

    fn decode<'n>(context: Context<'n>, fields: &mut Fields<'n>, name: &'static str) -> Option<Self::Spec> {
        match fields.entry(name) {
            Some(entry) => {
                crate::flags::decode_flags(context.drafts, &entry.value, context.release.target(C::COMPONENT))
            }
            None => Some(BTreeMap::new()),
        }
    }

    fn view(complete: &BTreeMap<String, Setting<String>>, look: Look) -> Option<View<'_>> {
        Some(crate::view::flags(complete, C::COMPONENT, look))
    }

    fn schema() -> Value {
        crate::schema::flags_schema(C::COMPONENT.flags())
    }
}

/// The fields of a record, in the order in which they are printed.
macro_rules! record {
    (
        $what:literal,
        $(#[doc = $meaning:literal])*
        $spec:ident => $complete:ident {
            $( $(#[doc = $doc:literal])+ $field:ident: $slot:ty = $name:literal ),+ $(,)?
        }
    ) => {
        #[derive(Clone)]
        pub(crate) struct $spec {
            $(pub(crate) $field: <$slot as $crate::record::Slot>::Spec),+
        }

        $(#[doc = $meaning])*
        #[derive(Clone, PartialEq)]
        #[allow(private_interfaces, reason = "a slot names a public type by a rule that is ours")]
        pub struct $complete {
            $($(#[doc = $doc])+ pub $field: <$slot as $crate::record::Slot>::Complete),+
        }

        impl $crate::record::Record for $complete {
            type Spec = $spec;
            const WHAT: &'static str = $what;

            fn decode_fields<'n>(
                context: $crate::record::Context<'n>,
                mut fields: $crate::decode::Fields<'n>,
            ) -> Option<$spec> {
                $(let $field = <$slot as $crate::record::Slot>::decode(context, &mut fields, $name);)+
                fields.finish();
                Some($spec { $($field: $field?),+ })
            }

            fn view(&self, look: $crate::view::Look) -> $crate::view::View<'_> {
                let mut fields = Vec::new();
                $(
                    if let Some(view) = <$slot as $crate::record::Slot>::view(&self.$field, look) {
                        fields.push(($name.to_owned(), view));
                    }
                )+
                $crate::view::View::Branch(fields)
            }

            fn schema() -> serde_json::Value {
                $crate::record::record_schema(vec![
                    $((
                        $name,
                        concat!($($doc),+),
                        <$slot as $crate::record::Slot>::schema(),
                        <$slot as $crate::record::Slot>::REQUIRED,
                    )),+
                ])
            }
        }
    };
}
pub(crate) use record;

/// Where an item of a list was written. No part of what it says: two items are the same wherever they stand.
#[derive(Clone, Copy, Debug, Default)]
pub struct Place(pub(crate) Option<Span>);

impl PartialEq for Place {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// One item of a list, or one value with parts: plain fields without origins of their own.
macro_rules! item {
    (
        $what:literal,
        $(#[doc = $meaning:literal])+
        $name:ident {
            $( $(#[doc = $doc:literal])+ $field:ident: $type:ty = $key:literal $(or $default:expr)? ),+ $(,)?
        }
    ) => {
        $(#[doc = $meaning])+
        #[derive(Clone, Debug, PartialEq)]
        #[allow(unreachable_pub, reason = "some are a step on the way to what others see")]
        pub struct $name {
            $($(#[doc = $doc])+ pub $field: $type,)+
            pub place: $crate::record::Place,
        }

        impl $crate::record::SpecValue for $name {
            fn decode<'n>(context: $crate::record::Context<'n>, node: &'n $crate::tree::Node) -> Option<Self> {
                let mut fields = context.drafts.fields(node, $what)?;
                $(let $field = $crate::record::item_field!(context, fields, $type, $key $(, $default)?);)+
                fields.finish();
                Some(Self { $($field: $field?,)+ place: $crate::record::Place(Some(node.span)) })
            }

            fn to_json(&self, look: $crate::view::Look) -> serde_json::Value {
                let mut fields = serde_json::Map::new();
                $(
                    let value = $crate::record::SpecValue::to_json(&self.$field, look);
                    if !value.is_null() {
                        fields.insert($key.to_owned(), value);
                    }
                )+
                serde_json::Value::Object(fields)
            }

            fn schema() -> serde_json::Value {
                $crate::record::record_schema(vec![
                    $((
                        $key,
                        concat!($($doc),+),
                        <$type as $crate::record::SpecValue>::schema(),
                        !$crate::record::has_default!($($default)?),
                    )),+
                ])
            }
        }
    };
}
pub(crate) use item;

macro_rules! item_field {
    ($context:ident, $fields:ident, $type:ty, $key:literal) => {
        $fields
            .required($key, |_, node| <$type as $crate::record::SpecValue>::decode($context, node))
            .map(|setting| setting.value)
    };
    ($context:ident, $fields:ident, $type:ty, $key:literal, $default:expr) => {
        if $fields.has($key) {
            $fields
                .optional($key, |_, node| <$type as $crate::record::SpecValue>::decode($context, node))
                .map(|setting| setting.value)
        } else {
            $fields.entry($key);
            Some($default)
        }
    };
}
pub(crate) use item_field;

macro_rules! has_default {
    () => {
        false
    };
    ($default:expr) => {
        true
    };
}
pub(crate) use has_default;

/// Name, meaning, schema, required.
pub(crate) fn record_schema(fields: Vec<(&str, &str, Value, bool)>) -> Value {
    let mut properties = Map::new();
    let mut required = Vec::new();
    for (name, meaning, mut schema, is_required) in fields {
        if let Some(schema) = schema.as_object_mut() {
            schema.insert("description".to_owned(), Value::from(meaning.trim()));
        }
        properties.insert(name.to_owned(), schema);
        if is_required {
            required.push(Value::from(name));
        }
    }
    let mut schema = json!({ "type": "object", "additionalProperties": false, "properties": properties });
    if let (false, Some(fields)) = (required.is_empty(), schema.as_object_mut()) {
        fields.insert("required".to_owned(), Value::Array(required));
    }
    schema
}
