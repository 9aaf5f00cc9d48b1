//! No source may panic the macros: programs with tokens removed, repeated, exchanged and replaced.

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

use crate::macro_body;
use crate::parse::Kind;

/// Programs that use all of the grammar.
const SEEDS: &[&str] = &[
    r#"
    /// Doc.
    pub fn k<T: Float, const B: usize>(x: Ptr<T>, out: PtrMut<f32>, v: View<T, 2>, n: i64, p: a::P<T, T::Acc>, _: Q) {
        let i = program_id(0) * B + arange::<B>();
        let (mut a, b): (f32, f32) = (1.0, T::from(2.0) as f32);
        for j in range(0, n, B).stages(2).unroll(4) { a += sum(load(x + i, i < n, T::ZERO), 0); }
        for j in 0..4 { (a, b) = (b, a); }
        for t in persistent(cdiv(n, 3)) { let (p, q) = grouped(t, 1, 2, 8); }
        while a < 1.5e3 && !(b > -2.0) { if a == b { return; } else if b != a { a = 0.0; } else { } }
        static_assert!(B % 16 == 0, "text");
        device_print!("{} {{}}", a);
        device_assert!(i < n, "text");
        let w = where_(i < n, permute(zeros::<f32, B, 1>(), [1, 0]), if a > b { 1.0 } else { b });
        let r = reduce((i, w), 0, path::larger).0;
        store(out + i, v.load::<1, B>([0, n]).squeeze(0).to::<f32>() | HALF, i < n);
    }
    "#,
    r#"
    fn d<S: Shape, const N: usize>(x: Tile<f32, S>, (a, b): (f32, i64), r: Row<i8, N>) -> (f32, i64) {
        let y = { let z = x * FRAC_1_SQRT_2; z };
        return (a, helper::<f32, N, 3, _>(b, u64::MAX, 0xff_i64));
    }
    "#,
    r#"
    unsafe extern "C" fn f<'a, T, U: Clone + Copy = f32, const N: bool>(self, x: &'a [T], ...) -> !
    where T: Sized {
        let x; let Some(y) = z else { return 1 };
        match x { 0 => {}, _ => loop { break 'a; continue } }
        'l: for i in (0..).rev() { x?; y[0] = *z; |a| a; S { a: 1 }; "s"; 'c'; b"x"; println!("{}"); }
        async { x.await }; unsafe {}; [0; 3]; [1, 2]; (); x = y = z; a..=b; &mut x; 1e999; 1u128; -x.y;
        fn g() {} const C: u8 = 1; (|| 1)(); <T as U>::f(); T::f(1); f32::X; let _ = x as usize;
        p.x.y.load(0); p.x += S { a: p.0.b }; sum(x, -1); sum(x, n); load(); arange::<{ N + 1 }>(); zeros::<f32>(); x.foo(); 1.0.to::<f32>();
    }
    "#,
];

/// Structs under `#[derive(KernelParam)]`.
const STRUCTS: &[&str] = &[
    r#"
    /// Doc.
    pub struct Affine<T: Float, U: Int> { /// Doc.
        pub x: View<T, 2>, y: ViewMut<T::Acc, 1>, pub(crate) p: Ptr<U>, scale: f32, n: i64 }
    "#,
    r#"
    struct S<'a, T: Clone, const N: usize = 3> where T: Sized { r#type: &'a T, t: (T, f32), o: Option<T>, v: Vec<T> }
    "#,
    "enum E { A { x: f32 }, B(i64) } union U { x: f32 } struct P(f32); struct Q;",
];

/// A generator of numbers that is the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n.max(1) as u64) as usize
    }
}

/// One change somewhere in the tokens.
fn mutate(tokens: TokenStream, random: &mut Random, spare: &[TokenTree]) -> TokenStream {
    let mut trees: Vec<TokenTree> = tokens.into_iter().collect();
    if trees.is_empty() {
        return trees.into_iter().collect();
    }
    let at = random.below(trees.len());
    if let TokenTree::Group(group) = &trees[at]
        && random.below(4) != 0
    {
        let inner = mutate(group.stream(), random, spare);
        trees[at] = TokenTree::Group(Group::new(group.delimiter(), inner));
        return trees.into_iter().collect();
    }
    let other = random.below(trees.len());
    match random.below(6) {
        0 => drop(trees.remove(at)),
        1 => trees.insert(at, trees[other].clone()),
        2 => trees.swap(at, other),
        3 => trees[at] = spare[random.below(spare.len())].clone(),
        4 => trees.insert(at, spare[random.below(spare.len())].clone()),
        _ => {
            let group = Group::new(Delimiter::None, std::iter::once(trees[at].clone()).collect());
            trees[at] = TokenTree::Group(group);
        }
    }
    trees.into_iter().collect()
}

/// All tokens, those in groups too.
fn flatten(tokens: TokenStream, into: &mut Vec<TokenTree>) {
    for tree in tokens {
        if let TokenTree::Group(group) = &tree {
            flatten(group.stream(), into);
        }
        into.push(tree);
    }
}

