//! Writing a function anew, op by op: how passes work that change types or parameters.
//!
//! A pass says what becomes of an op it cares about and lets the others be copied. Values of the old
//! function are looked up in a table, so what is no longer used is simply not looked up.

use super::clone::{Mapping, write};
use crate::diag::Diagnostic;
use crate::ir::{Builder, Func, Op, Region, Type, Value};

/// What a pass does with each op.
pub(crate) trait Rewrite {
    /// Writes `op` of the old function at the end of `region` of the new one.
    fn op(&mut self, rebuild: &mut Rebuild<'_>, op: Op, region: Region) -> Result<(), Diagnostic>;

    /// The type of a region argument or of a copied result.
    fn ty(&self, ty: Type) -> Type {
        ty
    }
}

/// An old function, the new one, and what stands for each old value.
pub(crate) struct Rebuild<'f> {
    /// The function as it was.
    pub(crate) old: &'f Func,
    /// The function as it becomes.
    pub(crate) new: Func,
    map: Mapping,
}

impl<'f> Rebuild<'f> {
    /// An empty new function without parameters.
    pub(crate) fn new(old: &'f Func) -> Rebuild<'f> {
        let mut new = Func::new(old.name.clone());
        new.contract = old.contract;
        new.tma = old.tma.clone();
        Rebuild { old, new, map: Mapping::new() }
    }

    /// Adds the old function's parameters as they are.
    pub(crate) fn copy_params(&mut self) {
        for param in &self.old.params {
            let (name, attrs) = (param.name.clone(), param.attrs.clone());
            let value = self.new.add_param(name, self.old.ty(param.value), attrs);
            self.set(param.value, value);
        }
    }

    /// What stands for an old value.
    pub(crate) fn get(&self, old: Value) -> Value {
        self.map.find(old).expect("values are defined before they are used")
    }

    /// Lets `new` stand for `old`.
    pub(crate) fn set(&mut self, old: Value, new: Value) {
        self.map.set(old, new);
    }

    /// A builder at the end of a region, at an old op's place in the source.
    pub(crate) fn at(&mut self, op: Op, region: Region) -> Builder<'_> {
        let data = self.old.op(op);
        let mut builder = Builder::at(&mut self.new, region, data.loc);
        builder.cache = data.cache;
        builder
    }

    /// Writes the whole body.
    pub(crate) fn body(&mut self, rewrite: &mut impl Rewrite) -> Result<(), Diagnostic> {
        let (from, to) = (self.old.body, self.new.body);
        self.ops(rewrite, from, to)
    }

    /// Writes the ops of an old region at the end of a new one.
    pub(crate) fn ops(
        &mut self,
        rewrite: &mut impl Rewrite,
        from: Region,
        to: Region,
    ) -> Result<(), Diagnostic> {
        let old = self.old;
        for &op in &old.region(from).ops {
            rewrite.op(self, op, to)?;
        }
        Ok(())
    }

    /// Writes an old region as a new one, arguments and all.
    pub(crate) fn region(
        &mut self,
        rewrite: &mut impl Rewrite,
        from: Region,
    ) -> Result<Region, Diagnostic> {
        let to = self.new.add_region();
        let old = self.old;
        for &arg in &old.region(from).args {
            let new = self.new.add_region_arg(to, rewrite.ty(old.ty(arg)));
            self.set(arg, new);
        }
        self.ops(rewrite, from, to)?;
        Ok(to)
    }

    /// Copies an op with its regions; its results stand for the old ones.
    pub(crate) fn copy(
        &mut self,
        rewrite: &mut impl Rewrite,
        op: Op,
        region: Region,
    ) -> Result<Op, Diagnostic> {
        let old = self.old;
        let mut data = old.op(op).clone();
        for inner in &mut data.regions {
            *inner = self.region(rewrite, *inner)?;
        }
        for operand in &mut data.operands {
            *operand = self.get(*operand);
        }
        let types: Vec<Type> = data.results.iter().map(|&v| rewrite.ty(old.ty(v))).collect();
        Ok(write(&mut self.new, &mut self.map, data, &types, region))
    }
}
