//! What ops mean and what is reported, on small texts.

use super::{InterpArg, InterpErrorKind, Interpreter, run_func};
use crate::ir::{ArgValue, DType, Func, Scalar, parse};

fn parsed(text: &str) -> Func {
    parse(text).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

fn i32s(values: &[i32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

fn to_i32s(bytes: &[u8]) -> Vec<i32> {
    bytes.chunks(4).map(|c| i32::from_le_bytes(c.try_into().unwrap())).collect()
}

fn f32s(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

fn to_f32s(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks(4).map(|c| f32::from_le_bytes(c.try_into().unwrap())).collect()
}

fn int(value: i64) -> InterpArg {
    InterpArg::Scalar(Scalar::int(DType::I64, value))
}

/// A kernel over `out: *i32` with `body`, run on a grid; what `out` holds afterwards.
fn run_on(grid: [u32; 3], out: &[i32], body: &str) -> Result<Vec<i32>, String> {
    let func = parsed(&format!("kernel k(%out: *i32) {{\n{body}\nreturn\n}}"));
    let args = vec![InterpArg::BufferMut(DType::I32, i32s(out))];
    let after = run_func(&func, grid, args).map_err(|e| e.to_string())?;
    Ok(to_i32s(&after[0]))
}

fn run(out: &[i32], body: &str) -> Result<Vec<i32>, String> {
    run_on([1, 1, 1], out, body)
}

/// Stores `%v`, a tile of i32, to `out`.
fn shown(n: usize, body: &str) -> Vec<i32> {
    let store = format!(
        "{body}\n%i = iota : i64[{n}]\n%b = broadcast %out : *i32[{n}]
        %p = ptr_add %b, %i : *i32[{n}]\nstore %p, %v"
    );
    run(&vec![-1; n], &store).unwrap()
}

const MASKED_COPY: &str = "kernel copy(%x: *f32 readonly, %y: *f32, %n: i64) {
  %0 = program_id 0 : i64
  %1 = const 4 : i64
  %2 = mul %0, %1 : i64
  %3 = iota : i64[4]
  %4 = broadcast %2 : i64[4]
  %5 = add %4, %3 : i64[4]
  %6 = broadcast %n : i64[4]
  %7 = cmp lt %5, %6 : bool[4]
  %8 = broadcast %x : *f32[4]
  %9 = ptr_add %8, %5 : *f32[4]
  %10 = load %9, %7 : f32[4]
  %11 = broadcast %y : *f32[4]
  %12 = ptr_add %11, %5 : *f32[4]
  store %12, %10, %7
  return
}";

#[test]
fn masked_lanes_touch_no_memory() {
    let data = f32s(&[1.0, 2.0, 3.0, 4.0, 5.0]);
    let args = vec![
        InterpArg::Buffer(DType::F32, data.clone()),
        InterpArg::BufferMut(DType::F32, vec![0; 20]),
        int(5),
    ];
    let after = run_func(&parsed(MASKED_COPY), [2, 1, 1], args).unwrap();
    assert_eq!(after[1], data);
}

#[test]
fn reports_an_index_out_of_bounds() {
    let args = vec![
        InterpArg::Buffer(DType::F32, vec![0; 20]),
        InterpArg::BufferMut(DType::F32, vec![0; 20]),
        int(6),
    ];
    let error = run_func(&parsed(MASKED_COPY), [2, 1, 1], args).unwrap_err();
    let kind = InterpErrorKind::OutOfBounds { buffer: Some("x".to_owned()), index: 5, extent: 5 };
    assert_eq!((error.kind.clone(), error.program), (kind, Some([1, 0, 0])));
    let message = "`load` in program [1, 0, 0]: index 5 is outside `x`, which has 5 elements";
    assert_eq!(error.to_string(), message);
}

#[test]
fn reports_a_negative_index_and_a_wild_address() {
    let error = run(&[0], "%0 = const -3 : i64\n%1 = ptr_add %out, %0 : *i32\n%2 = load %1 : i32");
    let expected = "`load` in program [0, 0, 0]: index -3 is outside `out`, which has 1 elements";
    assert_eq!(error.unwrap_err(), expected);
    let far = "%0 = const -1000000000000 : i64\n%1 = ptr_add %out, %0 : *i32\n%2 = load %1 : i32";
    assert!(run(&[0], far).unwrap_err().contains("is in no buffer"));
}

#[test]
fn reports_misaligned_access() {
    let func = parsed("kernel k(%p: *i32) {\n%0 = load %p : i32\nreturn\n}");
    let mut interpreter = Interpreter::new(&func);
    let ptr = interpreter.add_buffer("bytes", DType::U8, vec![0; 16], true);
    interpreter.run([1, 1, 1], &[ArgValue::Ptr(ptr + 4)]).unwrap();
    let error = interpreter.run([1, 1, 1], &[ArgValue::Ptr(ptr + 2)]).unwrap_err();
    assert!(error.to_string().ends_with("2 bytes into `bytes` there is no aligned i32"), "{error}");
}

#[test]
fn reports_reads_of_what_was_never_written() {
    let func = parsed(
        "kernel k(%p: *i32) {\n%0 = const 7 : i32\nstore %p, %0\n%1 = load %p : i32
        %2 = const 1 : i64\n%3 = ptr_add %p, %2 : *i32\n%4 = load %3 : i32\nreturn\n}",
    );
    let mut interpreter = Interpreter::new(&func);
    let ptr = interpreter.add_buffer("p", DType::I32, vec![0; 8], true);
    interpreter.mark_uninitialised(ptr);
    let error = interpreter.run([1, 1, 1], &[ArgValue::Ptr(ptr)]).unwrap_err();
    assert_eq!(error.kind, InterpErrorKind::Uninitialised { buffer: "p".to_owned(), index: 1 });
}

#[test]
fn reports_writes_to_read_only_memory() {
    let func = parsed("kernel k(%p: *i32, %x: i32) {\nstore %p, %x\nreturn\n}");
    let x = InterpArg::Scalar(Scalar::int(DType::I32, 1));
    let args = vec![InterpArg::Buffer(DType::I32, vec![0; 4]), x];
    let error = run_func(&func, [1, 1, 1], args).unwrap_err();
    assert_eq!(error.kind, InterpErrorKind::ReadOnly { buffer: "p".to_owned(), index: 0 });
}

#[test]
fn reports_races_between_programs() {
    let write = "%0 = const 7 : i32\nstore %out, %0";
    assert!(run_on([1, 1, 1], &[0], write).is_ok());
    let error = run_on([2, 1, 1], &[0], write).unwrap_err();
    let race = "a race: index 0 of `out` is also written by another program";
    assert_eq!(error, format!("`store` in program [1, 0, 0]: {race}"));

    let id = "%0 = program_id 0 : i64\n%1 = ptr_add %out, %0 : *i32\n%2 = const 7 : i32\n";
    let read_then_write = format!("{id}%3 = load %out : i32\nstore %1, %2");
    let error = run_on([2, 1, 1], &[0, 0], &read_then_write).unwrap_err();
    assert!(error.ends_with("index 0 of `out` is also written by another program"), "{error}");
    let write_what_was_read = "%0 = program_id 0 : i64\n%1 = const 1 : i64\n%2 = sub %1, %0 : i64
        %3 = ptr_add %out, %2 : *i32\n%4 = load %3 : i32\n%5 = ptr_add %out, %0 : *i32\nstore %5, %4";
    let error = run_on([2, 1, 1], &[0, 0], write_what_was_read).unwrap_err();
    assert!(error.contains("is also written by another program"), "{error}");
}

#[test]
fn atomics_of_several_programs_are_no_race() {
    let add = "%0 = const 3 : i32\n%1 = atomic_rmw add %out, %0 : i32";
    assert_eq!(run_on([5, 1, 1], &[1], add).unwrap(), [16]);
    let and_read = format!("{add}\n%2 = load %out : i32");
    let error = run_on([2, 1, 1], &[1], &and_read).unwrap_err();
    assert!(error.ends_with("also read by another program"), "{error}");
}

#[test]
fn an_atomic_whose_old_value_is_used_orders_programs() {
    let body = "%0 = program_id 0 : i64\n%one = const 1 : i64\n%i = add %0, %one : i64
        %own = ptr_add %out, %i : *i32\n%v = const 7 : i32\nstore %own, %v
        %step = const 1 : i32\n%old = atomic_rmw add %out, %step : i32
        %two = const 2 : i32\n%last = cmp eq %old, %two : bool
        if %last {\n%first = ptr_add %out, %one : *i32\n%x = load %first : i32
        store %own, %x\nyield\n} else {\nyield\n}";
    assert_eq!(run_on([3, 1, 1], &[0, 0, 0, 0], body).unwrap(), [3, 7, 7, 7]);
}

/// Each program stores, then adds to a counter by `atomic`, and the last one reads what all stored.
fn handed_on(atomic: &str) -> Result<Vec<i32>, String> {
    let body = format!(
        "%0 = program_id 0 : i64\n%one = const 1 : i64\n%i = add %0, %one : i64
        %own = ptr_add %out, %i : *i32\n%v = const 7 : i32\nstore %own, %v
        %step = const 1 : i32\n%old = atomic_rmw add {atomic} %out, %step : i32
        %two = const 2 : i32\n%last = cmp eq %old, %two : bool
        if %last {{\n%first = ptr_add %out, %one : *i32\n%x = load %first : i32
        store %own, %x\nyield\n}} else {{\nyield\n}}"
    );
    run_on([3, 1, 1], &[0, 0, 0, 0], &body)
}

#[test]
fn an_atomic_orders_what_it_is_asked_to() {
    assert_eq!(handed_on("acq_rel").unwrap(), [3, 7, 7, 7]);
    assert_eq!(handed_on("acq_rel system").unwrap(), [3, 7, 7, 7]);
    for weaker in ["relaxed", "acquire", "release", "acq_rel block", "cluster"] {
        let error = handed_on(weaker).unwrap_err();
        assert!(error.ends_with("also written by another program"), "{weaker}: {error}");
    }
}

#[test]
fn atomics_give_the_old_value_lane_by_lane() {
    let body = "%0 = const 2 : i32\n%1 = broadcast %0 : i32[3]\n%2 = broadcast %out : *i32[3]
        %v = atomic_rmw add %2, %1 : i32[3]\n%i = iota : i64[3]\n%3 = const 1 : i64
        %4 = ptr_add %out, %3 : *i32\n%b = broadcast %4 : *i32[3]\n%p = ptr_add %b, %i : *i32[3]
        store %p, %v";
    assert_eq!(run(&[10, 0, 0, 0], body).unwrap(), [16, 10, 12, 14]);
}

#[test]
fn compare_and_swap_writes_only_on_a_match() {
    let body = "%0 = const 5 : i32\n%1 = const 9 : i32\n%2 = atomic_cas %out, %0, %1 : i32
        %3 = atomic_cas %out, %0, %0 : i32\n%4 = const 1 : i64\n%5 = ptr_add %out, %4 : *i32
        store %5, %3";
    assert_eq!(run(&[5, 0], body).unwrap(), [9, 9]);
}

#[test]
fn an_endless_loop_ends() {
    let body = "%0 = const true : bool\nwhile { yield %0 } do () { yield }";
    let func = parsed(&format!("kernel k() {{\n{body}\nreturn\n}}"));
    let mut interpreter = Interpreter::new(&func);
    interpreter.set_fuel(1000);
    let error = interpreter.run([1, 1, 1], &[]).unwrap_err();
    assert_eq!(error.kind, InterpErrorKind::Fuel { ops: 1000 });
    assert!(error.to_string().ends_with("does not seem to end: it ran 1000 ops"), "{error}");
}

#[test]
fn each_program_may_run_as_many_ops() {
    let body = "%0 = const 0 : i64\n%1 = const 100 : i64\n%2 = const 1 : i64
        for %3 = %0 to %1 step %2 { yield }";
    let func = parsed(&format!("kernel k() {{\n{body}\nreturn\n}}"));
    let mut interpreter = Interpreter::new(&func);
    interpreter.set_fuel(110);
    interpreter.run([50, 1, 1], &[]).unwrap();
}

#[test]
fn reports_lanes_of_one_store_that_write_different_values() {
    // Lanes 0..4 write to elements 0, 0, 1, 1.
    let halves = "%i = iota : i64[4]\n%0 = const 2 : i64\n%1 = broadcast %0 : i64[4]
        %half = div %i, %1 : i64[4]\n%b = broadcast %out : *i32[4]
        %p = ptr_add %b, %half : *i32[4]\n";
    let stored = |value: &str, mask: &str| {
        run(&[0, 0], &format!("{halves}%x = cast {value} : i32[4]\nstore %p, %x{mask}"))
    };
    let race = "a race: two lanes of this store write different values to index 0 of `out`";
    assert_eq!(stored("%i", "").unwrap_err(), format!("`store` in program [0, 0, 0]: {race}"));
    assert_eq!(stored("%half", "").unwrap(), [0, 1], "equal values are fine");
    // Only even lanes write.
    let even = "%r = rem %i, %1 : i64[4]\n%z = const 0 : i64\n%zz = broadcast %z : i64[4]
        %m = cmp eq %r, %zz : bool[4]\n";
    let masked = format!("{halves}{even}%x = cast %i : i32[4]\nstore %p, %x, %m");
    assert_eq!(run(&[0, 0], &masked).unwrap(), [0, 2]);
    // Two stores, one after the other.
    let twice = format!(
        "{halves}{even}%x = cast %half : i32[4]\nstore %p, %x, %m
        %y = cast %i : i32[4]\nstore %p, %y, %m"
    );
    assert_eq!(run(&[9, 9], &twice).unwrap(), [0, 2]);
    // Atomics have no such lanes.
    let atomic = format!("{halves}%x = cast %i : i32[4]\n%o = atomic_rmw exchange %p, %x : i32[4]");
    assert_eq!(run(&[0, 0], &atomic).unwrap(), [1, 3]);
}

#[test]
fn reports_lanes_that_meet_in_a_view_of_stride_zero() {
    let func = parsed(
        "kernel k(%w: view<f32,2>) {\n%0 = const 0 : i64\n%i = iota : i64[4]
        %1 = cast %i : f32[4]\n%2 = reshape %1 : f32[2x2]\nview_store %w, %2, %0, %0\nreturn\n}",
    );
    let error = run_func(&func, [1, 1, 1], vec![view(&[0.0; 2], 0, [2, 2], [0, 1])]).unwrap_err();
    assert_eq!(error.kind, InterpErrorKind::Lanes { buffer: "w".to_owned(), index: 0 });
}

#[test]
fn asserts_and_prints() {
    let func = parsed(
        "kernel k(%x: i64) {\n%0 = iota : i64[3]\nprint \"x = {}, i = {}\" %x, %0
        %1 = const 2 : i64\n%2 = cmp lt %x, %1 : bool\nassert \"x < 2\" %2\nreturn\n}",
    );
    let mut interpreter = Interpreter::new(&func);
    let of = |x| [ArgValue::Scalar(Scalar::int(DType::I64, x))];
    interpreter.run([1, 1, 1], &of(1)).unwrap();
    let error = interpreter.run([1, 1, 1], &of(2)).unwrap_err();
    assert_eq!(error.to_string(), "`assert` in program [0, 0, 0]: assertion failed: x < 2");
    assert_eq!(interpreter.prints(), ["x = 1, i = [0, 1, 2]", "x = 2, i = [0, 1, 2]"]);
}

#[test]
fn checks_arguments_and_promises() {
    let func = parsed("kernel k(%n: i64 multiple_of 16, %p: *f32 multiple_of 8) {\nreturn\n}");
    let run = |n: i64, offset: u64| {
        let mut interpreter = Interpreter::new(&func);
        let ptr = interpreter.add_buffer("p", DType::F32, vec![0; 16], true) + offset;
        let args = [ArgValue::Scalar(Scalar::int(DType::I64, n)), ArgValue::Ptr(ptr)];
        interpreter.run([1, 1, 1], &args).map_err(|e| e.to_string())
    };
    assert_eq!(run(-32, 8), Ok(()));
    assert_eq!(run(17, 0).unwrap_err(), "`n` has the value 0x11, no multiple of 16");
    assert!(run(16, 4).unwrap_err().starts_with("`p` has the address"));
    let error = run_func(&func, [1, 1, 1], vec![int(0)]).unwrap_err();
    assert_eq!(error.to_string(), "1 arguments for 2 parameters");
    let error = run_func(&func, [1, 1, 1], vec![int(0), int(0)]).unwrap_err();
    assert!(error.to_string().starts_with("`p` is *f32, the argument is Scalar"), "{error}");
}

#[test]
fn a_broken_multiple_of_is_reported() {
    let body = "%0 = iota : i64[4]\n%1 = multiple_of 2 %0 : i64[4]";
    assert!(run(&[0], body).unwrap_err().ends_with("1 is not a multiple of 2, as was promised"));
}

#[test]
fn an_invalid_function_is_an_error() {
    let func = parsed("kernel k(%n: i64) {\n%0 = sqrt %n : i64\nreturn\n}");
    let error = run_func(&func, [1, 1, 1], vec![int(0)]).unwrap_err();
    assert!(matches!(error.kind, InterpErrorKind::Invalid(_)));
}

#[test]
fn loops_carry_values() {
    let body = "%0 = const 0 : i64\n%1 = const 5 : i64\n%2 = const 2 : i64\n%3 = const 1 : i32
        %4, %5 = for %6 = %0 to %1 step %2 carry (%7 = %3, %8 = %3) {
          %9 = add %7, %8 : i32\nyield %9, %7\n} : i32, i32
        %10 = join %4, %5 : i32[2]\n%v = reshape %10 : i32[2]";
    // Three iterations of (a, b) = (a + b, a) from (1, 1).
    assert_eq!(shown(2, body), [5, 3]);
}

#[test]
fn a_step_of_zero_runs_nothing() {
    let body = "%0 = const 0 : i64\n%1 = const 5 : i64\n%3 = const 1 : i32\n%2 = const 9 : i32
        %4 = for %6 = %0 to %1 step %0 carry (%7 = %3) { yield %2 } : i32
        %v = reshape %4 : i32[1]";
    assert_eq!(shown(1, body), [1]);
}

#[test]
fn while_runs_while_its_condition_yields_true() {
    let body = "%0 = const 1 : i32\n%1 = const 100 : i32
        %2 = while carry (%3 = %0) { %4 = cmp lt %3, %1 : bool yield %4 }
          do (%5) { %6 = add %5, %5 : i32 yield %6 } : i32
        %v = reshape %2 : i32[1]";
    assert_eq!(shown(1, body), [128]);
}

#[test]
fn return_ends_the_program_from_inside() {
    let body = "%0 = program_id 0 : i64\n%1 = const 1 : i64\n%2 = cmp ge %0, %1 : bool
        for %3 = %0 to %1 step %1 { yield }
        if %2 { return } else { yield }\n%4 = const 7 : i32\n%5 = ptr_add %out, %0 : *i32
        store %5, %4";
    assert_eq!(run_on([2, 1, 1], &[0, 0], body).unwrap(), [7, 0]);
}

#[test]
fn program_ids_run_axis_zero_fastest() {
    let body = "%0 = program_id 0 : i64\n%1 = program_id 1 : i64\n%2 = program_id 2 : i64
        %3 = num_programs 0 : i64\n%4 = num_programs 1 : i64\n%5 = mul %2, %4 : i64
        %6 = add %5, %1 : i64\n%7 = mul %6, %3 : i64\n%8 = add %7, %0 : i64
        %9 = ptr_add %out, %8 : *i32\n%10 = cast %8 : i32\nstore %9, %10";
    assert_eq!(run_on([2, 3, 2], &[0; 12], body).unwrap(), (0..12).collect::<Vec<_>>());
}

#[test]
fn an_empty_grid_runs_nothing() {
    assert_eq!(run_on([3, 0, 1], &[4], "%0 = const 7 : i32\nstore %out, %0").unwrap(), [4]);
}

#[test]
fn scans_from_either_end() {
    let forward = "%0 = iota : i64[5]\n%1 = cast %0 : i32[5]\n%v = scan add 0 %1 : i32[5]";
    assert_eq!(shown(5, forward), [0, 1, 3, 6, 10]);
    let reverse = "%0 = iota : i64[5]\n%1 = cast %0 : i32[5]\n%v = scan add 0 reverse %1 : i32[5]";
    assert_eq!(shown(5, reverse), [10, 10, 9, 7, 4]);
}

#[test]
fn regions_reduce_pairs() {
    // The largest of (i * 3) % 5 and where it is.
    let body = "%0 = iota : i64[5]\n%1 = cast %0 : i32[5]\n%2 = const 3 : i32\n%3 = const 5 : i32
        %4 = broadcast %2 : i32[5]\n%5 = broadcast %3 : i32[5]\n%6 = mul %1, %4 : i32[5]
        %7 = rem %6, %5 : i32[5]
        %8, %9 = reduce 0 %7, %1 by (%10: i32, %11: i32, %12: i32, %13: i32) {
          %14 = cmp gt %12, %10 : bool\n%15 = select %14, %12, %10 : i32
          %16 = select %14, %13, %11 : i32\nyield %15, %16\n} : i32, i32
        %17 = join %8, %9 : i32[2]\n%v = reshape %17 : i32[2]";
    assert_eq!(shown(2, body), [4, 3]);
}

#[test]
fn reduces_any_axis() {
    let tile = "%0 = iota : i64[6]\n%1 = cast %0 : i32[6]\n%2 = reshape %1 : i32[2x3]\n";
    assert_eq!(shown(3, &format!("{tile}%v = reduce add 0 %2 : i32[3]")), [3, 5, 7]);
    assert_eq!(shown(2, &format!("{tile}%v = reduce max 1 %2 : i32[2]")), [2, 5]);
}

fn view(data: &[f32], offset: usize, dims: [i64; 2], strides: [i64; 2]) -> InterpArg {
    let (dtype, data) = (DType::F32, f32s(data));
    let (dims, strides) = (dims.to_vec(), strides.to_vec());
    InterpArg::View { dtype, data, offset, dims, strides, writable: true }
}

#[test]
fn views_give_zero_past_the_edge_and_write_nothing_there() {
    let func = parsed(
        "kernel k(%v: view<f32,2>, %w: view<f32,2>) {\n%0 = const -1 : i64\n%1 = const 1 : i64
        %2 = view_load %v, %0, %1 : f32[2x2]\nview_store %w, %2, %0, %0\nreturn\n}",
    );
    let v = view(&[1.0, 2.0, 3.0, 4.0], 0, [2, 2], [2, 1]);
    let w = view(&[9.0; 4], 0, [2, 2], [2, 1]);
    let after = run_func(&func, [1, 1, 1], vec![v, w]).unwrap();
    // The tile is [[0, 0], [2, 0]]; its lower right corner lands on w[0, 0].
    assert_eq!(to_f32s(&after[1]), [0.0, 9.0, 9.0, 9.0]);
}

