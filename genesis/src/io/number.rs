//! Numbers in JSON, infinite ones too.

use serde_json::Value;

/// JSON has no infinity, which the best value of a schedule may be.
pub(super) fn to_json(number: f64) -> Value {
    if number.is_finite() { number.into() } else { number.to_string().into() }
}

pub(super) fn from_json(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.parse().ok(),
        _ => None,
    }
}
