//! Elements in the memory of the CPU as slices, for loops that are written in Rust.
//!
//! A tensor is a handle, so that what it points to is borrowed when the program runs, as of a `RefCell`: by
//! any number of readers, or by one writer. Who asks for what others have is a bug in Genesis, and panics:
//!
//! ```text
//! let x = a.elements::<f32>();       of a's memory a reader
//! let y = b.elements_mut::<f32>();   of b's memory the only one
//! let z = b.elements::<f32>();       panics
//! ```
//!
//! Launches do not ask: who makes one promises that nothing else is at what it writes.

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;

use bytemuck::Pod;
use genesis_kernel::runtime::HostElement;

use super::Storage;
use super::borrows::Borrows;
use crate::tensor::Tensor;

/// Elements that are read.
pub(crate) struct Elements<'s, T> {
    elements: NonNull<[T]>,
    borrows: &'s Borrows,
}

impl<T> Deref for Elements<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: they are live numbers of the storage that is borrowed, and no one writes them while
        // this counts as a reader.
        unsafe { self.elements.as_ref() }
    }
}

impl<T> Drop for Elements<'_, T> {
    fn drop(&mut self) {
        self.borrows.end_read();
    }
}

/// Elements that are written.
pub(crate) struct ElementsMut<'s, T> {
    elements: NonNull<[T]>,
    borrows: &'s Borrows,
    /// As a slice that can be written is: of no other lifetime.
    _own: PhantomData<&'s mut T>,
}

impl<T> Deref for ElementsMut<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: they are live numbers of the storage that is borrowed, and no one else has any of them.
        unsafe { self.elements.as_ref() }
    }
}

impl<T> DerefMut for ElementsMut<'_, T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`.
        unsafe { self.elements.as_mut() }
    }
}

impl<T> Drop for ElementsMut<'_, T> {
    fn drop(&mut self) {
        self.borrows.end_write();
    }
}

impl Storage {
    /// Where elements of the memory of the CPU are, once what was copied there has arrived.
    fn place<T: HostElement + Pod>(&self, range: Range<usize>) -> NonNull<[T]> {
        let end = range.end.checked_mul(size_of::<T>());
        let is_inside = range.start <= range.end && end.is_some_and(|end| end <= self.bytes());
        let is_here = !self.device().is_cuda() && !self.is_symbol();
        assert!(is_inside && is_here, "elements {range:?} are not the CPU's: a bug in Genesis");
        self.note_use();
        let first = self.address() as usize + range.start * size_of::<T>();
        let first = NonNull::new(first as *mut T).filter(|first| first.is_aligned());
        let first = if range.is_empty() { Some(NonNull::dangling()) } else { first };
        let first = first.expect("memory of elements is aligned for them");
        NonNull::slice_from_raw_parts(first, range.len())
    }
}

impl Tensor {
    /// The elements of a dense tensor on the CPU.
    ///
    /// # Panics
    /// If it is none, is of another dtype, or is being written.
    pub(crate) fn elements<T: HostElement + Pod>(&self) -> Elements<'_, T> {
        assert!(self.is_contiguous(), "a dense tensor is wanted, this is a bug in Genesis");
        self.spread().0
    }

    /// What lies between the lowest and the highest element of a tensor on the CPU of any strides, and
    /// where its first element is in that.
    ///
    /// # Panics
    /// If it is none, is of another dtype, or is being written.
    pub(crate) fn spread<T: HostElement + Pod>(&self) -> (Elements<'_, T>, usize) {
        let (storage, layout) = (self.storage(), self.layout());
        assert_eq!(self.dtype(), T::DTYPE, "the elements are of one dtype");
        let range = if self.numel() == 0 { 0..0 } else { layout.start()..layout.end() };
        let first = layout.offset() - range.start.min(layout.offset());
        let elements = storage.place(range);
        storage.borrows().read();
        (Elements { elements, borrows: storage.borrows() }, first)
    }

    /// The elements of a dense tensor on the CPU that was just made: nothing that was launched before
    /// reads or writes them.
    ///
    /// # Panics
    /// If it is none, is of another dtype, or any elements of its storage are borrowed.
    pub(crate) fn elements_mut<T: HostElement + Pod>(&self) -> ElementsMut<'_, T> {
        let (storage, first) = (self.storage(), self.layout().offset());
        assert!(self.is_contiguous(), "a dense tensor is wanted, this is a bug in Genesis");
        assert_eq!(self.dtype(), T::DTYPE, "the elements are of one dtype");
        let elements = storage.place(first..first + self.numel());
        storage.borrows().write();
        ElementsMut { elements, borrows: storage.borrows(), _own: PhantomData }
    }

    /// The bytes of all elements of a tensor as [`Tensor::elements_mut`] wants it, whatever its dtype.
    ///
    /// # Panics
    /// If it is none, or any elements of its storage are borrowed.
    pub(crate) fn bytes_mut(&self) -> ElementsMut<'_, u8> {
        let (storage, size) = (self.storage(), self.dtype().bytes());
        assert!(self.is_contiguous(), "a dense tensor is wanted, this is a bug in Genesis");
        let first = self.layout().offset() * size;
        let elements = storage.place(first..first + self.numel() * size);
        storage.borrows().write();
        ElementsMut { elements, borrows: storage.borrows(), _own: PhantomData }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use genesis_kernel::runtime::Device;

    use super::*;
    use crate::Result;

    fn numbers() -> Result<Tensor> {
        Tensor::from_slice_on(&[0.0f32, 1.0, 2.0, 3.0, 4.0, 5.0], &[2, 3], Device::Cpu)
    }

    fn panics<T>(f: impl FnOnce() -> T) -> bool {
        catch_unwind(AssertUnwindSafe(|| drop(f()))).is_err()
    }

    #[test]
    fn elements_are_the_views() -> Result<()> {
        let t = numbers()?;
        assert_eq!(*t.elements::<f32>(), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
        assert_eq!(*t.slice(0, 1..2)?.elements::<f32>(), [3.0, 4.0, 5.0]);
        let column = t.slice(1, 1..2)?;
        let (spread, first) = column.spread::<f32>();
        assert_eq!((&*spread, first), (&[1.0, 2.0, 3.0, 4.0][..], 0));
        assert!(panics(|| column.elements::<f32>()), "it is not dense");
        assert!(panics(|| t.elements::<i32>()), "of another dtype");
        assert!(t.slice(0, 1..1)?.elements::<f32>().is_empty());
        Ok(())
    }

    #[test]
    fn what_is_written_is_no_one_elses() -> Result<()> {
        let t = numbers()?;
        let view = t.slice(0, 0..1)?;
        let mut written = t.elements_mut::<f32>();
        written[0] = 7.0;
        assert!(panics(|| view.elements::<f32>()), "a reader of what is written");
        assert!(panics(|| view.elements_mut::<f32>()), "a second writer");
        drop(written);
        let (a, b) = (t.elements::<f32>(), view.elements::<f32>());
        assert_eq!((a[0], b[0]), (7.0, 7.0));
        assert!(panics(|| t.elements_mut::<f32>()), "a writer of what is read");
        drop((a, b));
        t.elements_mut::<f32>().fill(1.0);
        assert_eq!(*view.elements::<f32>(), [1.0; 3]);
        Ok(())
    }
}
