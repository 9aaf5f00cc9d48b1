//! What a module consists of, told to whoever asks.

use std::sync::atomic::{AtomicBool, Ordering};

use super::Module;
use crate::tensor::Tensor;

/// Whether a layer behaves as in training; on at first.
#[derive(Debug)]
pub struct Training(AtomicBool);

impl Default for Training {
    fn default() -> Training {
        Training(AtomicBool::new(true))
    }
}

impl Training {
    /// Whether it is on.
    pub fn is_on(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Switches it.
    pub fn set(&self, on: bool) {
        self.0.store(on, Ordering::Relaxed);
    }
}

/// Walks a module; a module calls one method for each of its parts.
pub struct Visitor<'a, 'f> {
    prefix: String,
    want: Want<'a, 'f>,
}

/// What a walk looks for.
enum Want<'a, 'f> {
    Parameters(&'f mut dyn FnMut(String, &'a Tensor)),
    Buffers(&'f mut dyn FnMut(String, &'a Tensor)),
    Training(&'f mut dyn FnMut(&'a Training)),
}

impl<'a, 'f> Visitor<'a, 'f> {
    pub(super) fn parameters(found: &'f mut dyn FnMut(String, &'a Tensor)) -> Visitor<'a, 'f> {
        Visitor { prefix: String::new(), want: Want::Parameters(found) }
    }

    pub(super) fn buffers(found: &'f mut dyn FnMut(String, &'a Tensor)) -> Visitor<'a, 'f> {
        Visitor { prefix: String::new(), want: Want::Buffers(found) }
    }

    pub(super) fn training(found: &'f mut dyn FnMut(&'a Training)) -> Visitor<'a, 'f> {
        Visitor { prefix: String::new(), want: Want::Training(found) }
    }

    /// A tensor that is trained.
    pub fn parameter(&mut self, name: &str, tensor: &'a Tensor) {
        let name = format!("{}{name}", self.prefix);
        if let Want::Parameters(found) = &mut self.want {
            found(name, tensor);
        }
    }

    /// A tensor that is saved and not trained.
    pub fn buffer(&mut self, name: &str, tensor: &'a Tensor) {
        let name = format!("{}{name}", self.prefix);
        if let Want::Buffers(found) = &mut self.want {
            found(name, tensor);
        }
    }

    /// A layer's own training flag.
    pub fn training_flag(&mut self, flag: &'a Training) {
        if let Want::Training(found) = &mut self.want {
            found(flag);
        }
    }

    /// A module inside this one.
    pub fn child(&mut self, name: &str, module: &'a dyn Module) {
        let len = self.prefix.len();
        self.prefix.push_str(name);
        self.prefix.push('.');
        module.visit(self);
        self.prefix.truncate(len);
    }
}
