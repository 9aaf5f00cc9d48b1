//! Numbers that kernels count on, and kernels whose arguments must fit each other as only launches make them.

use genesis::DType;
use genesis_kernel::Scalar;

/// Kernels with cases that the interpreter refuses, and why.
pub(super) const SKIPPED: &[(&str, &str)] = &[
    ("put_once", OF_DISTINCT_PLACES),
    ("fill_along", OF_ONE_VALUE),
    ("merge_rows", OF_ROWS_IN_ORDER),
    ("sample_weights", OF_EARLIER_LAUNCHES),
    ("adamw_8bit", OF_WHOLE_BLOCKS),
    ("ctc_alphas", OF_LENGTHS),
];

/// Kernels whose extents, taps and steps fit each other as only launches make them: with numbers of no meaning they walk
/// thousands of taps, or none. `virtual_gpu::` runs all of them, by `conv::a_gpu_gives_what_the_cpu_does`.
pub(super) const OF_WINDOWS: [&str; 8] = [
    "col2im",
    "conv",
    "conv_by_one",
    "conv_by_one_weight",
    "conv_few",
    "conv_few_weight",
    "conv_weight",
    "im2col",
];

/// Why a kernel refuses random indices.
const OF_DISTINCT_PLACES: &str =
    "no two of its places are equal; `places::what_is_read_once_gets_its_gradient` launches it";

/// Why a kernel that writes to one place from several programs may.
const OF_ONE_VALUE: &str =
    "all that it writes is one value; `virtual_gpu::indices` compares it with the CPU";

/// Why a kernel refuses random positions.
const OF_ROWS_IN_ORDER: &str =
    "its pieces are in order; `virtual_gpu::indices` compares it with the CPU";

/// Why a kernel refuses tensors of any size.
const OF_WHOLE_BLOCKS: &str =
    "blocks of 256 elements share a scale; `virtual_gpu::` steps with it beside the CPU";

/// Why a kernel refuses random lengths.
const OF_LENGTHS: &str = "there are as many frames as it is told; `few_launches::` compares it with the CPU on the virtual GPU";

/// Why a kernel refuses random memory.
const OF_EARLIER_LAUNCHES: &str = "its bins are those that the launch before it counts; `sanitize::language_models` launches both";

/// An integer argument of a kernel.
pub(super) fn integer(kernel: &str, param: &str, dtype: DType) -> Scalar {
    let value = match param {
        // Keys of an embedding differ only where positions are below it.
        "scale" => 1 << 20,
        // The digits of a key of 16 bits.
        "passes" if kernel.starts_with("radix_sort_rows") => 4,
        "shift" if kernel.starts_with("radix_select_count") => 4,
        // Parts of a row are whole steps.
        "part" if kernel.starts_with("cumsum_parts") || kernel == "sum_parts" => 256,
        // So are chunks whose elements are all written.
        "chunk" if matches!(kernel, "spread_found" | "replace_found") => 1024,
        _ => 16,
    };
    Scalar::int(dtype, value)
}