#[test]
fn views_follow_their_strides() {
    let func = parsed(
        "kernel k(%v: view<f32,2>, %out: *f32) {\n%0 = const 0 : i64
        %1 = view_load %v, %0, %0 : f32[2x3]\n%2 = reshape %1 : f32[6]\n%3 = iota : i64[6]
        %4 = broadcast %out : *f32[6]\n%5 = ptr_add %4, %3 : *f32[6]\nstore %5, %2\nreturn\n}",
    );
    let transposed = view(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0], 0, [2, 3], [1, 2]);
    let out = InterpArg::BufferMut(DType::F32, vec![0; 24]);
    let after = run_func(&func, [1, 1, 1], vec![transposed, out.clone()]).unwrap();
    assert_eq!(to_f32s(&after[1]), [0.0, 2.0, 4.0, 1.0, 3.0, 5.0]);
    let reversed = view(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0], 5, [2, 3], [-3, -1]);
    let after = run_func(&func, [1, 1, 1], vec![reversed, out]).unwrap();
    assert_eq!(to_f32s(&after[1]), [5.0, 4.0, 3.0, 2.0, 1.0, 0.0]);
}

#[test]
fn dot_fuses_in_order_of_k() {
    let func = parsed(
        "kernel k(%a: view<f32,2>, %b: view<f32,2>, %c: view<f32,2>) {\n%0 = const 0 : i64
        %1 = view_load %a, %0, %0 : f32[1x3]\n%2 = view_load %b, %0, %0 : f32[3x1]
        %3 = view_load %c, %0, %0 : f32[1x1]\n%4 = dot ieee %1, %2, %3 : f32[1x1]
        view_store %c, %4, %0, %0\nreturn\n}",
    );
    let (a, b) = ([0.1_f32, 1e8, 0.3], [0.7_f32, 1.0, 0.9]);
    let expected = a.iter().zip(b).fold(0.5_f32, |acc, (a, b)| a.mul_add(b, acc));
    let args = vec![
        view(&a, 0, [1, 3], [3, 1]),
        view(&b, 0, [3, 1], [1, 1]),
        view(&[0.5], 0, [1, 1], [1, 1]),
    ];
    let after = run_func(&func, [1, 1, 1], args).unwrap();
    assert_eq!(to_f32s(&after[2]), [expected]);
}
