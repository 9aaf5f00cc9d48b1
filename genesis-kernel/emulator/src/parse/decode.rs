//! Instructions by their names.

use super::super::program::{
    Action, Alu, Arg, Atomic, Compare, Element, Fence, OnBarrier, Product, Reg, Rmw, Round,
    Shuffle, Space, Special, Sum, TensorCopy, Ty, Vote,
};
use super::{Parser, Wrong, parts};

/// An instruction's name by its parts.
struct Name<'n> {
    whole: &'n str,
    parts: Vec<&'n str>,
}

impl Name<'_> {
    fn has(&self, part: &str) -> bool {
        self.parts.contains(&part)
    }

    /// The last type of the name.
    fn ty(&self) -> Result<Ty, Wrong> {
        self.types().last().copied().ok_or_else(|| self.unknown())
    }

    fn types(&self) -> Vec<Ty> {
        self.parts.iter().filter_map(|part| Ty::from_name(part)).collect()
    }

    fn unknown(&self) -> Wrong {
        format!("`{}` is not known", self.whole)
    }

    fn space(&self) -> Space {
        match () {
            () if self.has("global") => Space::Global,
            () if self.parts.iter().any(|part| part.starts_with("shared")) => Space::Shared,
            () if self.has("param") => Space::Param,
            () if self.has("local") => Space::Local,
            () => Space::Generic,
        }
    }

    /// The extent of a matrix shape's part, such as 16 for `n` in `m64n16k8`.
    fn extent(&self, letter: char) -> Result<u32, Wrong> {
        let shape = self.parts.iter().find(|part| part.starts_with('m') && part.contains('k'));
        let shape = shape.ok_or_else(|| self.unknown())?;
        let rest = shape.split(letter).nth(1).unwrap_or_default();
        let digits = rest.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
        digits.parse().map_err(|_| self.unknown())
    }
}

const NONE: Arg = Arg::Imm(0);

impl Parser {
    pub(super) fn decode(&mut self, whole: &str, ops: &[String]) -> Result<Action, Wrong> {
        let name = Name { whole, parts: whole.split('.').collect() };
        let few = || format!("`{whole}` with {} operands", ops.len());
        let op = |i: usize| ops.get(i).map(String::as_str).ok_or_else(few);
        match name.parts[0] {
            "ret" | "exit" => Ok(Action::End),
            "call" => match ops {
                [_, function, args] if function == "vprintf" => {
                    let inner = args.trim_start_matches('(').trim_end_matches(')');
                    let (format, values) = inner.split_once(',').ok_or_else(few)?;
                    let (format, values) = (self.arg(format.trim())?, self.arg(values.trim())?);
                    Ok(Action::Print { format, values })
                }
                _ => Err(name.unknown()),
            },
            "trap" => Ok(Action::Trap),
            "nanosleep" | "prefetch" | "setmaxnreg" | "griddepcontrol" | "createpolicy"
            | "discard" | "applypriority" => Ok(Action::Nothing),
            "mov" => self.moves(&name, ops),
            "ld" | "st" => self.access(&name, ops),
            "atom" | "red" => self.atomic(&name, ops),
            "bar" | "barrier" => self.barrier(&name, ops),
            "shfl" => self.shuffle(&name, ops),
            "vote" => self.vote(&name, ops),
            "elect" => {
                let to = op(0)?.split_once('|').map_or(op(0)?, |(_, to)| to);
                Ok(Action::Elect { to: self.to(to.trim())? })
            }
            "redux" => {
                let what = plain_alu(name.parts[2]).ok_or_else(|| name.unknown())?;
                let (to, from) = (self.to(op(0)?)?, self.arg(op(1)?)?);
                Ok(Action::WarpReduce { what, ty: name.ty()?, to, from })
            }
            "fence" | "membar" => Ok(Action::Fence(match () {
                () if name.has("proxy") => Fence::Proxy,
                () if name.has("mbarrier_init") => Fence::BarrierInit,
                () => Fence::Threads,
            })),
            "cp" => self.copy(&name, ops),
            "mbarrier" => self.on_barrier(&name, ops),
            "mapa" => {
                let (to, address, rank) = (self.to(op(0)?)?, self.arg(op(1)?)?, self.arg(op(2)?)?);
                Ok(Action::MapRank { to, address, rank })
            }
            "ldmatrix" => {
                let to = parts(op(0)?).iter().map(|to| self.to(to)).collect::<Result<_, _>>()?;
                Ok(Action::LoadMatrix { to, at: self.addr(op(1)?)?, transposed: name.has("trans") })
            }
            "stmatrix" => {
                let at = self.addr(op(0)?)?;
                Ok(Action::StoreMatrix {
                    from: self.all(op(1)?)?,
                    at,
                    transposed: name.has("trans"),
                })
            }
            "mma" => self.warp_product(&name, ops),
            "wgmma" => self.group_product(&name, ops),
            // Right here, and not after ptxas: `codegen/nvptx/integers.rs`.
            "abs" if matches!(name.ty()?, Ty::S(_)) => Err(wrong_after_ptxas(whole)),
            "neg" if name.ty()? == Ty::S(16) => Err(wrong_after_ptxas(whole)),
            _ => self.alu(&name, ops),
        }
    }

