//! A CUDA driver without a GPU: `libcuda.so` as Genesis uses it, over the emulator of PTX.
//!
//! What a program does on the host for a GPU runs as it is: memory, streams, events, graphs, modules and
//! their errors. Kernels run too, thread by thread, so that their results are real; an access of memory
//! that is not there breaks the device for good, as it does on a card. Put a link named `libcuda.so.1` or
//! `libcuda.so` to this library into a folder, and the folder into `LD_LIBRARY_PATH`
//! (`scripts/virtual-gpu.sh` does). The machine is told by `VIRTUAL_GPU`, words with commas between:
//!
//! | word | meaning |
//! |---|---|
//! | `null` | launches return at once and do nothing: what is left is the host's own time |
//! | `count` | at the end the number of calls of each function is said on standard error |
//! | `clock` | events have the times of a virtual clock (`clock`), on which work costs what it would on an H200 (`cost`) |
//! | `devices=2` | the number of GPUs, 1 without it |
//! | `memory=64M` | memory of each, 4G without it |
//! | `fault=3` | the third launch that runs breaks its device by a bad address; `fault=3:launch` in another way |
//!
//! Work waits in its stream until something waits for it, and runs in the last order that is allowed; what
//! is wrong with a kernel is said on standard error.

mod answer;
mod api;
mod calls;
mod capture;
mod clock;
mod code;
mod cost;
mod driver;
mod memory;
mod options;
mod run;
mod stream;
mod work;
