//! Loops and branches around a few ops.

use super::super::func::{ParamAttrs, Region, Value};
use super::super::number::Scalar;
use super::super::ops::{BinaryOp, LoopOptions, Predicate};
use super::super::types::{DType, Type};
use super::Maker;
use crate::ir::InterpArg;

/// Deeper nests only take time.
const MAX_NESTING: usize = 2;

impl Maker {
    /// Runs `fill` with ops going to a new region; values made there are forgotten afterwards.
    fn inside(&mut self, region: Region, fill: impl FnOnce(&mut Maker)) {
        let (outer, n) = (self.region, self.pool.len());
        self.region = region;
        self.nesting += 1;
        fill(self);
        self.nesting -= 1;
        self.region = outer;
        self.pool.truncate(n);
    }

    /// A few ops, then one value for each of these types.
    fn body(&mut self, types: &[(DType, super::Shape)]) -> Vec<Value> {
        for _ in 0..self.rng.range(1, 4) {
            if self.options.wide && self.rng.chance(8) {
                self.wide_step();
            } else {
                self.step();
            }
        }
        types.iter().map(|&(dtype, shape)| self.operand(dtype, shape)).collect()
    }

    fn is_too_deep(&self) -> bool {
        self.nesting >= MAX_NESTING
    }

    /// One or two values to carry.
    fn carried(&mut self) -> Vec<Value> {
        let n = self.rng.range(1, 2);
        (0..n).filter_map(|_| self.pick(|ty| !ty.is_ptr())).collect()
    }

    /// A scalar parameter, or a constant; i64.
    fn number(&mut self, value: i64) -> Value {
        if self.rng.chance(50) {
            return self.build().int(DType::I64, value);
        }
        let arg = InterpArg::Scalar(Scalar::int(DType::I64, value));
        self.add_param("k", Type::scalar(DType::I64), ParamAttrs::default(), arg)
    }

    /// Zero to five iterations.
    pub(super) fn for_loop(&mut self) {
        if self.is_too_deep() {
            return;
        }
        let lower = self.rng.range(0, 3) as i64 - 1;
        let step = self.rng.pick(&[1, 1, 2, 3]);
        let upper = lower + self.rng.range(0, 5) as i64 * step - self.rng.below(2) as i64;
        let bounds = [lower, upper, step].map(|value| self.number(value));
        let inits = self.carried();
        let types: Vec<_> = inits.iter().map(|&v| self.data_type(v)).collect();
        let region = self.func.add_region();
        let index = self.func.add_region_arg(region, Type::scalar(DType::I64));
        let args = self.region_args(region, &inits);
        self.inside(region, |maker| {
            maker.keep(index);
            args.iter().for_each(|&arg| maker.keep(arg));
            if maker.rng.chance(40) {
                let zero = maker.build().int(DType::I64, 0);
                let distance = maker.build().binary(BinaryOp::Max, index, zero);
                let value = maker.load_shifted(distance);
                maker.keep(value);
            }
            let next = maker.body(&types);
            maker.build().yield_values(&next);
        });
        let options = LoopOptions { stages: 0, unroll: self.rng.pick(&[0, 0, 0, 2, 4]) };
        let results = self.build().for_loop(bounds, &inits, region, options);
        results.into_iter().for_each(|value| self.keep_at(value, 1));
    }

    fn region_args(&mut self, region: Region, inits: &[Value]) -> Vec<Value> {
        inits.iter().map(|&v| self.func.add_region_arg(region, self.func.ty(v))).collect()
    }

    /// Counts down a carried number, which ends it.
    pub(super) fn while_loop(&mut self) {
        if self.is_too_deep() {
            return;
        }
        let start = self.rng.range(0, 4) as i64;
        let mut inits = vec![self.number(start)];
        inits.extend(self.carried());
        let types: Vec<_> = inits[1..].iter().map(|&v| self.data_type(v)).collect();
        let (cond, body) = (self.func.add_region(), self.func.add_region());
        let counter = self.region_args(cond, &inits)[0];
        self.inside(cond, |maker| {
            let mut build = maker.build();
            let zero = build.int(DType::I64, 0);
            let goes_on = build.compare(Predicate::Gt, counter, zero);
            build.yield_values(&[goes_on]);
        });
        let args = self.region_args(body, &inits);
        self.inside(body, |maker| {
            args.iter().for_each(|&arg| maker.keep(arg));
            let mut next = maker.body(&types);
            let mut build = maker.build();
            let one = build.int(DType::I64, 1);
            next.insert(0, build.binary(BinaryOp::Sub, args[0], one));
            build.yield_values(&next);
        });
        let results = self.build().while_loop(&inits, cond, body);
        results.into_iter().skip(1).for_each(|value| self.keep_at(value, 1));
    }

    /// Both ways give a value of one type; now and then one way ends the program.
    pub(super) fn branch(&mut self) {
        if self.is_too_deep() {
            return;
        }
        let Some(cond) = self.condition() else { return };
        let Some(like) = self.pick(|ty| !ty.is_ptr()) else { return };
        let types = [self.data_type(like)];
        let ends = self.rng.chance(10);
        let regions = [self.func.add_region(), self.func.add_region()];
        for (i, region) in regions.into_iter().enumerate() {
            self.inside(region, |maker| {
                if i == 0 && ends {
                    maker.build().ret();
                    return;
                }
                let values = maker.body(&types);
                maker.build().yield_values(&values);
            });
        }
        let ty = self.func.ty(like);
        let results = self.build().if_else(cond, regions[0], regions[1], &[ty]);
        results.into_iter().for_each(|value| self.keep_at(value, 1));
    }

    /// A scalar bool: one at hand, or made from a scalar.
    fn condition(&mut self) -> Option<Value> {
        let x = self.pick(|ty| !ty.is_ptr() && ty.shape.is_scalar())?;
        let (dtype, shape) = self.data_type(x);
        if dtype == DType::Bool {
            return Some(x);
        }
        let limit = self.operand(dtype, shape);
        let predicate = self.rng.pick(Predicate::ALL);
        Some(self.build().compare(predicate, x, limit))
    }
}