    fn shuffle(&mut self, name: &Name<'_>, ops: &[String]) -> Result<Action, Wrong> {
        let [to, from, by, clamp, ..] = ops else { return Err(name.unknown()) };
        let how = match () {
            () if name.has("bfly") => Shuffle::Xor,
            () if name.has("idx") => Shuffle::Index,
            () if name.has("up") => Shuffle::Up,
            () => Shuffle::Down,
        };
        let (to, valid) = match to.split_once('|') {
            Some((to, valid)) => (self.to(to.trim())?, Some(self.to(valid.trim())?)),
            None => (self.to(to)?, None),
        };
        let [from, by, clamp] = [self.arg(from)?, self.arg(by)?, self.arg(clamp)?];
        Ok(Action::Shuffle { how, to, valid, from, by, clamp })
    }

    fn vote(&mut self, name: &Name<'_>, ops: &[String]) -> Result<Action, Wrong> {
        let [to, from, ..] = ops else { return Err(name.unknown()) };
        let how = match () {
            () if name.has("ballot") => Vote::Ballot,
            () if name.has("any") => Vote::Any,
            () if name.has("all") => Vote::All,
            () => return Err(name.unknown()),
        };
        let (from, negated) = match from.strip_prefix('!') {
            Some(from) => (from, true),
            None => (from.as_str(), false),
        };
        Ok(Action::Vote { how, to: self.to(to)?, from: self.arg(from)?, negated })
    }

    fn all(&mut self, text: &str) -> Result<Vec<Arg>, Wrong> {
        parts(text).iter().map(|part| self.arg(part)).collect()
    }

    fn moves(&mut self, name: &Name<'_>, ops: &[String]) -> Result<Action, Wrong> {
        let [to, from] = ops else { return Err(name.unknown()) };
        let bits = name.ty()?.bits();
        if to.starts_with('{') {
            let to = parts(to).iter().map(|to| self.target(to)).collect::<Result<_, _>>()?;
            return Ok(Action::Unpack { to, from: self.arg(from)?, bits });
        }
        let to = self.to(to)?;
        if from.starts_with('{') {
            return Ok(Action::Pack { to, parts: self.all(from)?, bits });
        }
        if let Some(what) = special(from) {
            return Ok(Action::Special { to, what });
        }
        let args = [self.arg(from)?, NONE, NONE];
        Ok(Action::Alu { what: Alu::Mov, ty: name.ty()?, to, args })
    }

    fn access(&mut self, name: &Name<'_>, ops: &[String]) -> Result<Action, Wrong> {
        let [first, second, rest @ ..] = ops else { return Err(name.unknown()) };
        let (space, ty) = (name.space(), name.ty()?);
        if name.has("async") {
            let barrier = rest.first().ok_or_else(|| name.unknown())?;
            let (at, barrier) = (self.addr(first)?, self.addr(barrier)?);
            return Ok(Action::Send { ty, from: self.all(second)?, at, barrier });
        }
        if name.parts[0] == "ld" {
            let to = parts(first).iter().map(|to| self.target(to)).collect::<Result<_, _>>()?;
            return Ok(Action::Load { space, ty, to, at: self.addr(second)? });
        }
        // What is handed to a function is in a register here.
        let inner = first.trim_start_matches('[').trim_end_matches(']');
        if space == Space::Param && self.is_register(inner) {
            let args = [self.arg(second)?, NONE, NONE];
            return Ok(Action::Alu { what: Alu::Mov, ty, to: self.to(inner)?, args });
        }
        let at = self.addr(first)?;
        Ok(Action::Store { space, ty, from: self.all(second)?, at })
    }

