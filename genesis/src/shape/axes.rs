//! One number for each axis of a tensor, in place: a tensor has few axes, and an op that takes a
//! microsecond can't afford to ask the allocator for each list.

use std::fmt;
use std::ops::{Deref, DerefMut};

/// Axes that need no memory of their own.
const FEW: usize = 6;

/// A list of numbers, one an axis.
#[derive(Clone)]
pub struct Axes<T>(Kept<T>);

#[derive(Clone)]
enum Kept<T> {
    Few(u8, [T; FEW]),
    Many(Vec<T>),
}

impl<T: Copy + Default> Axes<T> {
    /// No numbers.
    pub fn new() -> Axes<T> {
        Axes(Kept::Few(0, [T::default(); FEW]))
    }

    /// Adds a number at the end.
    #[inline]
    pub fn push(&mut self, value: T) {
        match &mut self.0 {
            Kept::Few(len, few) if usize::from(*len) < FEW => {
                few[usize::from(*len)] = value;
                *len += 1;
            }
            Kept::Few(_, few) => {
                let mut many = few.to_vec();
                many.push(value);
                self.0 = Kept::Many(many);
            }
            Kept::Many(many) => many.push(value),
        }
    }
}

impl<T: Copy + Default> Default for Axes<T> {
    fn default() -> Axes<T> {
        Axes::new()
    }
}

impl<T> Deref for Axes<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        match &self.0 {
            Kept::Few(len, few) => &few[..usize::from(*len)],
            Kept::Many(many) => many,
        }
    }
}

impl<T> DerefMut for Axes<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        match &mut self.0 {
            Kept::Few(len, few) => &mut few[..usize::from(*len)],
            Kept::Many(many) => many,
        }
    }
}

impl<T: Copy + Default> From<&[T]> for Axes<T> {
    #[inline]
    fn from(values: &[T]) -> Axes<T> {
        if values.len() > FEW {
            return Axes(Kept::Many(values.to_vec()));
        }
        let mut few = [T::default(); FEW];
        // One by one: a call to copy so few would take longer.
        for (axis, &value) in few.iter_mut().zip(values) {
            *axis = value;
        }
        Axes(Kept::Few(values.len() as u8, few))
    }
}

impl<T: Copy + Default> From<Vec<T>> for Axes<T> {
    fn from(values: Vec<T>) -> Axes<T> {
        if values.len() > FEW { Axes(Kept::Many(values)) } else { Axes::from(&values[..]) }
    }
}

impl<T: Copy + Default> FromIterator<T> for Axes<T> {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Axes<T> {
        let mut axes = Axes::new();
        values.into_iter().for_each(|value| axes.push(value));
        axes
    }
}

impl<'a, T> IntoIterator for &'a Axes<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<T: PartialEq, S: AsRef<[T]>> PartialEq<S> for Axes<T> {
    fn eq(&self, other: &S) -> bool {
        **self == *other.as_ref()
    }
}

impl<T: Eq> Eq for Axes<T> {}

impl<T> AsRef<[T]> for Axes<T> {
    fn as_ref(&self) -> &[T] {
        self
    }
}

impl<T: fmt::Debug> fmt::Debug for Axes<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_the_same_at_any_length() {
        for n in 0..10 {
            let values: Vec<usize> = (0..n).collect();
            let pushed: Axes<usize> = values.iter().copied().collect();
            assert_eq!(pushed, values);
            assert_eq!(pushed, Axes::from(values.clone()));
            assert_eq!(format!("{pushed:?}"), format!("{values:?}"));
        }
    }
}
