//! Reads tile IR from the text that [`super::print()`] writes; the grammar is there.
//!
//! Any text gives a function or an error with a line and a column, never a panic. Reading checks
//! names and counts only: whether types fit, and whether a value is in scope where it is used, is the
//! verifier's work.

mod tables;

use std::collections::BTreeMap;

use super::func::{Func, Op, ParamAttrs, Region, Value};
pub use super::lex::ParseError;
use super::lex::{Position, Token, TokenKind, tokens};
use super::number::Scalar;
use super::ops::{
    AtomicOp, BinaryOp, Cache, Combine, DotPrecision, LoopOptions, OpKind, Predicate, UnaryOp,
};
use super::ordering::{AtomicOrdering, MemoryOrder, MemoryScope};
use super::types::{DType, Elem, MAX_RANK, Shape, TileType, Type};

/// Deeper regions than any kernel has would only overflow the stack.
const MAX_DEPTH: usize = 64;

/// The largest extent a text may name; the verifier limits volumes.
const MAX_EXTENT: usize = 1 << 20;

type Result<T> = std::result::Result<T, ParseError>;

/// A function from its text.
///
/// # Errors
/// If the text is not the grammar's, at the first place where it is not.
pub fn parse(text: &str) -> Result<Func> {
    let tokens = tokens(text)?;
    let func = Func::new("");
    let (names, cache) = (BTreeMap::new(), Cache::Usual);
    let mut parser = Parser { tokens, at: 0, func, names, depth: 0, cache };
    parser.kernel()?;
    Ok(parser.func)
}

/// The scalar that a literal means; none where it does not fit the dtype.
pub(super) fn literal_value(text: &str, dtype: DType) -> Option<Scalar> {
    match dtype {
        DType::Bool => match text {
            "true" => Some(Scalar::int(dtype, 1)),
            "false" => Some(Scalar::int(dtype, 0)),
            _ => None,
        },
        DType::F8E4M3 | DType::F8E5M2 | DType::F16 | DType::BF16 | DType::F64 => {
            Some(Scalar::float(dtype, float(text)?))
        }
        DType::F32 => {
            float(text)?;
            let value: f32 = text.parse().ok()?;
            Some(Scalar { dtype, bits: u64::from(value.to_bits()) })
        }
        DType::U64 => Some(Scalar { dtype, bits: text.parse().ok()? }),
        _ => {
            let value: i64 = text.parse().ok()?;
            let scalar = Scalar::int(dtype, value);
            (scalar.to_i64() == value).then_some(scalar)
        }
    }
}

/// A float as the printer writes it; Rust's own parser also takes words such as `infinity`.
fn float(text: &str) -> Option<f64> {
    let digits = text.trim_start_matches('-');
    let known = matches!(digits, "inf" | "nan") || digits.starts_with(|c: char| c.is_ascii_digit());
    if known { text.parse().ok() } else { None }
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
    func: Func,
    names: BTreeMap<String, Value>,
    depth: usize,
    /// What the op at hand says to caches.
    cache: Cache,
}

/// An op's text before its types are known.
struct Draft {
    kind: OpKind,
    operands: Vec<Value>,
    regions: Vec<Region>,
}

impl Parser {
    fn peek(&self) -> &TokenKind {
        &self.tokens[self.at].kind
    }

    fn position(&self) -> Position {
        self.tokens[self.at].position
    }

    /// Takes a token; the last one, which ends the text, stays.
    fn next(&mut self) -> Token {
        let token = self.tokens[self.at].clone();
        if self.at + 1 < self.tokens.len() {
            self.at += 1;
        }
        token
    }

    fn fail<T>(&self, position: Position, message: impl Into<String>) -> Result<T> {
        Err(position.error(message))
    }

    fn expected<T>(&self, what: &str) -> Result<T> {
        self.fail(self.position(), format!("expected {what}, found {}", self.peek()))
    }

    fn take(&mut self, punct: char) -> bool {
        let found = *self.peek() == TokenKind::Punct(punct);
        if found {
            self.next();
        }
        found
    }