    fn atomic(&mut self, name: &Name<'_>, ops: &[String]) -> Result<Action, Wrong> {
        let gives = name.parts[0] == "atom";
        let what = name.parts.iter().find_map(|part| match *part {
            "exch" => Some(Rmw::Exchange),
            "cas" => Some(Rmw::CompareSwap),
            "add" | "min" | "max" | "and" | "or" | "xor" => plain_alu(part).map(Rmw::Do),
            _ => None,
        });
        let what = what.ok_or_else(|| name.unknown())?;
        let first = usize::from(gives);
        let (Some(at), Some(rest)) = (ops.get(first), ops.get(first + 1..)) else {
            return Err(name.unknown());
        };
        let to = if gives { self.target(&ops[0])? } else { None };
        let args = rest.iter().map(|args| self.all(args)).collect::<Result<Vec<_>, _>>()?.concat();
        let at = self.addr(at)?;
        let (space, ty) = (name.space(), name.ty()?);
        Ok(Action::Atomic(Atomic { what, space, ty, to, at, args }))
    }

    fn barrier(&mut self, name: &Name<'_>, ops: &[String]) -> Result<Action, Wrong> {
        match () {
            () if name.has("warp") => Ok(Action::WarpBarrier),
            () if name.has("cluster") && name.has("arrive") => {
                Ok(Action::ClusterArrive { relaxed: name.has("relaxed") })
            }
            () if name.has("cluster") && name.has("wait") => Ok(Action::ClusterWait),
            () if name.has("sync") || name.has("arrive") => {
                let number = self.arg(ops.first().ok_or_else(|| name.unknown())?)?;
                let threads = ops.get(1).map(|text| self.arg(text)).transpose()?;
                Ok(Action::Barrier { number, threads, waits: name.has("sync") })
            }
            () => Err(name.unknown()),
        }
    }

    fn on_barrier(&mut self, name: &Name<'_>, ops: &[String]) -> Result<Action, Wrong> {
        let find = |text: &&String| text.starts_with('[');
        let at = ops.iter().find(find).ok_or_else(|| name.unknown())?.clone();
        let at_position = ops.iter().position(|op| *op == at).unwrap_or(0);
        let at = self.addr(&at)?;
        let rest: Vec<Arg> =
            ops[at_position + 1..].iter().map(|op| self.arg(op)).collect::<Result<_, _>>()?;
        let first = rest.first().copied();
        let needed = || first.ok_or_else(|| name.unknown());
        let what = match name.parts[1] {
            "init" => OnBarrier::Init { count: needed()? },
            "inval" => OnBarrier::Invalidate,
            "arrive" => {
                let state = match at_position {
                    0 => None,
                    _ => self.target(&ops[0])?,
                };
                let bytes = if name.has("expect_tx") { Some(needed()?) } else { None };
                let count = if bytes.is_some() { None } else { first };
                OnBarrier::Arrive { state, count: count.unwrap_or(Arg::Imm(1)), bytes }
            }
            "expect_tx" => OnBarrier::ExpectBytes { bytes: needed()? },
            "try_wait" | "test_wait" if name.has("parity") => {
                let (over, waits) = (self.to(&ops[0])?, name.parts[1] == "try_wait");
                OnBarrier::Test { over, parity: needed()?, waits }
            }
            _ => return Err(name.unknown()),
        };
        Ok(Action::OnBarrier { what, at })
    }

