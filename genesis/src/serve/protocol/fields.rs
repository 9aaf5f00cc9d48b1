//! A JSON object read field by field, so that a refusal names the field and what nobody read is known.
//!
//! Derived deserializers name neither: they say where in the text a value stood, and drop what they don't
//! know. Clients of this protocol send fields that other servers invented; a server that ignores them in
//! silence is believed to obey them.

use std::ops::RangeInclusive;

use serde_json::{Map, Value};

use crate::serve::refusal::ApiError;

/// The fields of an object that were not read yet.
#[derive(Debug)]
pub(in crate::serve) struct Fields {
    object: Map<String, Value>,
    /// What stands before a name in messages: `stream_options.`
    prefix: String,
}

impl Fields {
    /// The fields of a body.
    pub(in crate::serve) fn of(body: &[u8]) -> Result<Fields, ApiError> {
        match serde_json::from_slice(body) {
            Ok(Value::Object(object)) => Ok(Fields { object, prefix: String::new() }),
            Ok(other) => {
                let found = kind(&other);
                Err(ApiError::invalid(format!("the body is {found}, it must be an object")))
            }
            Err(error) => Err(ApiError::invalid(format!("the body is no JSON: {error}"))),
        }
    }

    /// A field; null is as if it were not there.
    pub(in crate::serve) fn take(&mut self, name: &str) -> Option<Value> {
        self.object.shift_remove(name).filter(|value| !value.is_null())
    }

    /// A refusal that names a field.
    pub(in crate::serve) fn refuse(&self, name: &str, why: impl std::fmt::Display) -> ApiError {
        let path = format!("{}{name}", self.prefix);
        ApiError::invalid(format!("`{path}` {why}")).at(path)
    }

    fn wrong(&self, name: &str, value: &Value, expected: &str) -> ApiError {
        self.refuse(name, format_args!("is {}, it must be {expected}", kind(value)))
    }

    pub(in crate::serve) fn string(&mut self, name: &str) -> Result<Option<String>, ApiError> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(self.wrong(name, &other, "a string")),
        }
    }

    pub(in crate::serve) fn boolean(&mut self, name: &str) -> Result<Option<bool>, ApiError> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Bool(yes)) => Ok(Some(yes)),
            Some(other) => Err(self.wrong(name, &other, "true or false")),
        }
    }

    pub(in crate::serve) fn object(&mut self, name: &str) -> Result<Option<Fields>, ApiError> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Object(object)) => {
                Ok(Some(Fields { object, prefix: format!("{}{name}.", self.prefix) }))
            }
            Some(other) => Err(self.wrong(name, &other, "an object")),
        }
    }

    pub(in crate::serve) fn list(&mut self, name: &str) -> Result<Option<Vec<Value>>, ApiError> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Array(list)) => Ok(Some(list)),
            Some(other) => Err(self.wrong(name, &other, "a list")),
        }
    }

    /// A whole number of a range.
    pub(in crate::serve) fn integer(
        &mut self,
        name: &str,
        range: RangeInclusive<u64>,
    ) -> Result<Option<usize>, ApiError> {
        let Some(value) = self.take(name) else { return Ok(None) };
        let (least, most) = (*range.start(), *range.end());
        let expected = match most {
            u64::MAX => format!("a whole number from {least}"),
            _ => format!("a whole number from {least} to {most}"),
        };
        if !value.is_number() {
            return Err(self.wrong(name, &value, &expected));
        }
        // Some clients write whole numbers as 16.0.
        let whole = |x: f64| (x.fract() == 0.0 && (0.0..1e15).contains(&x)).then_some(x as u64);
        let number = value.as_u64().or_else(|| value.as_f64().and_then(whole));
        match number.filter(|number| range.contains(number)) {
            Some(number) => Ok(usize::try_from(number).ok()),
            None => Err(self.refuse(name, format_args!("is {value}, it must be {expected}"))),
        }
    }

    /// A number of a range.
    pub(in crate::serve) fn number(
        &mut self,
        name: &str,
        range: RangeInclusive<f32>,
    ) -> Result<Option<f32>, ApiError> {
        let Some(value) = self.take(name) else { return Ok(None) };
        let (least, most) = (range.start(), range.end());
        let expected = match *most {
            f32::MAX => format!("a number from {least}"),
            _ => format!("a number from {least} to {most}"),
        };
        let Some(number) = value.as_f64() else {
            return Err(self.wrong(name, &value, &expected));
        };
        if range.contains(&(number as f32)) {
            return Ok(Some(number as f32));
        }
        Err(self.refuse(name, format_args!("is {value}, it must be {expected}")))
    }

    /// What nobody read, by name.
    pub(in crate::serve) fn unread(self) -> Vec<String> {
        let Fields { object, prefix } = self;
        let given = object.into_iter().filter(|(_, value)| !value.is_null());
        given.map(|(name, _)| format!("{prefix}{name}")).collect()
    }
}

/// What a value is, in the words of JSON.
pub(in crate::serve) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(text: &str) -> Fields {
        Fields::of(text.as_bytes()).expect("an object")
    }

    #[test]
    fn a_wrong_type_names_field_and_types() {
        let error = fields(r#"{"model": 3}"#).string("model").expect_err("no string");
        assert_eq!(error.message(), "`model` is a number, it must be a string");
        let mut outer = fields(r#"{"stream_options": {"include_usage": 1}}"#);
        let mut inner = outer.object("stream_options").expect("an object").expect("is there");
        let error = inner.boolean("include_usage").expect_err("no boolean");
        assert_eq!(
            error.message(),
            "`stream_options.include_usage` is a number, it must be true or false"
        );
    }

    #[test]
    fn numbers_outside_of_their_range_are_refused() {
        let refusal = |text: &str| {
            fields(text).integer("n", 1..=8).expect_err("is refused").message().to_owned()
        };
        assert_eq!(refusal(r#"{"n": 9}"#), "`n` is 9, it must be a whole number from 1 to 8");
        assert_eq!(refusal(r#"{"n": -1}"#), "`n` is -1, it must be a whole number from 1 to 8");
        assert_eq!(refusal(r#"{"n": 1.5}"#), "`n` is 1.5, it must be a whole number from 1 to 8");
        let error = fields(r#"{"t": 1e300}"#).number("t", 0.0..=2.0).expect_err("is refused");
        assert!(error.message().contains("from 0 to 2"), "{}", error.message());
        assert_eq!(fields(r#"{"n": 3.0}"#).integer("n", 1..=8).expect("whole"), Some(3));
    }

    #[test]
    fn null_is_as_if_it_were_not_there() {
        let mut fields = fields(r#"{"a": null, "b": null, "c": 1}"#);
        assert_eq!(fields.string("a").expect("nothing"), None);
        assert_eq!(fields.unread(), ["c"]);
    }

    #[test]
    fn bodies_that_are_no_objects_are_refused() {
        let error = Fields::of(b"[1]").expect_err("a list");
        assert_eq!(error.message(), "the body is a list, it must be an object");
        assert!(Fields::of(b"{\"a\": ").is_err());
        assert!(Fields::of(&[b'['; 100_000]).is_err());
    }
}
