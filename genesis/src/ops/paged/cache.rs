//! Writes of new keys and values to a paged KV cache.

use genesis_kernel::ir::DType;
use genesis_kernel::kernel::Grid;
use genesis_kernel::runtime::Device;
use kernels::cache as device;

use crate::autograd::is_grad_enabled;
use crate::error::{Error, Result};
use crate::launch;
use crate::ops::elementwise::check_pair;
use crate::tensor::Tensor;

const NAME: &str = "write_slots_";

impl Tensor {
    /// Writes rows to slots of this cache: slot `page * page_size + offset` is a token's place.
    ///
    /// # Shapes
    /// `self: [pages, page_size, G, D]`, `rows: [N, G, D]`, `slots: [N]` of i64.
    /// # Numerics
    /// A slot that the cache does not have, such as -1, is skipped: that is where padding goes. Of two rows
    /// for one slot either stays.
    /// # Errors
    /// If shapes, dtypes or devices do not fit, or a gradient would be recorded.
    /// # Examples
    /// ```
    /// # use genesis::{DType, Device, Tensor};
    /// let cache = Tensor::zeros(&[2, 4, 1, 2], DType::F32)?;
    /// let rows = Tensor::from_slice(&[1.0f32, 2.0], &[1, 1, 2])?;
    /// cache.write_slots_(&rows, &Tensor::from_slice(&[5i64], &[1])?)?;
    /// // Slot 5 is the second token of page 1.
    /// assert_eq!(cache.select(0, 1)?.select(0, 1)?.to_vec::<f32>()?, [1.0, 2.0]);
    /// # Ok::<(), genesis::Error>(())
    /// ```
    #[track_caller]
    pub fn write_slots_(&self, rows: &Tensor, slots: &Tensor) -> Result<()> {
        check_pair(NAME, self, rows)?;
        self.check_in_place(NAME)?;
        let (&[_, _, g, d], &[n, h, e]) = (self.shape(), rows.shape()) else {
            let (cache, rows) = (self.shape(), rows.shape());
            let message =
                format!("needs [pages, page_size, G, D] and [N, G, D], got {cache:?} and {rows:?}");
            return Err(Error::op(NAME, message));
        };
        if (g, d) != (h, e) {
            let message = format!("rows are [{h}, {e}], the cache has [{g}, {d}] of each token");
            return Err(Error::op(NAME, message));
        }
        if slots.dtype() != DType::I64 || slots.shape() != [n] || slots.device() != self.device() {
            let (dtype, shape, on) = (slots.dtype(), slots.shape(), slots.device());
            let message = format!(
                "slots must be i64 [{n}] on {}, got {dtype} {shape:?} on {on}",
                self.device()
            );
            return Err(Error::op(NAME, message));
        }
        if is_grad_enabled() && (self.requires_grad() || rows.requires_grad()) {
            return Err(Error::op(NAME, "has no gradient; call it inside of no_grad"));
        }
        let width = g * d;
        if n * width > 0 && self.numel() > 0 {
            let cols = width.next_power_of_two().clamp(16, 1024);
            let of_program = if self.device() == Device::Cpu { 4096 } else { 1024 };
            let rows_each = (of_program / cols).max(1);
            let grid = Grid::xy(n.div_ceil(rows_each), width.div_ceil(cols));
            let consts = [rows_each as i64, cols as i64];
            let tensors = [(&rows.detach(), false), (slots, false), (&self.detach(), true)];
            let kernel = &device::write_slots::KERNEL;
            launch::views(kernel, grid, &[self.dtype()], &consts, &tensors, &[])?;
        }
        self.storage().bump_version();
        Ok(())
    }
}