    fn copy(&mut self, name: &Name<'_>, ops: &[String]) -> Result<Action, Wrong> {
        let number = |text: Option<&String>| {
            text.and_then(|text| text.parse().ok()).ok_or_else(|| name.unknown())
        };
        match () {
            () if name.has("bulk") && name.has("commit_group") => Ok(Action::BulkCommit),
            () if name.has("bulk") && name.has("wait_group") => {
                Ok(Action::BulkWait { pending: number(ops.first())? })
            }
            () if name.has("bulk") && name.has("tensor") && name.parts[1] != "async" => {
                Err(name.unknown())
            }
            () if name.has("prefetch") => Ok(Action::Nothing),
            () if name.has("bulk") && name.has("tensor") => self.tensor_copy(name, ops),
            () if name.has("bulk") => Err(name.unknown()),
            () if name.has("commit_group") => Ok(Action::CopyCommit),
            () if name.has("wait_group") => {
                Ok(Action::CopyWait { pending: Some(number(ops.first())?) })
            }
            () if name.has("wait_all") => Ok(Action::CopyWait { pending: None }),
            () if name.has("ca") || name.has("cg") => {
                let [to, from, _, rest @ ..] = ops else { return Err(name.unknown()) };
                let (to, from) = (self.addr(to)?, self.addr(from)?);
                let taken = rest.first().map(|text| self.arg(text)).transpose()?;
                Ok(Action::Copy { to, from, bytes: number(ops.get(2))?, taken })
            }
            () => Err(name.unknown()),
        }
    }

    /// `[shared], [map, {coordinates}], [barrier], mask` or `[map, {coordinates}], [shared]`.
    fn tensor_copy(&mut self, name: &Name<'_>, ops: &[String]) -> Result<Action, Wrong> {
        let [first, second, rest @ ..] = ops else { return Err(name.unknown()) };
        let loads = !second.starts_with('[') || second.contains('{');
        let (shared, tensor) = if loads { (first, second) } else { (second, first) };
        let inner = tensor.trim_start_matches('[').trim_end_matches(']');
        let (map, coordinates) = inner.split_once(',').ok_or_else(|| name.unknown())?;
        let coordinates = self.all(coordinates.trim())?;
        let map = self.plain_addr(map.trim())?;
        let barrier = match rest.first() {
            Some(text) if loads => Some(self.addr(text)?),
            _ => None,
        };
        let multicast = match rest.get(1) {
            Some(text) if name.has("multicast::cluster") => Some(self.arg(text)?),
            _ => None,
        };
        let shared = self.addr(shared)?;
        let adds = name.parts[1] == "reduce";
        Ok(Action::TensorCopy(Box::new(TensorCopy {
            shared,
            map,
            coordinates,
            barrier,
            multicast,
            adds,
        })))
    }

    fn warp_product(&mut self, name: &Name<'_>, ops: &[String]) -> Result<Action, Wrong> {
        let [to, a, b, before] = ops else { return Err(name.unknown()) };
        let (types, sum) = elements(name)?;
        let sums: Vec<Reg> = parts(to).iter().map(|to| self.to(to)).collect::<Result<_, _>>()?;
        Ok(Action::WarpProduct(Box::new(Product {
            columns: name.extent('n')?,
            depth: name.extent('k')?,
            types,
            sum,
            sums,
            before: self.all(before)?,
            a: self.all(a)?,
            b: self.all(b)?,
            adds: None,
            negates: [false; 2],
            transposed: [false; 2],
        })))
    }

    fn group_product(&mut self, name: &Name<'_>, ops: &[String]) -> Result<Action, Wrong> {
        match name.parts[1] {
            "fence" => return Ok(Action::Nothing),
            "commit_group" => return Ok(Action::ProductCommit),
            "wait_group" => {
                let pending = ops.first().and_then(|text| text.parse().ok());
                return Ok(Action::ProductWait { pending: pending.ok_or_else(|| name.unknown())? });
            }
            "mma_async" => {}
            _ => return Err(name.unknown()),
        }
        let [to, a, b, adds, negates @ ..] = ops else { return Err(name.unknown()) };
        let sums: Vec<Reg> = parts(to).iter().map(|to| self.to(to)).collect::<Result<_, _>>()?;
        let flag = |i: usize, what: &str| negates.get(i).is_some_and(|text| text == what);
        let in_registers = a.starts_with('{');
        let (types, sum) = elements(name)?;
        let transposed = match in_registers {
            true => [false, flag(2, "1")],
            false => [flag(2, "1"), flag(3, "1")],
        };
        Ok(Action::GroupProduct(Box::new(Product {
            columns: name.extent('n')?,
            depth: name.extent('k')?,
            types,
            sum,
            before: sums.iter().map(|&reg| Arg::Reg(reg)).collect(),
            sums,
            a: self.all(a)?,
            b: self.all(b)?,
            adds: Some(self.arg(adds)?),
            negates: [flag(0, "-1"), flag(1, "-1")],
            transposed,
        })))
    }