    fn expect(&mut self, punct: char) -> Result<()> {
        if self.take(punct) { Ok(()) } else { self.expected(&format!("`{punct}`")) }
    }

    fn take_word(&mut self, word: &str) -> bool {
        let found = matches!(self.peek(), TokenKind::Word(w) if w == word);
        if found {
            self.next();
        }
        found
    }

    fn expect_word(&mut self, word: &str) -> Result<()> {
        if self.take_word(word) { Ok(()) } else { self.expected(&format!("`{word}`")) }
    }

    fn word(&mut self, what: &str) -> Result<String> {
        match self.peek().clone() {
            TokenKind::Word(word) => {
                self.next();
                Ok(word)
            }
            _ => self.expected(what),
        }
    }

    fn number<T: std::str::FromStr>(&mut self, what: &str) -> Result<T> {
        if let TokenKind::Number(text) = self.peek()
            && let Ok(number) = text.parse()
        {
            self.next();
            return Ok(number);
        }
        self.expected(what)
    }

    fn string(&mut self) -> Result<String> {
        match self.peek().clone() {
            TokenKind::Text(text) => {
                self.next();
                Ok(text)
            }
            _ => self.expected("a string"),
        }
    }

    /// A word of a table, such as an op's name.
    fn named<T>(&mut self, what: &str, from_name: impl Fn(&str) -> Option<T>) -> Result<T> {
        if let TokenKind::Word(word) = self.peek()
            && let Some(found) = from_name(word)
        {
            self.next();
            return Ok(found);
        }
        self.expected(what)
    }

    fn kernel(&mut self) -> Result<()> {
        self.expect_word("kernel")?;
        self.func.name = self.word("the kernel's name")?;
        self.expect('(')?;
        while !self.take(')') {
            self.param()?;
            if *self.peek() != TokenKind::Punct(')') {
                self.expect(',')?;
            }
        }
        self.func.contract = self.take_word("contract");
        self.region(self.func.body)?;
        match self.peek() {
            TokenKind::End => Ok(()),
            _ => self.expected("the end of the text"),
        }
    }

    fn param(&mut self) -> Result<()> {
        let position = self.position();
        let name = self.value_name()?;
        self.expect(':')?;
        let ty = self.ty()?;
        let attrs = self.attrs()?;
        let value = self.func.add_param(name.clone(), ty, attrs);
        self.define(name, value, position)
    }

    fn attrs(&mut self) -> Result<ParamAttrs> {
        let mut attrs = ParamAttrs::default();
        while let TokenKind::Word(word) = self.peek().clone() {
            let position = self.position();
            self.next();
            match word.as_str() {
                "readonly" => attrs.readonly = true,
                "exclusive" => attrs.exclusive = true,
                "unit_stride" => attrs.unit_stride = true,
                "zero_stride" => attrs.zero_stride = true,
                "zero_row_stride" => attrs.zero_row_stride = true,
                "narrow" => attrs.narrow = true,
                "natural" => attrs.natural = true,
                "constant" => attrs.constant = true,
                "unit_axis" => attrs.unit_axis = Some(self.number("an axis")?),
                "multiple_of" => attrs.multiple_of = self.number("a number")?,
                "stride_multiple_of" => attrs.stride_multiple_of = self.number("a number")?,
                _ => return self.fail(position, format!("unknown attribute `{word}`")),
            }
        }
        Ok(attrs)
    }

    fn value_name(&mut self) -> Result<String> {
        match self.peek().clone() {
            TokenKind::Value(name) => {
                self.next();
                Ok(name)
            }
            _ => self.expected("a value"),
        }
    }

    fn define(&mut self, name: String, value: Value, position: Position) -> Result<()> {
        if self.names.contains_key(&name) {
            return self.fail(position, format!("`%{name}` is defined twice"));
        }
        self.names.insert(name, value);
        Ok(())
    }

