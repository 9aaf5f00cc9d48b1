//! `genesis inspect`

use genesis::DType;
use genesis_kernel::front::ast::{DTypeBound, DTypeParam};
use genesis_kernel::inspect::{Emit, InspectRequest, Inspection, inspect};
use genesis_kernel::kernel::{KernelDef, LaunchOptions};
use genesis_kernel::target::Target;
use serde_json::json;

use super::{Failure, Outcome, say};

/// Show what a kernel compiles to, and what it needs.
#[derive(clap::Args)]
pub(super) struct Args {
    /// A name that `genesis kernels` lists.
    kernel: String,
    /// What to show: tir (tile IR), passes (the IR after each pass), lir (layout IR), layout (layouts
    /// drawn, bank conflicts, and the schedule of asynchronous copies), llvm, ptx, sass, or asm.
    ///
    /// Every one ends with what the code needs: registers, shared memory, bank conflicts, spills, and what
    /// the assembler warns about.
    #[arg(long, default_value = "ptx", value_parser = emit)]
    emit: Emit,
    /// sm_80, sm_86, sm_89, sm_90, sm_90a, sm_100, sm_100a, sm_120, sm_120a or host; asm is always for the host.
    #[arg(long, default_value = "sm_90a", value_parser = arch)]
    arch: Target,
    /// The dtype of the tensors.
    #[arg(long, default_value = "f32", value_parser = dtype)]
    dtype: DType,
    /// A constant of the kernel, or num_warps, num_stages, cluster: --set BLOCK=1024. May be given
    /// again.
    #[arg(long = "set", value_parser = setting)]
    set: Vec<(String, i64)>,
    /// Only what the code needs, without its text.
    #[arg(long)]
    summary: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

fn emit(text: &str) -> Result<Emit, String> {
    Emit::from_name(text).ok_or_else(|| {
        let names: Vec<&str> = Emit::ALL.iter().map(|&(_, name)| name).collect();
        format!("there are {}", names.join(", "))
    })
}

pub(super) fn arch(text: &str) -> Result<Target, String> {
    Target::from_name(text).ok_or_else(|| format!("there are {}", Target::names()))
}

pub(super) fn dtype(text: &str) -> Result<DType, String> {
    DType::from_name(text).ok_or_else(|| {
        let names: Vec<&str> = DType::ALL.iter().map(|d| d.name()).collect();
        format!("there are {}", names.join(", "))
    })
}

fn setting(text: &str) -> Result<(String, i64), String> {
    let (name, value) = text.split_once('=').ok_or("is NAME=NUMBER, such as BLOCK=1024")?;
    let value = value.parse().map_err(|_| format!("{value} is not a whole number"))?;
    Ok((name.to_owned(), value))
}

pub(super) fn run(args: &Args) -> Outcome {
    let kernel = find(&args.kernel)?;
    let target = if args.emit == Emit::Asm { Target::host() } else { args.arch.clone() };
    let mut request =
        InspectRequest::new(kernel, target, args.emit).dtypes(&dtypes(kernel, args.dtype));
    for name in kernel.ast.consts {
        let given = args.set.iter().find(|(set, _)| set == name).map(|&(_, value)| value);
        request = request.set(name, given.unwrap_or_else(|| usual(name)));
    }
    let mut options = LaunchOptions::default();
    let mut others = args.set.iter().filter(|(set, _)| !kernel.ast.consts.contains(&set.as_str()));
    if let Some((name, value)) = others.find(|(name, value)| !options.set(name, *value)) {
        return Err(Failure::Message(match LaunchOptions::default().set(name, 1) {
            true => format!("{name}={value} is not from 0 to {}", u32::MAX),
            false => {
                let has = kernel.ast.consts.join(", ");
                format!("{} has no constant {name}; it has {has}", kernel.name())
            }
        }));
    }
    request.hints = request.hints.with_options(options);
    let inspection = inspect(kernel, &request)?;
    if args.json {
        return say(as_json(&inspection, args.emit));
    }
    if !args.summary {
        say(&inspection.text)?;
    }
    say(summary(&inspection, &request))
}

/// The kernel with this name; else one line with the nearest names.
pub(super) fn find(name: &str) -> Result<&'static KernelDef, Failure> {
    let all = kernels::all();
    if let Some(kernel) = all.iter().find(|kernel| kernel.name() == name) {
        return Ok(kernel);
    }
    let near: Vec<&str> = all
        .iter()
        .map(|k| k.name())
        .filter(|k| k.contains(name) || name.contains(k))
        .take(5)
        .collect();
    let hint = if near.is_empty() {
        "see `genesis kernels`".to_owned()
    } else {
        format!("did you mean {}?", near.join(", "))
    };
    Err(Failure::Message(format!("no kernel is called {name}; {hint}")))
}