    fn alu(&mut self, name: &Name<'_>, ops: &[String]) -> Result<Action, Wrong> {
        let types = name.types();
        let mut ty = name.ty()?;
        let base = name.parts[0];
        let what = match base {
            "setp" => Alu::Compare(compare(name.parts[1]).ok_or_else(|| name.unknown())?),
            "selp" => Alu::Select,
            "mul" if name.has("wide") => Alu::MulWide,
            "mul" if name.has("hi") => Alu::MulHigh,
            "mad" if name.has("wide") => Alu::MadWide,
            "mad" if name.has("hi") => return Err(name.unknown()),
            "min" => Alu::Min { nan: name.has("NaN") },
            "max" => Alu::Max { nan: name.has("NaN") },
            "shf" if name.has("l") => Alu::FunnelLeft,
            "shf" => Alu::FunnelRight,
            "cvt" => {
                let [to, from] = types[..] else { return Err(name.unknown()) };
                ty = to;
                let saturate = name.has("sat") || name.has("satfinite");
                match to {
                    Ty::F16x2 | Ty::Bf16x2 | Ty::E4m3x2 | Ty::E5m2x2 if from == Ty::F32 => {
                        Alu::ConvertPair { saturate }
                    }
                    _ => Alu::Convert { from, round: round(name), saturate },
                }
            }
            "cvta" => Alu::Mov,
            "rcp" if ty == Ty::F32 && name.has("ftz") => Alu::RcpFlush,
            "ex2" if ty == Ty::F32 && name.has("ftz") => Alu::Ex2Flush,
            _ => plain_alu(base).ok_or_else(|| name.unknown())?,
        };
        let Some((to, rest)) = ops.split_first() else { return Err(name.unknown()) };
        let to = self.to(to)?;
        if base == "cvta" {
            return self.generic(name, to, rest);
        }
        let mut args = [NONE; 3];
        for (arg, text) in args.iter_mut().zip(rest) {
            *arg = self.arg(text)?;
        }
        let what = match (what, rest.get(3)) {
            (Alu::Logic(_), Some(table)) => {
                Alu::Logic(super::number(table).ok_or_else(|| name.unknown())? as u8)
            }
            (what, None) => what,
            _ => return Err(name.unknown()),
        };
        Ok(Action::Alu { what, ty, to, args })
    }

    /// Between generic addresses and those of a space: only shared memory's differ.
    fn generic(&mut self, name: &Name<'_>, to: Reg, ops: &[String]) -> Result<Action, Wrong> {
        let from = self.arg(ops.first().ok_or_else(|| name.unknown())?)?;
        let base = match name.space() {
            Space::Shared => super::super::program::SHARED_BASE,
            _ => 0,
        };
        let what = if name.has("to") { Alu::Sub } else { Alu::Add };
        Ok(Action::Alu { what, ty: Ty::U(64), to, args: [from, Arg::Imm(base), NONE] })
    }
}

fn plain_alu(name: &str) -> Option<Alu> {
    Some(match name {
        "add" => Alu::Add,
        "sub" => Alu::Sub,
        "mul" => Alu::Mul,
        "mad" | "fma" => Alu::Fma,
        "div" => Alu::Div,
        "rem" => Alu::Rem,
        "min" => Alu::Min { nan: false },
        "max" => Alu::Max { nan: false },
        "abs" => Alu::Abs,
        "neg" => Alu::Neg,
        "and" => Alu::And,
        "or" => Alu::Or,
        "xor" => Alu::Xor,
        "not" => Alu::Not,
        "shl" => Alu::Shl,
        "shr" => Alu::Shr,
        "sqrt" => Alu::Sqrt,
        "rsqrt" => Alu::Rsqrt,
        "rcp" => Alu::Rcp,
        "ex2" => Alu::Ex2,
        "lg2" => Alu::Lg2,
        "tanh" => Alu::Tanh,
        "sin" => Alu::Sin,
        "cos" => Alu::Cos,
        "copysign" => Alu::CopySign,
        "prmt" => Alu::Permute,
        "bfe" => Alu::BitField,
        "popc" => Alu::Population,
        "clz" => Alu::LeadingZeros,
        "brev" => Alu::Reverse,
        "lop3" => Alu::Logic(0),
        _ => return None,
    })
}

