//! Manifests gone wrong: the same case with a part of it replaced by what nobody meant.
//!
//! A mutation picks a few places of a case's call or of the descriptions of its tensors and puts there
//! another number, name, dtype or form, or drops it. The result has no right answer: it must be refused,
//! or give anything at all, without a panic.

use serde_json::{Value as Json, json};

/// Numbers that are the same in every run.
pub struct Draw(u64);

impl Draw {
    /// A sequence of its own for each seed.
    pub fn new(seed: u64) -> Draw {
        Draw(seed)
    }

    /// A number below `n`, which is not 0.
    pub fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % n
    }
}

/// The parts of a case that mutations touch.
const PARTS: [&str; 6] = ["input", "args", "kwargs", "tensors", "views", "variant"];

/// A case with one to three places of it replaced.
pub fn mutate(case: &Json, draw: &mut Draw) -> Json {
    let mut mutant = case.clone();
    for _ in 0..1 + draw.below(3) {
        let part = PARTS[draw.below(PARTS.len())];
        if let Some(json) = mutant.get_mut(part) {
            let places = count(json);
            let mut at = draw.below(places);
            place(json, &mut at, draw);
        }
    }
    mutant
}

/// The number of values in it, itself included.
fn count(json: &Json) -> usize {
    1 + match json {
        Json::Array(items) => items.iter().map(count).sum(),
        Json::Object(fields) => fields.values().map(count).sum(),
        _ => 0,
    }
}

/// Replaces the value that is `at` places away.
fn place(json: &mut Json, at: &mut usize, draw: &mut Draw) -> bool {
    if *at == 0 {
        replace(json, draw);
        return true;
    }
    *at -= 1;
    match json {
        Json::Array(items) => items.iter_mut().any(|item| place(item, at, draw)),
        Json::Object(fields) => fields.values_mut().any(|item| place(item, at, draw)),
        _ => false,
    }
}

fn replace(json: &mut Json, draw: &mut Draw) {
    if let Json::Array(items) = json
        && !items.is_empty()
        && draw.below(2) == 0
    {
        let at = draw.below(items.len());
        match draw.below(3) {
            0 => drop(items.remove(at)),
            1 => items.push(items[at].clone()),
            _ => items.reverse(),
        }
        return;
    }
    if let Json::Object(fields) = json
        && !fields.is_empty()
        && draw.below(2) == 0
    {
        let name = fields.keys().nth(draw.below(fields.len())).cloned().unwrap_or_default();
        fields.remove(&name);
        return;
    }
    if json.is_string() && draw.below(2) == 0 {
        let names =
            ["f16", "bf16", "f64", "i64", "i8", "u8", "bool", "u64", "f8e4m3", "in0", "in1"];
        *json = json!(names[draw.below(names.len())]);
        return;
    }
    let others = [
        json!(0),
        json!(1),
        json!(-1),
        json!(2),
        json!(3),
        json!(-2),
        json!(7),
        json!(63),
        json!(64),
        json!(65),
        json!(1u64 << 45),
        json!(1u64 << 62),
        json!(i64::MAX),
        json!(i64::MIN),
        json!(u64::MAX),
        json!(0.5),
        json!(-1e300),
        json!({"float": "nan"}),
        json!({"float": "inf"}),
        json!({"float": "a lot"}),
        json!({"tensor": "in0"}),
        json!({"tensor": "in1"}),
        json!({"tensor": "nowhere"}),
        json!({"dtype": "float64"}),
        json!({"dtype": "bool"}),
        json!({"dtype": "complex64"}),
        json!({"slice": [0, 2, -1]}),
        json!({"slice": [i64::MIN, i64::MAX, i64::MAX]}),
        json!({"ellipsis": true}),
        json!({}),
        json!([]),
        json!([[], []]),
        json!([0, 0]),
        json!([1, i64::MAX, 1u64 << 45]),
        json!(null),
        json!(true),
        json!("mean"),
        json!(""),
    ];
    *json = others[draw.below(others.len())].clone();
}
