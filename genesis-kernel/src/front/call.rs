//! Device functions, inlined: their parameters become variables of a frame of their own.

use crate::ir::DType;

use super::ast::{DTypeAst, DTypeBound, ExtentAst, FnAst, GenericAst, ParamAst, Span, TypeAst};
use super::env::Frame;
use super::lower::{Lower, MAX_INLINING, Res, name_of};
use super::value::{Operand, Val};

impl Lower {
    /// Calls a device function with arguments already walked.
    pub(super) fn call_device(
        &mut self,
        callee: &'static FnAst,
        generics: &'static [GenericAst],
        args: &[Operand],
        span: Span,
    ) -> Res {
        self.check_call(callee, args, span)?;
        let mut frame = Frame::new(callee, self.region);
        self.bind_generics(&mut frame, generics, span)?;
        for (param, arg) in callee.params.iter().zip(args) {
            if let Some(val) = inside(param, &arg.val) {
                self.infer(&mut frame, &param.ty, val);
            }
        }
        let frame = self.arguments(frame, callee, args)?;
        self.frames.push(frame);
        let wrong = self.wrong_extents(callee, args);
        let wrong = wrong.map(|wrong| wrong.map(|(arg, text)| (arg.span(), text)));
        if let Some((span, text)) = wrong? {
            self.frames.pop();
            return Err(self.error(span, text));
        }
        let returned = std::mem::replace(&mut self.returned, false);
        let result = self.nested(callee.span, |lower| lower.device_body(callee));
        self.returned = returned;
        self.frames.pop();
        result
    }

    fn device_body(&mut self, callee: &'static FnAst) -> Res {
        let value = self.block_body(callee.body)?;
        let value = self.frame_mut().result.take().unwrap_or(value);
        let (Some(ret), Some(expr)) = (callee.ret, callee.body.value) else { return Ok(value) };
        if let Some((written, found)) = self.wrong_extent(ret, &value)? {
            let name = callee.name;
            let message =
                format!("`{name}` is to give an extent of {written} here, this has {found}");
            return Err(self.error(expr.span, message));
        }
        self.typed(Operand { val: value, expr }, Some(ret))
    }

