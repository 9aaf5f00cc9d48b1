//! Every kernel of the Genesis framework, written in its kernel language.
//!
//! Device code only: shapes, dtypes, gradients and references are the framework's. Kernels take
//! views, so that one source serves contiguous, strided and broadcast tensors: an axis that is
//! broadcast has stride 0.
//!
//! Two type parameters recur: `T` is what lies in memory, `A` is what is computed in: f32 for f16,
//! bf16 and f32, f64 for f64, and the dtype itself for integers.

pub mod attention;
pub mod cache;
pub mod columns;
pub mod compact;
pub mod compare;
pub mod conv;
pub mod conv_few;
pub mod conv_gathered;
pub mod copy;
pub mod cross;
pub mod ctc;
pub mod distance;
pub mod elementwise;
pub mod embedding;
pub mod epilogue;
pub mod fold;
pub mod gated;
pub mod grid_sample;
pub mod index;
pub mod join;
pub mod linear_rows;
pub mod linear_tiles;
pub mod log_add;
pub mod logits;
pub mod loss;
pub mod many;
pub mod math;
pub mod matmul;
pub mod matmul_f8;
pub mod matmul_int;
pub mod mode;
pub mod moments;
pub mod norm;
pub mod norm_bwd;
pub mod norm_rows;
pub mod packed;
pub mod pad;
pub mod paged_attention;
pub mod paged_decode;
pub mod pool;
pub mod product;
pub mod quantized;
pub mod quantized_tiles;
pub mod radix;
pub mod radix_select;
pub mod random;
pub mod reduce;
pub mod rotary;
pub mod rotate;
pub mod sample;
pub mod scan;
pub mod search;
pub mod segments;
pub mod select;
pub mod softmax;
pub mod sort;
pub mod special;
pub mod split_k;
pub mod tiles;
pub mod triangle;
pub mod unique;
pub mod unordered;
pub mod update;
pub mod update_8bit;

use genesis_kernel::kernel::KernelDef;

/// Every kernel, for `genesis kernels`, `genesis inspect` and the tests that compile them all.
pub fn all() -> Vec<&'static KernelDef> {
    let groups = [
        copy::KERNELS,
        join::KERNELS,
        pad::KERNELS,
        elementwise::UNARY,
        elementwise::BINARY,
        elementwise::SCALAR,
        compare::KERNELS,
        select::KERNELS,
        reduce::KERNELS,
        fold::KERNELS,
        moments::KERNELS,
        scan::KERNELS,
        softmax::KERNELS,
        norm::KERNELS,
        norm_bwd::KERNELS,
        norm_rows::KERNELS,
        matmul::KERNELS,
        matmul_f8::KERNELS,
        matmul_int::KERNELS,
        linear_rows::KERNELS,
        linear_tiles::KERNELS,
        quantized::KERNELS,
        quantized_tiles::KERNELS,
        loss::KERNELS,
        ctc::KERNELS,
        logits::KERNELS,
        distance::KERNELS,
        embedding::KERNELS,
        random::KERNELS,
        many::KERNELS,
        update::KERNELS,
        update_8bit::KERNELS,
        math::UNARY,
        math::BINARY,
        math::INT,
        sort::KERNELS,
        mode::KERNELS,
        radix::KERNELS,
        radix_select::KERNELS,
        columns::KERNELS,
        compact::KERNELS,
        search::KERNELS,
        special::KERNELS,
        index::KERNELS,
        segments::KERNELS,
        unique::KERNELS,
        unordered::KERNELS,
        split_k::KERNELS,
        triangle::KERNELS,
        cross::KERNELS,
        product::KERNELS,
        conv::KERNELS,
        conv_few::KERNELS,
        conv_gathered::KERNELS,
        pool::KERNELS,
        grid_sample::KERNELS,
        attention::KERNELS,
        packed::KERNELS,
        paged_attention::KERNELS,
        paged_decode::KERNELS,
        cache::KERNELS,
        rotary::KERNELS,
        rotate::KERNELS,
        gated::KERNELS,
        sample::KERNELS,
    ];
    groups.concat()
}