    fn value(&mut self) -> Result<Value> {
        let position = self.position();
        let name = self.value_name()?;
        match self.names.get(&name) {
            Some(&value) => Ok(value),
            None => self.fail(position, format!("`%{name}` is not defined before here")),
        }
    }

    /// Operands start on the line of their op: the next line's first value is a result.
    fn values(&mut self) -> Result<Vec<Value>> {
        let mut values = Vec::new();
        let previous = self.tokens[self.at.saturating_sub(1)].position;
        if self.position().line != previous.line {
            return Ok(values);
        }
        while matches!(self.peek(), TokenKind::Value(_)) {
            values.push(self.value()?);
            if !self.take(',') {
                break;
            }
        }
        Ok(values)
    }

    fn ty(&mut self) -> Result<Type> {
        if self.take_word("view") {
            self.expect('<')?;
            let dtype = self.dtype()?;
            self.expect(',')?;
            let rank = self.number("a rank")?;
            self.expect('>')?;
            return Ok(Type::View { dtype, rank });
        }
        let is_ptr = self.take('*');
        let dtype = self.dtype()?;
        let shape = self.shape()?;
        let elem = if is_ptr { Elem::Ptr(dtype) } else { Elem::Data(dtype) };
        Ok(Type::Tile(TileType { elem, shape }))
    }

    fn dtype(&mut self) -> Result<DType> {
        self.named("a type", DType::from_name)
    }

    fn shape(&mut self) -> Result<Shape> {
        if !self.take('[') {
            return Ok(Shape::SCALAR);
        }
        let position = self.position();
        let TokenKind::Number(text) = self.peek().clone() else {
            return self.expected("extents such as `128x64`");
        };
        self.next();
        self.expect(']')?;
        let extents: Option<Vec<usize>> = text
            .split('x')
            .map(|extent| extent.parse().ok().filter(|&n| n <= MAX_EXTENT))
            .collect();
        match extents {
            Some(extents) if extents.len() <= MAX_RANK => Ok(Shape::new(&extents)),
            _ => self.fail(position, format!("`{text}` is not a shape")),
        }
    }

    fn region(&mut self, region: Region) -> Result<()> {
        if self.depth == MAX_DEPTH {
            return self.fail(self.position(), "regions are nested too deeply");
        }
        self.depth += 1;
        self.expect('{')?;
        if region == self.func.body {
            self.tables()?;
        }
        while !self.take('}') {
            let op = self.op()?;
            self.func.region_mut(region).ops.push(op);
        }
        self.depth -= 1;
        Ok(())
    }

    fn op(&mut self) -> Result<Op> {
        let names = self.result_names()?;
        let position = self.position();
        let word = self.word("an op")?;
        if word == "const" {
            return self.constant(names);
        }
        let draft = match word.as_str() {
            "for" => self.for_loop()?,
            "while" => self.while_loop()?,
            "if" => self.branch()?,
            "reduce" | "scan" => self.reduction(&word)?,
            _ => self.plain(&word, position)?,
        };
        self.finish(names, draft, position)
    }

    fn result_names(&mut self) -> Result<Vec<(String, Position)>> {
        let mut names = Vec::new();
        while matches!(self.peek(), TokenKind::Value(_)) {
            let position = self.position();
            names.push((self.value_name()?, position));
            if !self.take(',') {
                break;
            }
        }
        if !names.is_empty() {
            self.expect('=')?;
        }
        Ok(names)
    }

    fn result_types(&mut self) -> Result<Vec<Type>> {
        let mut types = Vec::new();
        if self.take(':') {
            types.push(self.ty()?);
            while self.take(',') {
                types.push(self.ty()?);
            }
        }
        Ok(types)
    }

    fn finish(
        &mut self,
        names: Vec<(String, Position)>,
        draft: Draft,
        position: Position,
    ) -> Result<Op> {
        let types = self.result_types()?;
        if types.len() != names.len() {
            let message = format!("{} results have {} types", names.len(), types.len());
            return self.fail(position, message);
        }
        let op = self.func.add_op(draft.kind, &draft.operands, &types, &draft.regions, None);
        self.func.op_mut(op).cache = std::mem::take(&mut self.cache);
        let results = self.func.op(op).results.clone();
        for ((name, position), value) in names.into_iter().zip(results) {
            self.define(name, value, position)?;
        }
        Ok(op)
    }

