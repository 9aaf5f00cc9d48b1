//! Which items are compiled into tests only.
//!
//! `cfg(all(test, unix))` holds in tests alone, `cfg(any(test, feature = "op-info"))` elsewhere too. A
//! predicate is therefore evaluated without tests and with everything else unknown: what is then surely
//! false belongs to tests.

use syn::punctuated::Punctuated;
use syn::{Attribute, Expr, ImplItem, Item, Meta, Token, TraitItem};

/// Whether these attributes leave something out of every build but that of tests.
pub(super) fn is_test_only(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let path = attribute.path();
        let is_cfg =
            || attribute.parse_args::<Meta>().is_ok_and(|meta| holds(&meta) == Some(false));
        path.is_ident("test") || path.is_ident("cfg") && is_cfg()
    })
}

/// The value of a predicate where `test` is false; none where it depends on more.
fn holds(predicate: &Meta) -> Option<bool> {
    match predicate {
        Meta::Path(path) if path.is_ident("test") => Some(false),
        Meta::List(list) => {
            let parser = Punctuated::<Meta, Token![,]>::parse_terminated;
            let inner = list.parse_args_with(parser).ok()?;
            let values: Vec<_> = inner.iter().map(holds).collect();
            let decides = |value: bool| values.contains(&Some(value)).then_some(value);
            let is_all = |value: bool| values.iter().all(|v| *v == Some(value)).then_some(value);
            match list.path.get_ident()?.to_string().as_str() {
                "not" => values.first().copied().flatten().map(|value| !value),
                "all" => decides(false).or(is_all(true)),
                "any" => decides(true).or(is_all(false)),
                _ => None,
            }
        }
        Meta::Path(_) | Meta::NameValue(_) => None,
    }
}

/// The attributes of an item.
pub(super) fn of_item(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::ExternCrate(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::ForeignMod(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::TraitAlias(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// The attributes of an item of an `impl`.
pub(super) fn of_impl_item(item: &ImplItem) -> &[Attribute] {
    match item {
        ImplItem::Const(item) => &item.attrs,
        ImplItem::Fn(item) => &item.attrs,
        ImplItem::Type(item) => &item.attrs,
        ImplItem::Macro(item) => &item.attrs,
        _ => &[],
    }
}

/// The attributes of an item of a trait.
pub(super) fn of_trait_item(item: &TraitItem) -> &[Attribute] {
    match item {
        TraitItem::Const(item) => &item.attrs,
        TraitItem::Fn(item) => &item.attrs,
        TraitItem::Type(item) => &item.attrs,
        TraitItem::Macro(item) => &item.attrs,
        _ => &[],
    }
}

/// The attributes of an expression of the kinds that stand as statements.
pub(super) fn of_expr(expr: &Expr) -> &[Attribute] {
    match expr {
        Expr::Assign(expr) => &expr.attrs,
        Expr::Block(expr) => &expr.attrs,
        Expr::Call(expr) => &expr.attrs,
        Expr::If(expr) => &expr.attrs,
        Expr::Macro(expr) => &expr.attrs,
        Expr::Match(expr) => &expr.attrs,
        Expr::MethodCall(expr) => &expr.attrs,
        Expr::Unsafe(expr) => &expr.attrs,
        _ => &[],
    }
}