fn compare(name: &str) -> Option<Compare> {
    let or_nan = name.len() == 3 && name.ends_with('u') && name != "num";
    // `lo`, `ls`, `hi`, `hs` compare unsigned integers.
    Some(match name.trim_end_matches('u') {
        "eq" => Compare::Eq { or_nan },
        "ne" => Compare::Ne { or_nan },
        "lt" | "lo" => Compare::Lt { or_nan },
        "le" | "ls" => Compare::Le { or_nan },
        "gt" | "hi" => Compare::Gt { or_nan },
        "ge" | "hs" => Compare::Ge { or_nan },
        "num" => Compare::Num,
        "nan" => Compare::Nan,
        _ => return None,
    })
}

fn round(name: &Name<'_>) -> Round {
    let found = name.parts.iter().find_map(|part| {
        Some(match *part {
            "rn" => Round::Nearest,
            "rz" => Round::Zero,
            "rm" => Round::Down,
            "rp" => Round::Up,
            "rna" => Round::Away,
            "rni" => Round::NearestInt,
            "rzi" => Round::ZeroInt,
            "rmi" => Round::DownInt,
            "rpi" => Round::UpInt,
            _ => return None,
        })
    });
    found.unwrap_or(Round::Nearest)
}

/// The types of a product's operands; its sums are f32.
fn elements(name: &Name<'_>) -> Result<([Element; 2], Sum), Wrong> {
    // Sums and factors of f64 are named alike.
    if name.parts.iter().filter(|part| **part == "f64").count() == 4 {
        return Ok(([Element::F64; 2], Sum::F64));
    }
    let found: Vec<Element> = name
        .parts
        .iter()
        .filter_map(|part| {
            Some(match *part {
                "f16" => Element::F16,
                "bf16" => Element::Bf16,
                "tf32" => Element::Tf32,
                "e4m3" => Element::E4m3,
                "e5m2" => Element::E5m2,
                "s8" => Element::S8,
                "u8" => Element::U8,
                _ => return None,
            })
        })
        .collect();
    let types: [Element; 2] = found[..].try_into().map_err(|_| name.unknown())?;
    let of_bytes = types.map(|ty| matches!(ty, Element::S8 | Element::U8));
    match of_bytes {
        [true, true] if name.has("s32") => Ok((types, Sum::S32)),
        [false, false] if name.has("f32") => Ok((types, Sum::F32)),
        _ => Err(name.unknown()),
    }
}

fn special(name: &str) -> Option<Special> {
    let (name, axis) = match name.strip_prefix('%')?.split_once('.') {
        Some((name, axis)) => (name, ["x", "y", "z"].iter().position(|a| *a == axis)? as u8),
        None => (name.strip_prefix('%')?, 0),
    };
    Some(match name {
        "tid" => Special::Thread(axis),
        "ntid" => Special::Threads(axis),
        "ctaid" => Special::Block(axis),
        "nctaid" => Special::Blocks(axis),
        "clusterid" => Special::Cluster(axis),
        "nclusterid" => Special::Clusters(axis),
        "cluster_ctaid" => Special::ClusterBlock(axis),
        "cluster_nctaid" => Special::ClusterBlocks(axis),
        "cluster_ctarank" => Special::ClusterRank,
        "cluster_nctarank" => Special::ClusterSize,
        "laneid" => Special::Lane,
        "clock" | "clock64" | "globaltimer" | "smid" => Special::Zero,
        _ => return None,
    })
}

/// Why an instruction is refused that means another thing once it is assembled.
fn wrong_after_ptxas(inst: &str) -> Wrong {
    format!("ptxas gets `{inst}` wrong")
}