    /// The type stands after the literal that needs it.
    fn constant(&mut self, names: Vec<(String, Position)>) -> Result<Op> {
        let position = self.position();
        let token = self.next();
        let is_bits = token.kind == TokenKind::Word("bits".to_owned());
        let text = match if is_bits { self.next().kind } else { token.kind } {
            TokenKind::Number(text) | TokenKind::Word(text) => text,
            _ => return self.fail(position, "expected a literal"),
        };
        let colon = self.at;
        let Some(Type::Tile(ty)) = self.result_types()?.first().copied() else {
            return self.fail(position, "a constant needs a type");
        };
        self.at = colon;
        let dtype = ty.dtype();
        let scalar = if is_bits {
            let digits = text.strip_prefix("0x").unwrap_or("");
            u64::from_str_radix(digits, 16).ok().map(|bits| Scalar { dtype, bits })
        } else {
            literal_value(&text, dtype)
        };
        match scalar {
            Some(scalar) => {
                let kind = OpKind::Const(scalar);
                self.finish(names, Draft { kind, operands: vec![], regions: vec![] }, position)
            }
            None => self.fail(position, format!("`{text}` is not a value of {dtype}")),
        }
    }

    fn carry(&mut self, regions: &[Region]) -> Result<Vec<Value>> {
        let mut inits = Vec::new();
        if !self.take_word("carry") {
            return Ok(inits);
        }
        self.expect('(')?;
        while !self.take(')') {
            let position = self.position();
            let name = self.value_name()?;
            self.expect('=')?;
            let init = self.value()?;
            let arg = self.func.add_region_arg(regions[0], self.func.ty(init));
            self.define(name, arg, position)?;
            inits.push(init);
            if *self.peek() != TokenKind::Punct(')') {
                self.expect(',')?;
            }
        }
        Ok(inits)
    }

    fn for_loop(&mut self) -> Result<Draft> {
        let region = self.func.add_region();
        let position = self.position();
        let name = self.value_name()?;
        self.expect('=')?;
        let mut operands = vec![self.value()?];
        for word in ["to", "step"] {
            self.expect_word(word)?;
            operands.push(self.value()?);
        }
        let index = self.func.add_region_arg(region, Type::scalar(DType::I64));
        self.define(name, index, position)?;
        operands.extend(self.carry(&[region])?);
        let mut options = LoopOptions::default();
        if self.take_word("stages") {
            options.stages = self.number("a number of stages")?;
        }
        if self.take_word("unroll") {
            options.unroll = self.number("a number of copies")?;
        }
        self.region(region)?;
        Ok(Draft { kind: OpKind::For(options), operands, regions: vec![region] })
    }

    fn while_loop(&mut self) -> Result<Draft> {
        let (cond, body) = (self.func.add_region(), self.func.add_region());
        let operands = self.carry(&[cond])?;
        self.region(cond)?;
        self.expect_word("do")?;
        self.expect('(')?;
        for (i, &init) in operands.iter().enumerate() {
            if i > 0 {
                self.expect(',')?;
            }
            let position = self.position();
            let name = self.value_name()?;
            let arg = self.func.add_region_arg(body, self.func.ty(init));
            self.define(name, arg, position)?;
        }
        self.expect(')')?;
        self.region(body)?;
        Ok(Draft { kind: OpKind::While, operands, regions: vec![cond, body] })
    }

    fn branch(&mut self) -> Result<Draft> {
        let (then, otherwise) = (self.func.add_region(), self.func.add_region());
        let operands = vec![self.value()?];
        self.region(then)?;
        self.expect_word("else")?;
        self.region(otherwise)?;
        Ok(Draft { kind: OpKind::If, operands, regions: vec![then, otherwise] })
    }

