//! The arguments of a call, as the manifest writes them, read by position or by keyword.

use std::collections::BTreeMap;

use anyhow::{Context, Result, anyhow, bail};
use genesis::{DType, Device, Tensor};
use serde_json::Value as Json;

/// An argument.
#[derive(Clone, Debug)]
pub enum Value {
    /// None.
    Null,
    /// A bool.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A number with a fraction, or NaN or an infinity.
    Float(f64),
    /// A name.
    Text(String),
    /// A tensor.
    Tensor(Tensor),
    /// A dtype.
    DType(DType),
    /// Start, end and step of a range.
    Slice([Option<i64>; 3]),
    /// Several of them.
    List(Vec<Value>),
    /// Something without a meaning here, such as a memory format.
    Skip,
}

impl Value {
    /// Reads an argument; `tensor` gives the tensor of a name.
    ///
    /// # Errors
    /// If it is none of the forms that the manifest has, or the tensor is not there.
    pub fn parse(json: &Json, tensor: &dyn Fn(&str) -> Result<Tensor>) -> Result<Value> {
        Ok(match json {
            Json::Null => Value::Null,
            Json::Bool(flag) => Value::Bool(*flag),
            Json::Number(number) => match number.as_i64() {
                Some(whole) => Value::Int(whole),
                None => Value::Float(number.as_f64().context("a number that f64 holds")?),
            },
            Json::String(text) => Value::Text(text.clone()),
            Json::Array(items) => {
                let items = items.iter().map(|item| Value::parse(item, tensor));
                Value::List(items.collect::<Result<_>>()?)
            }
            Json::Object(fields) => {
                let (kind, inner) = fields.iter().next().context("an empty object")?;
                Value::tagged(kind, inner, tensor)?
            }
        })
    }

    fn tagged(kind: &str, inner: &Json, tensor: &dyn Fn(&str) -> Result<Tensor>) -> Result<Value> {
        let text = || inner.as_str().with_context(|| format!("{kind}: {inner} is no text"));
        Ok(match kind {
            "tensor" => Value::Tensor(tensor(text()?)?),
            "float" => Value::Float(match text()? {
                "nan" => f64::NAN,
                "inf" => f64::INFINITY,
                "-inf" => f64::NEG_INFINITY,
                other => other.parse()?,
            }),
            "dtype" => Value::DType(dtype_of(text()?)?),
            "slice" => {
                let ends = inner.as_array().context("a slice has three parts")?;
                let end = |index: usize| ends.get(index).and_then(Json::as_i64);
                Value::Slice([end(0), end(1), end(2)])
            }
            "ellipsis" => Value::Text("...".to_owned()),
            _ => Value::Skip,
        })
    }

    /// Every tensor in it, in order.
    pub fn tensors<'v>(&'v self, into: &mut Vec<&'v Tensor>) {
        match self {
            Value::Tensor(tensor) => into.push(tensor),
            Value::List(items) => items.iter().for_each(|item| item.tensors(into)),
            _ => {}
        }
    }

    /// As a number, if it is one.
    pub fn number(&self) -> Option<f64> {
        match self {
            Value::Bool(flag) => Some(f64::from(u8::from(*flag))),
            Value::Int(whole) => Some(*whole as f64),
            Value::Float(number) => Some(*number),
            _ => None,
        }
    }

    fn int(&self) -> Option<i64> {
        match self {
            Value::Int(whole) => Some(*whole),
            Value::Bool(flag) => Some(i64::from(*flag)),
            Value::Tensor(t) if t.numel() == 1 && !t.dtype().is_float() => {
                t.item().ok().map(|v| v as i64)
            }
            _ => None,
        }
    }

    /// As whole numbers; one stands for a list of one.
    pub fn ints(&self) -> Option<Vec<i64>> {
        match self {
            Value::List(items) => items.iter().map(Value::int).collect(),
            other => other.int().map(|whole| vec![whole]),
        }
    }
}

/// The dtype of PyTorch's name or of a short one.
///
/// # Errors
/// If there is none.
pub fn dtype_of(name: &str) -> Result<DType> {
    Ok(match name.trim_start_matches("torch.") {
        "float32" | "float" => DType::F32,
        "float64" | "double" => DType::F64,
        "float16" | "half" => DType::F16,
        "bfloat16" => DType::BF16,
        "int64" | "long" => DType::I64,
        "int32" | "int" => DType::I32,
        "int16" | "short" => DType::I16,
        "int8" => DType::I8,
        "uint8" => DType::U8,
        "uint16" => DType::U16,
        "uint32" => DType::U32,
        "uint64" => DType::U64,
        "bool" => DType::Bool,
        other => match DType::from_name(other) {
            Some(dtype) => dtype,
            None => bail!("unsupported: dtype {other}"),
        },
    })
}

/// A call: the operand, further arguments and keywords.
pub struct Call {
    /// The op by PyTorch's name.
    pub op: String,
    /// The overload.
    pub variant: String,
    /// The operand, then the arguments.
    pub args: Vec<Value>,
    /// The keywords.
    pub kwargs: BTreeMap<String, Value>,
    /// Where it runs.
    pub device: Device,
}

impl Call {
    /// The argument at a place (0 is the operand) or of a keyword; null where it is not given.
    pub fn get(&self, at: usize, name: &str) -> &Value {
        self.args.get(at).or_else(|| self.kwargs.get(name)).unwrap_or(&Value::Null)
    }

    /// Whether it is given and not null.
    pub fn has(&self, at: usize, name: &str) -> bool {
        !matches!(self.get(at, name), Value::Null | Value::Skip)
    }

