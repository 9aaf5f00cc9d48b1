//! Memory that stays as it is while a kernel runs.
//!
//! A parameter that is a `Ptr` or a `View` promises it ([`ParamAttrs::readonly`](crate::ir::ParamAttrs)):
//! nothing writes to what is behind it during the launch, by whatever name. So a load of it gives the
//! same at any time and to any thread, and may be done again elsewhere.

use crate::ir::{Def, Func, OpKind, Value};

/// Whether pointers come from a parameter that nobody writes while the kernel runs.
pub fn is_constant(func: &Func, ptr: Value) -> bool {
    let base = base(func, ptr);
    func.params.iter().any(|param| Some(param.value) == base && param.attrs.readonly)
}

/// The parameter that a pointer is derived from.
pub fn base(func: &Func, pointer: Value) -> Option<Value> {
    let op = match func.value(pointer).def {
        Def::Argument(region, _) => return (region == func.body).then_some(pointer),
        Def::Result(op, _) => op,
    };
    let data = func.op(op);
    match data.kind {
        OpKind::PtrAdd | OpKind::MultipleOf(_) | OpKind::ViewPtr => base(func, data.operands[0]),
        _ if data.kind.is_view() => base(func, data.operands[0]),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::is_constant;
    use crate::ir::parse;

    #[test]
    fn pointers_are_followed_to_their_parameter() {
        let text = |attrs: &str| {
            format!(
                "kernel k(%p: *i64 {attrs}, %q: *i64, %n: i64) {{
  %0 = ptr_add %p, %n : *i64
  %1 = ptr_add %0, %n : *i64
  %2 = load %1 : i64
  store %q, %2
  return
}}"
            )
        };
        let holds = |attrs: &str| {
            let func = parse(&text(attrs)).expect("the test's text is tile IR");
            let addresses = func.walk().into_iter().filter_map(|op| func.op(op).results.first());
            let found: Vec<bool> = addresses.map(|&value| is_constant(&func, value)).collect();
            found[1]
        };
        assert!(holds("readonly"));
        assert!(!holds("exclusive"));
    }
}