    fn reduction(&mut self, word: &str) -> Result<Draft> {
        let by_op = matches!(self.peek(), TokenKind::Word(_));
        let combine = if by_op {
            Combine::Op(self.named("a binary op", BinaryOp::from_name)?)
        } else {
            Combine::Region
        };
        let axis = self.number("an axis")?;
        let kind = if word == "reduce" {
            OpKind::Reduce { axis, combine }
        } else {
            OpKind::Scan { axis, reverse: self.take_word("reverse"), combine }
        };
        let operands = self.values()?;
        let mut regions = Vec::new();
        if self.take_word("by") {
            let region = self.func.add_region();
            self.typed_args(region)?;
            self.region(region)?;
            regions.push(region);
        }
        Ok(Draft { kind, operands, regions })
    }

    fn typed_args(&mut self, region: Region) -> Result<()> {
        self.expect('(')?;
        while !self.take(')') {
            let position = self.position();
            let name = self.value_name()?;
            self.expect(':')?;
            let ty = self.ty()?;
            let arg = self.func.add_region_arg(region, ty);
            self.define(name, arg, position)?;
            if *self.peek() != TokenKind::Punct(')') {
                self.expect(',')?;
            }
        }
        Ok(())
    }

    fn plain(&mut self, word: &str, position: Position) -> Result<Draft> {
        let kind = match bare_kind(word) {
            Some(kind) => kind,
            None => match self.kind_with_parts(word)? {
                Some(kind) => kind,
                None => return self.fail(position, format!("unknown op `{word}`")),
            },
        };
        if kind.takes_cache() {
            let is_there = |cache: &Cache| cache.name().is_some_and(|name| self.take_word(name));
            self.cache = [Cache::Once, Cache::Kept].into_iter().find(is_there).unwrap_or_default();
        }
        Ok(Draft { kind, operands: self.values()?, regions: vec![] })
    }

    fn kind_with_parts(&mut self, word: &str) -> Result<Option<OpKind>> {
        Ok(Some(match word {
            "program_id" => OpKind::ProgramId(self.number("an axis")?),
            "num_programs" => OpKind::NumPrograms(self.number("an axis")?),
            "cmp" => OpKind::Compare(self.named("a comparison", Predicate::from_name)?),
            "expand_dims" => OpKind::ExpandDims { axis: self.number("an axis")? },
            "transpose" => OpKind::Transpose { perm: self.numbers("an axis")? },
            "atomic_rmw" => {
                let op = self.named("an atomic op", AtomicOp::from_name)?;
                OpKind::AtomicRmw(op, self.ordering())
            }
            "atomic_cas" => OpKind::AtomicCas(self.ordering()),
            "view_dim" => OpKind::ViewDim(self.number("an axis")?),
            "view_stride" => OpKind::ViewStride(self.number("an axis")?),
            "gather" => OpKind::Gather { axis: self.number("an axis")? },
            "scatter" => OpKind::Scatter { axis: self.number("an axis")? },
            "dot" => OpKind::Dot { precision: self.named("a precision", DotPrecision::from_name)? },
            "asm" => self.asm()?,
            "assert" => OpKind::Assert { message: self.string()? },
            "print" => OpKind::Print { format: self.string()? },
            "multiple_of" => OpKind::MultipleOf(self.number("a number")?),
            "tma_load" => OpKind::TmaLoad(self.number("an entry")?),
            "tma_store" => OpKind::TmaStore(self.number("an entry")?),
            _ => return Ok(None),
        }))
    }

    /// The words of an atomic's order and scope, where they stand.
    fn ordering(&mut self) -> AtomicOrdering {
        let order = MemoryOrder::WRITTEN
            .into_iter()
            .find(|order| order.name().is_some_and(|name| self.take_word(name)));
        let scope = MemoryScope::WRITTEN
            .into_iter()
            .find(|scope| scope.name().is_some_and(|name| self.take_word(name)));
        AtomicOrdering { order: order.unwrap_or_default(), scope: scope.unwrap_or_default() }
    }

