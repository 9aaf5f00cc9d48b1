//! The walk through a module: who is where, under which name.
//!
//! A module hands its fields to the visitor with their names ([`Visitor::part`]); the visitor keeps the
//! dotted path. What `state_dict`, `train`, `to_device` and the rest do follows from this one walk.

use super::{Buffer, Module, Parameter, Part, Training, Weight};

/// What a walk meets.
pub(super) enum Seen<'a> {
    Parameter(&'a Parameter),
    Buffer(&'a Buffer),
    Training(&'a Training),
    /// The weight of a product begins: what comes next is its parameter, or the module that it is.
    Weight(&'a Weight),
    /// A module begins: all until its end belongs to it.
    Module(&'a dyn Module),
    /// A module ends.
    End(&'a dyn Module),
}

/// Walks a module; a module shows it each of its parts in a fixed order.
pub struct Visitor<'a, 'f> {
    path: Path,
    see: &'f mut dyn FnMut(&str, Seen<'a>),
}

impl<'a, 'f> Visitor<'a, 'f> {
    /// Walks `root`, whose own name is empty.
    pub(super) fn walk(root: &'a dyn Module, see: &'f mut dyn FnMut(&str, Seen<'a>)) {
        Visitor { path: Path::default(), see }.module(root);
    }

    /// A field, with its name.
    pub fn part<P: Part + ?Sized>(&mut self, name: &str, part: &'a P) {
        let outer = self.path.enter(name);
        part.show(self);
        self.path.leave(outer);
    }

    pub(super) fn parameter(&mut self, parameter: &'a Parameter) {
        (self.see)(&self.path.0, Seen::Parameter(parameter));
    }

    pub(super) fn buffer(&mut self, buffer: &'a Buffer) {
        (self.see)(&self.path.0, Seen::Buffer(buffer));
    }

    pub(super) fn training(&mut self, flag: &'a Training) {
        (self.see)(&self.path.0, Seen::Training(flag));
    }

    pub(super) fn weight(&mut self, weight: &'a Weight) {
        (self.see)(&self.path.0, Seen::Weight(weight));
    }

    pub(super) fn module(&mut self, module: &'a dyn Module) {
        (self.see)(&self.path.0, Seen::Module(module));
        module.visit(self);
        (self.see)(&self.path.0, Seen::End(module));
    }
}

/// What a walk that changes things meets.
pub(super) enum SeenMut<'a> {
    Parameter(&'a mut Parameter),
    Buffer(&'a mut Buffer),
    /// As of [`Seen::Weight`]; what it holds is shown once this has been.
    Weight(&'a mut Weight),
}

/// Walks a module and may replace its tensors.
pub struct VisitorMut<'f> {
    path: Path,
    see: &'f mut dyn FnMut(&str, SeenMut<'_>),
}

impl<'f> VisitorMut<'f> {
    pub(super) fn new(see: &'f mut dyn FnMut(&str, SeenMut<'_>)) -> VisitorMut<'f> {
        VisitorMut { path: Path::default(), see }
    }

    /// A field, with its name.
    pub fn part<P: Part + ?Sized>(&mut self, name: &str, part: &mut P) {
        let outer = self.path.enter(name);
        part.show_mut(self);
        self.path.leave(outer);
    }

    pub(super) fn parameter(&mut self, parameter: &mut Parameter) {
        (self.see)(&self.path.0, SeenMut::Parameter(parameter));
    }

    pub(super) fn buffer(&mut self, buffer: &mut Buffer) {
        (self.see)(&self.path.0, SeenMut::Buffer(buffer));
    }

    pub(super) fn weight(&mut self, weight: &mut Weight) {
        (self.see)(&self.path.0, SeenMut::Weight(weight));
    }
}

/// A walk through a module of a known type, of either kind: what `#[derive(Module)]` takes apart.
pub enum Walk<'a, 'w, 'f, M> {
    /// One that looks.
    Shared(&'a M, &'w mut Visitor<'a, 'f>),
    /// One that may replace tensors.
    Unique(&'w mut M, &'w mut VisitorMut<'f>),
}

/// Names joined by dots.
#[derive(Default)]
struct Path(String);

impl Path {
    /// Goes one name further; gives what `leave` needs to come back.
    fn enter(&mut self, name: &str) -> usize {
        let outer = self.0.len();
        if outer > 0 && !name.is_empty() {
            self.0.push('.');
        }
        self.0.push_str(name);
        outer
    }

    fn leave(&mut self, outer: usize) {
        self.0.truncate(outer);
    }
}