    /// The first argument of which an extent is not what the signature computes for it, in the function's own frame.
    fn wrong_extents<'a>(
        &mut self,
        callee: &'static FnAst,
        args: &'a [Operand],
    ) -> Res<Option<(&'a Operand, String)>> {
        for (param, arg) in callee.params.iter().zip(args) {
            if let Some((written, found)) = self.wrong_extent(&param.ty, &arg.val)? {
                let (function, name) = (callee.name, name_of(arg.expr));
                let text =
                    format!("`{function}` takes an extent of {written} here, {name} has {found}");
                return Ok(Some((arg, text)));
            }
        }
        Ok(None)
    }

    /// An extent that a type computes, and the other one that the value has.
    fn wrong_extent(&mut self, ty: &'static TypeAst, val: &Val) -> Res<Option<(i64, usize)>> {
        match (ty, val) {
            (TypeAst::Tuple(types), Val::Tuple(parts)) => {
                for (ty, part) in types.iter().zip(parts) {
                    if let Some(wrong) = self.wrong_extent(ty, part)? {
                        return Ok(Some(wrong));
                    }
                }
            }
            (TypeAst::Shaped(_, extents), val) => {
                let found = self.shape(val).map(|shape| shape.extents()).unwrap_or_default();
                for (extent, found) in extents.iter().zip(found) {
                    let ExtentAst::Computed(expr) = extent else { continue };
                    let written = self.operand(expr)?.val.as_int();
                    if let Some(written) = written.filter(|&written| written != found as i64) {
                        return Ok(Some((written, found)));
                    }
                }
            }
            _ => {}
        }
        Ok(None)
    }

    fn check_call(&self, callee: &FnAst, args: &[Operand], span: Span) -> Res<()> {
        let name = callee.name;
        if self.frames.iter().any(|frame| std::ptr::eq(frame.ast, callee)) {
            let error = self.error(span, format!("`{name}` calls itself"));
            return Err(error.help("device functions are inlined; write a loop"));
        }
        if self.frames.len() > MAX_INLINING {
            let message = format!("device functions call each other over {MAX_INLINING} deep");
            return Err(self.error(span, message));
        }
        if callee.params.len() != args.len() {
            let (expected, given) = (callee.params.len(), args.len());
            let plural = if expected == 1 { "argument" } else { "arguments" };
            let message = format!("`{name}` takes {expected} {plural}, {given} given");
            return Err(self.error(span, message));
        }
        Ok(())
    }

    /// What the `::<..>` arguments say, in the order of the parameters.
    fn bind_generics(
        &mut self,
        frame: &mut Frame,
        generics: &'static [GenericAst],
        span: Span,
    ) -> Res<()> {
        let mut dtypes = frame.ast.dtypes.iter();
        let mut consts = frame.ast.consts.iter();
        for generic in generics {
            match generic {
                GenericAst::Type(TypeAst::Scalar(dtype)) => {
                    if let Some(param) = dtypes.next() {
                        frame.dtypes.push((param.name, self.dtype_ast(*dtype, span)?));
                    }
                }
                GenericAst::Type(TypeAst::Inferred) if frame.ast.dtypes.len() > 1 => {
                    dtypes.next();
                }
                GenericAst::Type(_) | GenericAst::Order(_) | GenericAst::Scope(_) => {}
                GenericAst::Const(expr) => {
                    let operand = self.operand(expr)?;
                    let of_bool = || operand.val.as_bool().map(i64::from);
                    let Some(value) = operand.val.as_int().or_else(of_bool) else {
                        let found = self.describe(&operand.val);
                        let message =
                            format!("a const argument must be a constant, this is {found}");
                        return Err(self.error(operand.span(), message));
                    };
                    if let Some(&name) = consts.next() {
                        frame.consts.push((name, value));
                    }
                }
            }
        }
        Ok(())
    }

    /// Learns type and const parameters from an argument.
    fn infer(&self, frame: &mut Frame, ty: &'static TypeAst, val: &Val) {
        match (ty, val) {
            (TypeAst::Tuple(types), Val::Tuple(parts)) => {
                for (ty, part) in types.iter().zip(parts) {
                    self.infer(frame, ty, part);
                }
            }
            (TypeAst::View { dtype, .. }, val) => {
                if let Some((_, found, _)) = self.view_type(val) {
                    learn_dtype(frame, *dtype, found);
                }
            }
            (
                TypeAst::Scalar(dtype)
                | TypeAst::Ptr { dtype, .. }
                | TypeAst::Tile(dtype)
                | TypeAst::Shaped(dtype, _),
                val,
            ) if !self.is_soft(val) => {
                if let Some(found) = self.tile_type(val) {
                    learn_dtype(frame, *dtype, found.dtype());
                }
            }
            _ => {}
        }
        if let (TypeAst::Shaped(_, extents), Some(shape)) = (ty, self.shape(val)) {
            for (extent, found) in extents.iter().zip(shape.extents()) {
                if let ExtentAst::Const(name) = extent
                    && !frame.consts.iter().any(|(known, _)| known == name)
                {
                    frame.consts.push((name, found as i64));
                }
            }
        }
    }

    /// The frame with its parameters declared; literals take the parameters' dtypes.
    fn arguments(&mut self, frame: Frame, callee: &'static FnAst, args: &[Operand]) -> Res<Frame> {
        let mut vals = Vec::with_capacity(args.len());
        for (param, arg) in callee.params.iter().zip(args) {
            let given = inside(param, &arg.val).map(|val| Operand { val: val.clone(), ..*arg });
            let val = match given {
                Some(given) => self.argument(&frame, callee, &param.ty, &given)?,
                None => Val::Unit,
            };
            vals.push(match &arg.val {
                Val::Optional(None) => Val::Optional(None),
                Val::Optional(Some(_)) => Val::Optional(Some(Box::new(val))),
                _ => val,
            });
        }
        self.frames.push(frame);
        let declared = callee
            .params
            .iter()
            .zip(vals)
            .try_for_each(|(param, val)| self.declare(param.pattern, val, param.span));
        let frame = self.frames.pop();
        declared?;
        frame.ok_or_else(|| self.error(callee.span, "the call has no frame"))
    }

    fn argument(
        &mut self,
        frame: &Frame,
        callee: &FnAst,
        ty: &'static TypeAst,
        arg: &Operand,
    ) -> Res {
        match (ty, &arg.val) {
            (TypeAst::Tuple(types), Val::Tuple(parts)) if types.len() == parts.len() => {
                let pairs = types.iter().zip(parts);
                let expr = arg.expr;
                let vals = pairs.map(|(ty, val)| {
                    self.argument(frame, callee, ty, &Operand { val: val.clone(), expr })
                });
                vals.collect::<Res<Vec<Val>>>().map(Val::Tuple)
            }
            (TypeAst::Scalar(dtype) | TypeAst::Tile(dtype) | TypeAst::Shaped(dtype, _), val) => {
                let Some(dtype) = known(frame, *dtype) else { return Ok(val.clone()) };
                match val {
                    Val::Lit(lit) => self.literal(*lit, dtype, arg.span()).map(Val::Const),
                    Val::Soft(_) => self.coerce(arg, dtype).map(Val::Ir),
                    val => {
                        let found = self.tile_type(val).filter(|ty| !ty.is_ptr());
                        if found.is_none_or(|ty| ty.dtype() != dtype) {
                            let (found, name) = (self.describe(val), name_of(arg.expr));
                            let function = callee.name;
                            let message =
                                format!("`{function}` takes {dtype} here, {name} is {found}");
                            let error = self.error(arg.span(), message);
                            return Err(error.help(format!("convert it: `.to::<{dtype}>()`")));
                        }
                        Ok(val.clone())
                    }
                }
            }
            (_, val) => Ok(val.clone()),
        }
    }
}

/// What there is of an argument, of an optional one perhaps nothing.
fn inside<'v>(param: &ParamAst, val: &'v Val) -> Option<&'v Val> {
    match val {
        Val::Optional(inner) if param.optional => inner.as_deref(),
        val => Some(val),
    }
}

fn known(frame: &Frame, dtype: DTypeAst) -> Option<DType> {
    dtype.resolve(|name| frame.dtype(name))
}

fn learn_dtype(frame: &mut Frame, dtype: DTypeAst, found: DType) {
    if let DTypeAst::Param(name) = dtype
        && frame.dtype(name).is_none()
    {
        frame.dtypes.push((name, found));
    }
}

/// Whether a bound accepts a dtype.
pub(super) fn accepts(bound: DTypeBound, dtype: DType) -> bool {
    match bound {
        DTypeBound::Element => true,
        DTypeBound::Number => dtype.is_number(),
        DTypeBound::Float => dtype.is_arithmetic_float(),
        DTypeBound::Float8 => dtype.is_f8(),
        DTypeBound::Int => dtype.is_int(),
        DTypeBound::Int8 => matches!(dtype, DType::I8 | DType::U8),
    }
}