#[test]
fn no_source_panics_the_macros() {
    let seeds: Vec<TokenStream> =
        SEEDS.iter().map(|text| text.parse().expect("the seeds are tokens")).collect();
    let mut spare = Vec::new();
    seeds.iter().for_each(|seed| flatten(seed.clone(), &mut spare));
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for round in 0..3000 {
        let mut tokens = seeds[round % seeds.len()].clone();
        for _ in 0..1 + random.below(4) {
            tokens = mutate(tokens, &mut random, &spare);
        }
        let kind = if random.below(2) == 0 { Kind::Kernel } else { Kind::Device };
        let attr = if random.below(8) == 0 { tokens.clone() } else { TokenStream::new() };
        assert!(!macro_body(attr, tokens, kind).is_empty());
    }
}

#[test]
fn no_struct_panics_the_derive() {
    let seeds: Vec<TokenStream> =
        STRUCTS.iter().map(|text| text.parse().expect("the seeds are tokens")).collect();
    let mut spare = Vec::new();
    seeds.iter().for_each(|seed| flatten(seed.clone(), &mut spare));
    let (mut random, mut derived) = (Random(0x9e37_79b9_7f4a_7c15), 0);
    for round in 0..3000 {
        let mut tokens = seeds[round % seeds.len()].clone();
        for _ in 0..random.below(4) {
            tokens = mutate(tokens, &mut random, &spare);
        }
        if let Ok(input) = syn::parse2::<syn::DeriveInput>(tokens) {
            assert!(!crate::fields::derive(&input).is_empty());
            derived += 1;
        }
    }
    assert!(derived > 300, "{derived}");
}

/// What can be repeated inside of a function: what stands before, what is repeated, what stands in the
/// middle, what is repeated after it.
const NESTS: &[[&str; 4]] = &[
    ["let x = ", "n + ", "n;", ""],
    ["let x = n", " * n", ";", ""],
    ["let x = n", " as f32", ";", ""],
    ["let x = ", "(", "n", ")"],
    ["let x = ", "f(", "n", ")"],
    ["let x = ", "n + (", "n", ")"],
    ["let x = ", "[", "n", "]"],
    ["let x = ", "{ ", "n", " }"],
    ["let x = ", "{ let x = ", "n;", " }"],
    ["let x = n", ".exp()", ";", ""],
    ["let x = n", ".field", ";", ""],
    ["let x = n", "(0)", ";", ""],
    ["let x = n", "[0]", ";", ""],
    ["let x = n", "?", ";", ""],
    ["let x = ", "-", "n;", ""],
    ["let x = ", "&mut ", "n;", ""],
    ["let x = ", "..", "n;", ""],
    ["let x = ", "return ", "n;", ""],
    ["let x = ", "|a| ", "n;", ""],
    ["let x = ", "n = ", "n;", ""],
    ["", "if n < 1 {} else ", "{}", ""],
    ["", "if ", "n", " {}"],
    ["", "while n < 1 { ", "", " }"],
    ["let x = n as ", "A<", "f32", ">;"],
    ["let x: ", "A<", "f32", ">;"],
    ["let x: ", "&'a mut ", "f32;", ""],
    ["let x: ", "fn() -> ", "f32;", ""],
    ["let x: ", "(f32, ", "f32", ")"],
    ["let ", "(a, ", "b", ")"],
    ["let ", "&", "b = n;", ""],
    ["let x = ", "a::<{ ", "n", " }>()"],
    ["let x = ", "match n { _ => ", "n", " }"],
    ["let x = ", "S { a: ", "n", " }"],
];

/// What a test's thread has, and more than what rustc leaves a macro.
const STACK_BYTES: usize = 2 << 20;

fn expand(text: String) -> String {
    let run = move || {
        let tokens = text.parse().expect("tokens");
        macro_body(TokenStream::new(), tokens, Kind::Kernel).to_string()
    };
    let thread = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(run);
    thread.expect("a thread starts").join().expect("the macro does not panic")
}

#[test]
fn nothing_that_nests_overflows_the_stack() {
    for [before, open, middle, close] in NESTS {
        for n in [16, 24, 32, 48, 64, 128, 320, 5000] {
            let (open, close) = (open.repeat(n), close.repeat(n));
            let expanded = expand(format!("fn k(n: i64) {{ {before}{open}{middle}{close} }}"));
            let is_refused = expanded.contains("nests too deep");
            assert!(is_refused || n < 5000, "{before}{}", &open[..open.len() / n]);
        }
    }
}

#[test]
fn what_nests_too_deep_is_one_error() {
    let chain = format!("fn k(n: i64) {{ let x = {}n; }}", "n + ".repeat(5000));
    let brackets = format!("fn k(n: i64) {{ let x = {}n{}; }}", "(".repeat(2000), ")".repeat(2000));
    for text in [chain, brackets] {
        let expanded = expand(text);
        assert_eq!(expanded.matches("compile_error").count(), 1);
        // What launches the kernel finds it.
        assert!(expanded.contains("mod k") && expanded.contains("fn launch"), "{expanded}");
    }
}
