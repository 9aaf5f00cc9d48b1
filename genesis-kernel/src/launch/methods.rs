//! How a program launches a kernel.

use super::dense::launch as launch_dense;
use super::shared::check as check_shared;
use crate::diag::Error;
use crate::front::LaunchOptions;
use crate::ir::DType;
use crate::kernel::{DenseLaunch, KernelDef, Launch};
use crate::runtime::{Arg, CheckedArg, Grid, Stream};

impl KernelDef {
    /// Runs a kernel that takes views and numbers only: one program for each point of the grid.
    ///
    /// Returns once the launch is queued on the stream; on the CPU, once it ran.
    ///
    /// # Errors
    /// If the arguments do not fit the kernel, two of them share elements of which it writes one, it does
    /// what nothing checks ([`KernelDef::is_unchecked`]), it does not compile, or the device refuses.
    pub fn launch_checked<const N: usize>(
        &self,
        stream: &Stream,
        grid: Grid,
        dtypes: &[DType],
        consts: &[i64],
        args: [CheckedArg<'_>; N],
    ) -> Result<(), Error> {
        let raw = args.each_ref().map(CheckedArg::arg);
        self.check(stream, &args)?;
        // SAFETY: the arguments lie inside buffers that live as long as the work, no two that are
        // written share an element, and the kernel leaves them nowhere.
        unsafe { self.launch(stream, grid, dtypes, consts, &raw) }
    }

    /// [`KernelDef::launch_checked`] of as many arguments as the fields of structs make.
    ///
    /// # Errors
    /// As [`KernelDef::launch_checked`].
    pub fn launch_checked_list(
        &self,
        stream: &Stream,
        grid: Grid,
        dtypes: &[DType],
        consts: &[i64],
        args: &[CheckedArg<'_>],
    ) -> Result<(), Error> {
        let raw: Vec<Arg> = args.iter().map(CheckedArg::arg).collect();
        self.check(stream, args)?;
        // SAFETY: as in `launch_checked`.
        unsafe { self.launch(stream, grid, dtypes, consts, &raw) }
    }

    /// What a launch without promises asks of its arguments.
    pub(crate) fn check(&self, stream: &Stream, args: &[CheckedArg<'_>]) -> Result<(), Error> {
        if self.is_unchecked() {
            return Err(Error::launch(format!(
                "{}: the kernel takes pointers or makes promises, so that its launch is `unsafe`",
                self.ast.name
            )));
        }
        args.iter().try_for_each(|arg| arg.lend(stream))?;
        if (0..args.len()).any(|i| !args[i].fits_next(args.get(i + 1))) {
            let name = self.ast.name;
            return Err(Error::launch(format!("{name}: a list of views is without its own table")));
        }
        check_shared(self.ast, args)
    }

    /// Runs the kernel: one program for each point of the grid.
    ///
    /// Returns once the launch is queued on the stream; on the CPU, once it ran.
    ///
    /// # Safety
    /// The memory that each argument says it has must be there until the work is done; pointers must be
    /// valid for every access the kernel makes, and its promises must hold. Memory behind a `PtrMut` or
    /// `ViewMut` must not be behind another argument, but where the kernel reads an element before it writes
    /// it and no other program does either; nor may it be used elsewhere meanwhile.
    /// # Errors
    /// If the arguments do not fit the kernel, the kernel does not compile, or the device refuses.
    pub unsafe fn launch(
        &self,
        stream: &Stream,
        grid: Grid,
        dtypes: &[DType],
        consts: &[i64],
        args: &[Arg],
    ) -> Result<(), Error> {
        let options = LaunchOptions::default();
        // SAFETY: the caller's promise is the same.
        unsafe { self.launch_with(stream, grid, dtypes, consts, options, args) }
    }

    /// Runs the kernel with choices of the caller's about warps and stages.
    ///
    /// # Safety
    /// As [`KernelDef::launch`].
    /// # Errors
    /// As [`KernelDef::launch`].
    pub unsafe fn launch_with(
        &self,
        stream: &Stream,
        grid: Grid,
        dtypes: &[DType],
        consts: &[i64],
        options: LaunchOptions,
        args: &[Arg],
    ) -> Result<(), Error> {
        let request = Launch { stream, grid, dtypes, consts, options, args };
        // SAFETY: the caller's promise is the same.
        unsafe { super::launch(self, &request) }
    }

    /// [`KernelDef::launch_with`] of dense operands of one length, for which the host needs less time.
    ///
    /// # Safety
    /// As [`KernelDef::launch`].
    /// # Errors
    /// As [`KernelDef::launch`].
    #[inline]
    pub unsafe fn launch_dense(
        &self,
        stream: &Stream,
        dense: &DenseLaunch<'_>,
    ) -> Result<(), Error> {
        // SAFETY: the caller's promise is the same.
        unsafe { launch_dense(self, stream, dense) }
    }
}
