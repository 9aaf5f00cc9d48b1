//! Integration tests of Genesis: one binary.

#![allow(missing_docs, dead_code, reason = "tests")]

mod assemble;
mod gpu;
mod linear_rows;
mod quantized;
#[test]
fn emit_asm() {
    use genesis::DType;
    use genesis_kernel::inspect::{Emit, InspectRequest, inspect};
    use genesis_kernel::target::Target;
    let show = |kernel: &'static genesis_kernel::kernel::KernelDef,
                types: &[DType],
                consts: &[(&str, i64)],
                name: &str| {
        for (emit, ext) in [(Emit::Asm, "s"), (Emit::Tir, "tir"), (Emit::Passes, "passes")] {
            let mut request = InspectRequest::new(kernel, Target::host(), emit).dtypes(types);
            for (n, v) in consts {
                request = request.set(n, *v);
            }
            std::fs::write(
                format!("/tmp/plan/P_{name}.{ext}"),
                inspect(kernel, &request).unwrap().text,
            )
            .unwrap();
        }
    };
    let f = DType::F32;
    show(
        &kernels::linear_rows::linear_rows::KERNEL,
        &[f, f, f],
        &[("ROWS", 4), ("OUTS", 8), ("GROUPS", 28), ("LANES", 32)],
        "lin4",
    );
    show(
        &kernels::quantized::quantized_rows::KERNEL,
        &[f, DType::F16, f],
        &[("ROWS", 1), ("OUTS", 8), ("GROUPS", 14), ("LANES", 32), ("BITS", 4), ("MINS", 1)],
        "q1",
    );
}