    fn wrong(&self, name: &str, wants: &str, got: &Value) -> anyhow::Error {
        anyhow!("{}: `{name}` must be {wants}, got {got:?}", self.op)
    }

    /// The operand.
    ///
    /// # Errors
    /// If it is not a tensor.
    pub fn x(&self) -> Result<&Tensor> {
        self.tensor(0, "input")
    }

    /// A tensor.
    ///
    /// # Errors
    /// If it is not one.
    pub fn tensor(&self, at: usize, name: &str) -> Result<&Tensor> {
        match self.get(at, name) {
            Value::Tensor(tensor) => Ok(tensor),
            other => Err(self.wrong(name, "a tensor", other)),
        }
    }

    /// A tensor, if it is given.
    ///
    /// # Errors
    /// If it is something else.
    pub fn tensor_or_none(&self, at: usize, name: &str) -> Result<Option<&Tensor>> {
        if self.has(at, name) { self.tensor(at, name).map(Some) } else { Ok(None) }
    }

    /// A list of tensors.
    ///
    /// # Errors
    /// If it is not one.
    pub fn tensors(&self, at: usize, name: &str) -> Result<Vec<&Tensor>> {
        let Value::List(items) = self.get(at, name) else {
            return Err(self.wrong(name, "a list of tensors", self.get(at, name)));
        };
        let tensors = items.iter().map(|item| match item {
            Value::Tensor(tensor) => Ok(tensor),
            other => Err(self.wrong(name, "a list of tensors", other)),
        });
        tensors.collect()
    }

    /// A number.
    ///
    /// # Errors
    /// If it is not one and there is no default.
    pub fn float(&self, at: usize, name: &str, default: Option<f64>) -> Result<f64> {
        match (self.get(at, name), default) {
            (Value::Null | Value::Skip, Some(default)) => Ok(default),
            (Value::Tensor(t), _) if t.numel() == 1 => Ok(t.item()?),
            (value, _) => value.number().ok_or_else(|| self.wrong(name, "a number", value)),
        }
    }

    /// A whole number.
    ///
    /// # Errors
    /// If it is not one and there is no default.
    pub fn int(&self, at: usize, name: &str, default: Option<i64>) -> Result<i64> {
        match (self.get(at, name), default) {
            (Value::Null | Value::Skip, Some(default)) => Ok(default),
            (value, _) => value.int().ok_or_else(|| self.wrong(name, "a whole number", value)),
        }
    }

    /// A whole number that is not negative.
    ///
    /// # Errors
    /// If it is not one and there is no default.
    pub fn count(&self, at: usize, name: &str, default: Option<i64>) -> Result<usize> {
        let whole = self.int(at, name, default)?;
        usize::try_from(whole).map_err(|_| anyhow!("{}: `{name}` is negative, {whole}", self.op))
    }

    /// Whole numbers.
    ///
    /// # Errors
    /// If they are not.
    pub fn ints(&self, at: usize, name: &str) -> Result<Vec<i64>> {
        let value = self.get(at, name);
        value.ints().ok_or_else(|| self.wrong(name, "whole numbers", value))
    }

    /// Whole numbers from a place on: `permute(x, 1, 0)` and `permute(x, [1, 0])` are one.
    ///
    /// # Errors
    /// If they are not.
    pub fn ints_from(&self, at: usize, name: &str) -> Result<Vec<i64>> {
        if self.args.len() > at && matches!(self.args[at], Value::Int(_)) {
            return Value::List(self.args[at..].to_vec())
                .ints()
                .ok_or_else(|| self.wrong(name, "whole numbers", &self.args[at]));
        }
        self.ints(at, name)
    }

    /// Whole numbers, if they are given.
    ///
    /// # Errors
    /// If they are something else.
    pub fn ints_or_none(&self, at: usize, name: &str) -> Result<Option<Vec<i64>>> {
        if self.has(at, name) { self.ints(at, name).map(Some) } else { Ok(None) }
    }

    /// An extent for each axis.
    ///
    /// # Errors
    /// If they are no whole numbers or one is negative.
    pub fn shape(&self, at: usize, name: &str) -> Result<Vec<usize>> {
        let dims = self.ints_from(at, name)?;
        let negative = || anyhow!("{}: `{name}` has a negative extent, {dims:?}", self.op);
        dims.iter().map(|&d| usize::try_from(d).map_err(|_| negative())).collect()
    }

    /// A bool.
    ///
    /// # Errors
    /// If it is something else.
    pub fn flag(&self, at: usize, name: &str, default: bool) -> Result<bool> {
        match self.get(at, name) {
            Value::Null | Value::Skip => Ok(default),
            Value::Bool(flag) => Ok(*flag),
            Value::Int(whole) => Ok(*whole != 0),
            other => Err(self.wrong(name, "a bool", other)),
        }
    }

    /// A name.
    ///
    /// # Errors
    /// If it is something else.
    pub fn text(&self, at: usize, name: &str, default: &'static str) -> Result<&str> {
        match self.get(at, name) {
            Value::Null | Value::Skip => Ok(default),
            Value::Text(text) => Ok(text),
            other => Err(self.wrong(name, "a name", other)),
        }
    }

    /// A dtype, if it is given.
    ///
    /// # Errors
    /// If it is something else.
    pub fn dtype(&self, at: usize, name: &str) -> Result<Option<DType>> {
        match self.get(at, name) {
            Value::Null | Value::Skip => Ok(None),
            Value::DType(dtype) => Ok(Some(*dtype)),
            other => Err(self.wrong(name, "a dtype", other)),
        }
    }
}