/// What a launch on tensors of this dtype passes: `A` is what is computed in.
pub(super) fn dtypes(kernel: &KernelDef, dtype: DType) -> Vec<DType> {
    let wide = match dtype {
        DType::F16 | DType::BF16 => DType::F32,
        other => other,
    };
    let of = |param: &DTypeParam| match param.bound {
        DTypeBound::Float8 if !dtype.is_f8() => DType::F8E4M3,
        DTypeBound::Int8 if !matches!(dtype, DType::I8 | DType::U8) => DType::I8,
        DTypeBound::Int if param.name == "O" => DType::I32,
        DTypeBound::Float if dtype.is_f8() => DType::BF16,
        _ if param.name == "A" => wide,
        _ => dtype,
    };
    kernel.ast.dtypes.iter().map(of).collect()
}

/// A constant's usual value.
fn usual(name: &str) -> i64 {
    match name {
        "BM" | "BN" => 64,
        "BK" => 32,
        "ROWS" | "TOKENS" => 16,
        "COLS" => 256,
        "BLOCK" => 1024,
        "LANES" | "FAN" => 32,
        "WIDTH" => 8,
        "UNIT" => 4,
        "PARTS" => 64,
        "PIECE" => 256,
        _ => 0,
    }
}

fn known<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| "unknown".to_owned(), |v| v.to_string())
}

/// What the code needs, a fact a line, as comments that an assembler skips.
fn summary(inspection: &Inspection, request: &InspectRequest) -> String {
    let r = &inspection.resources;
    let dtypes: Vec<String> = request.dtypes.iter().map(ToString::to_string).collect();
    let consts: Vec<String> =
        request.consts.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let conflicts = r.bank_ways.map(|ways| match ways {
        1 => "none".to_owned(),
        ways => format!("{ways}-way"),
    });
    let title = [inspection.name.clone(), dtypes.join(" "), consts.join(" ")];
    let mut lines = vec![
        title.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", "),
        format!("registers        {}", known(r.registers)),
        format!("spill bytes      {}", known(r.spill_bytes)),
        format!("shared bytes     {}", known(r.shared_bytes)),
        format!("bank conflicts   {}", known(conflicts)),
        format!("warps            {}", known(r.num_warps)),
        format!("bytes a program  {}", r.bytes_per_program),
        format!("FLOPs a program  {}", r.flops_per_program),
    ];
    lines.extend(r.warnings.iter().cloned());
    let warnings = inspection.warnings.iter().map(ToString::to_string);
    lines.extend(warnings.flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>()));
    lines.iter().map(|line| format!("// {line}")).collect::<Vec<_>>().join("\n")
}

fn as_json(inspection: &Inspection, emit: Emit) -> serde_json::Value {
    let r = &inspection.resources;
    let ours = inspection.warnings.iter().map(ToString::to_string);
    let warnings: Vec<String> = r.warnings.iter().cloned().chain(ours).collect();
    json!({
        "name": inspection.name,
        "emit": emit.name(),
        "text": inspection.text,
        "registers": r.registers,
        "shared_bytes": r.shared_bytes,
        "bank_ways": r.bank_ways,
        "spill_bytes": r.spill_bytes,
        "warnings": warnings,
        "num_warps": r.num_warps,
        "bytes_per_program": r.bytes_per_program,
        "flops_per_program": r.flops_per_program,
    })
}