    fn asm(&mut self) -> Result<OpKind> {
        let (text, constraints) = (self.string()?, self.string()?);
        let pack = if self.take_word("pack") { self.number("a number of elements")? } else { 1 };
        let from = if self.take_word("from") { self.number("a register")? } else { 0 };
        Ok(OpKind::Asm { text, constraints, pack, from })
    }
}

/// The kinds whose head is one word.
fn bare_kind(word: &str) -> Option<OpKind> {
    if let Some(op) = UnaryOp::from_name(word) {
        return Some(OpKind::Unary(op));
    }
    if let Some(op) = BinaryOp::from_name(word) {
        return Some(OpKind::Binary(op));
    }
    Some(match word {
        "iota" => OpKind::Iota,
        "select" => OpKind::Select,
        "fma" => OpKind::Fma,
        "cast" => OpKind::Cast,
        "bitcast" => OpKind::Bitcast,
        "broadcast" => OpKind::Broadcast,
        "reshape" => OpKind::Reshape,
        "join" => OpKind::Join,
        "split" => OpKind::Split,
        "histogram" => OpKind::Histogram,
        "ptr_add" => OpKind::PtrAdd,
        "load" => OpKind::Load,
        "store" => OpKind::Store,
        "view_ptr" => OpKind::ViewPtr,
        "view_load" => OpKind::ViewLoad,
        "view_store" => OpKind::ViewStore,
        "make_view" => OpKind::MakeView,
        "yield" => OpKind::Yield,
        "return" => OpKind::Return,
        "convert_layout" => OpKind::ConvertLayout,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::print;

    fn round_trip(text: &str) {
        let func = parse(text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        assert_eq!(print(&func), text);
    }

    #[test]
    fn reads_what_it_prints() {
        round_trip(
            r#"kernel add(%x: *f32 readonly multiple_of 16, %out: *f32 exclusive, %n: i64) contract {
  %0 = program_id 0 : i64
  %1 = const 1024 : i64
  %2 = mul %0, %1 : i64
  %3 = iota : i64[1024]
  %4 = broadcast %2 : i64[1024]
  %5 = add %4, %3 : i64[1024]
  %6 = broadcast %n : i64[1024]
  %7 = cmp lt %5, %6 : bool[1024]
  %8 = broadcast %x : *f32[1024]
  %9 = ptr_add %8, %5 : *f32[1024]
  %10 = load %9, %7 : f32[1024]
  %11 = exp %10 : f32[1024]
  %12 = broadcast %out : *f32[1024]
  %13 = ptr_add %12, %5 : *f32[1024]
  store %13, %11, %7
  print "no operands \"here\"\n"
  %14 = reduce max 0 %11 : f32
  print "x = {}" %14
  return
}
"#,
        );
    }

    #[test]
    fn reads_control_flow() {
        round_trip(
            r#"kernel loops(%v: view<f32,2> readonly unit_stride stride_multiple_of 8, %n: i64) {
  %0 = const 0 : i64
  %1 = const 1 : i64
  %2 = const -1.5 : f32
  %3, %4 = for %5 = %0 to %n step %1 carry (%6 = %2, %7 = %0) stages 4 unroll 2 {
    %8 = view_load %v, %5, %0 : f32[1x4]
    %9 = transpose [1, 0] %8 : f32[4x1]
    %10, %11 = reduce 0 %9, %9 by (%12: f32, %13: f32, %14: f32, %15: f32) {
      %16 = add %12, %14 : f32
      %17 = max_num %13, %15 : f32
      yield %16, %17
    } : f32[1], f32[1]
    %18 = scan add 0 reverse %10 : f32[1]
    %19 = reshape %18 : f32
    yield %19, %5
  } : f32, i64
  %20 = while carry (%21 = %4) {
    %22 = cmp gt %21, %0 : bool
    yield %22
  } do (%23) {
    %24 = sub %23, %1 : i64
    yield %24
  } : i64
  %25 = cmp eq %20, %0 : bool
  %26 = if %25 {
    yield %3
  } else {
    return
  } : f32
  for %27 = %0 to %n step %1 {
    yield
  }
  return
}
"#,
        );
    }

    #[test]
    fn constants_read_back_bit_for_bit() {
        let mut cases = Vec::new();
        for dtype in DType::ALL {
            let float = [0, 1, 0x3c00, 0x7c00, 0xfc00, 0x7e01, 0x8000, 0x3f80_0001, 0x7fc0_0001];
            let wide = [0x3ff0_0000_0000_0001, 0x7ff0_0000_0000_0001, u64::MAX, 1 << 63];
            cases.extend(float.iter().chain(&wide).map(|&bits| Scalar { dtype, bits }));
        }
        for scalar in cases {
            let text = format!(
                "kernel c() {{\n  %0 = const {} : {}\n  return\n}}\n",
                super::super::print::literal(scalar),
                scalar.dtype
            );
            let func = parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
            assert_eq!(func.op(Op(0)).kind, OpKind::Const(scalar), "{text}");
        }
    }

    #[test]
    fn errors_name_the_place() {
        let cases = [
            ("", "1:1: expected `kernel`, found the end of the text"),
            ("kernel k() {\n  %0 = addd %1\n}", "2:8: unknown op `addd`"),
            ("kernel k() {\n  %0 = neg %1 : f32\n}", "2:12: `%1` is not defined before here"),
            ("kernel k(%x: f33) {}", "1:14: expected a type, found `f33`"),
            ("kernel k(%x: f32 fast) {}", "1:18: unknown attribute `fast`"),
            ("kernel k(%x: f32, %x: f32) {}", "1:19: `%x` is defined twice"),
            ("kernel k(%x: f32[1x2x3x4x5x6]) {}", "1:18: `1x2x3x4x5x6` is not a shape"),
            ("kernel k(%x: f32[99999999999]) {}", "1:18: `99999999999` is not a shape"),
            ("kernel k() {\n  %0 = const 300 : u8\n}", "2:14: `300` is not a value of u8"),
            ("kernel k() {\n  %0 = const 1 : i8, i8\n}", "2:14: 1 results have 2 types"),
            ("kernel k() {\n  assert \"x", "2:10: this string does not end"),
            ("kernel k() {\n  assert \"\\q\" ", "2:10: unknown escape in this string"),
            ("kernel k() { @ }", "1:14: unexpected character '@'"),
            ("kernel k() {} x", "1:15: expected the end of the text, found `x`"),
            ("kernel k() { return", "1:20: expected an op, found the end of the text"),
        ];
        for (text, message) in cases {
            assert_eq!(parse(text).unwrap_err().to_string(), message, "{text}");
        }
    }

    #[test]
    fn deep_nesting_is_an_error() {
        let text = format!("kernel k(%c: bool) {{ {}", "if %c { ".repeat(100_000));
        assert!(parse(&text).unwrap_err().message.contains("nested too deeply"));
    }

    #[test]
    fn no_damaged_text_panics() {
        let text = "kernel k(%v: view<f32,2>, %c: bool) {\n  %0 = const 1.5e-7 : f32\n  \
                    %1 = for %2 = %0 to %0 step %0 carry (%3 = %0) stages 2 { yield %3 } : f32[2x3]\n  \
                    %4 = reduce 0 %1 by (%5: f32, %6: f32) { yield %5 } : f32\n  return\n}";
        assert!(parse(text).is_ok());
        let chars: Vec<char> = text.chars().collect();
        for at in 0..chars.len() {
            let _ = parse(&chars[..at].iter().collect::<String>());
            for new in ['%', '{', ')', '9', '-', '"', 'x', ' '] {
                let mut damaged = chars.clone();
                damaged[at] = new;
                if let Ok(func) = parse(&damaged.iter().collect::<String>()) {
                    let printed = print(&func);
                    assert_eq!(print(&parse(&printed).unwrap()), printed);
                }
            }
        }
    }
}
