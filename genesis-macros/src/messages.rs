//! Everything the macros say to a user, in one table: what is wrong, and what to do.
//!
//! `@` in a text or a help stands for the name at hand. Texts are lower case without a full stop, as
//! rustc's are; no name of ours that a user has not written appears in them.

/// A refusal: what is wrong and what to do instead.
#[derive(Clone, Copy)]
pub(crate) struct Message {
    pub(crate) text: &'static str,
    pub(crate) help: &'static str,
}

impl Message {
    /// The text of the error with `name` filled in.
    pub(crate) fn render(self, name: &str) -> String {
        let text = self.text.replace('@', name);
        let help = self.help.replace('@', name);
        format!("{text}\n= help: {help}")
    }
}

macro_rules! messages {
    ($($name:ident: $text:literal, $help:literal;)*) => {
        $(pub(crate) const $name: Message = Message { text: $text, help: $help };)*

        /// Every message, for the tests.
        #[cfg(test)]
        pub(crate) const ALL: &[(&str, Message)] = &[$((stringify!($name), $name)),*];
    };
}

messages! {
    // The function itself.
    NOT_A_FUNCTION: "`#[@]` stands on a function", "move it to a `fn`";
    IN_AN_IMPL: "`#[@]` stands on a function of a module, and this one is in an `impl` or a `trait`", "move it out of the block; what it needs of `self` are its parameters";
    BAD_OPTION: "`#[kernel]` has one option, `contract`", "write `#[kernel]` or `#[kernel(contract)]`";
    NO_DEVICE_OPTION: "`#[device]` has no options", "write `#[device]`";
    AUTOTUNE_ALONE: "`#[autotune]` stands on a kernel", "write `#[kernel]` below it";
    AUTOTUNE_OPTION: "`#[autotune]` has no option `@`", "the options are `key`, `space`, `grid`, `example`, `heuristic`, `prune`, `table` and `tolerance`";
    AUTOTUNE_NEEDS: "`#[autotune]` needs `@`", "write `space = { BLOCK: [512, 1024], num_warps: [4, 8] }` and `grid = |t| Grid::x(n.div_ceil(t.BLOCK))`";
    AUTOTUNE_AXIS: "the kernel has no constant `@`", "axes are its const parameters, `num_warps`, `num_stages`, `persistent` and `cluster`";
    AUTOTUNE_NO_VALUES: "`@` has no values", "give each const parameter one or more in each space: `@: [64, 128]`";
    AUTOTUNE_EXAMPLE: "the kernel has no parameter `@`", "name its views with their extents: `x: [rows, cols]`";
    AUTOTUNE_VALUE: "this must be a whole number, `true` or `false`", "write `BM: [64, 128]`, `num_warps: 4` or `persistent: [true, false]`";
    QUALIFIER: "a kernel function can't be `@`", "remove the word; write `pub fn` or `fn`";
    KERNEL_RETURNS: "a kernel returns nothing", "write results to memory: take a `PtrMut` or a `ViewMut` and store to it";
    WHERE_CLAUSE: "kernel functions have no `where` clause", "put the bound where the parameter is declared: `<T: Float>`";
    LIFETIME: "kernel functions have no lifetimes", "take memory as `Ptr`, `PtrMut`, `View` or `ViewMut`";
    SELF_PARAM: "a kernel function has no `self`", "take what it needs as parameters";
    VARIADIC: "a kernel function has a fixed number of parameters", "name each parameter";
    GENERIC_DEFAULT: "generic parameters of a kernel have no defaults", "remove the default; the launch gives each of them";
    BOUND_MISSING: "`@` needs a bound that says which dtypes it stands for", "write `@: Float`, `Float8`, `Int`, `Int8`, `Number` or `Element`; for a shape in a device function, `@: Shape`";
    BOUND_UNKNOWN: "`@` is not a bound for a kernel's parameter", "the bounds are `Float`, `Float8`, `Int`, `Int8`, `Number` and `Element`, and `Shape` in device functions";
    BOUND_MANY: "one bound is enough", "`Float` and `Int` include `Number`, and `Number` includes `Element`";
    SHAPE_IN_KERNEL: "a kernel has no shape parameters", "take extents as `const N: usize`; `S: Shape` is for device functions";
    CONST_NOT_USIZE: "a constant of a kernel is a `usize` or a `bool`", "write `const N: usize`, which is an `i64` where it stands in an expression, or `const CAUSAL: bool`";
    PARAM_PATTERN: "a kernel's parameter is a name, or a tuple of names", "take the parts apart with `let` in the body";
    PARAM_TYPE_KERNEL: "a kernel can't take this type", "parameters are scalars (`i64`, `f32`, `T`), `Ptr<T>`, `PtrMut<T>`, `View<T, RANK>` and `ViewMut<T, RANK>`, `Option`s of these, `Views<T, RANK>` and `ViewsMut<T, RANK>`, tuples, and structs under `#[derive(KernelParam)]`";
    PARAM_TYPE_DEVICE: "a device function can't take or give this type", "types are scalars, `Tile<T, S>` and its short forms, `Ptr`, `PtrMut`, `View`, `ViewMut`, and tuples of these";
    USIZE_PARAM: "`@` is not a dtype", "indices and lengths are `i64`";
    OPTION_OF: "what is optional is a scalar, a pointer or a view", "write `Option<View<T, 2>>`; of a tuple, make its parts optional";
    TUPLE_PARAM: "this pattern has other parts than its type", "write a name, or one name for each part";
    TILE_PARAM: "a kernel can't take a tile", "take a `Ptr<T>` or a `View<T, RANK>` and load from it; tiles are for device functions";
    LET_TYPE: "this type has no place in a kernel", "leave it out: rustc finds it; or write a scalar or a tile type";
    RANK: "the rank of a view is a number from 1 to 5", "write it as a literal: `View<T, 2>`";
    RESERVED_NAME: "`@` is a function of the language", "choose another name for this one";
    RECURSION: "`@` calls itself", "device functions are inlined and can't recurse; write a loop";
    TOO_DEEP: "this is too long, or nests too deep, for one statement", "name parts of it with `let`";

    // Statements.
    ATTRIBUTE: "attributes have no place inside a kernel", "put it on the function, or use `if` on a const parameter";
    LET_WITHOUT_VALUE: "a variable needs a value", "write `let x = ..;`, or `let mut x = zeros::<..>();` before a loop";
    LET_ELSE: "`let .. else` is not part of the kernel language", "write `let`, then `if`";
    LOCAL_ITEM: "items can't stand inside a kernel", "move it outside of the function";
    PATTERN: "this pattern is not part of the kernel language", "patterns are names, `_` and tuples of them";
    LABEL: "labels are not part of the kernel language", "`break` and `continue` are about the innermost loop; use a `bool` variable for an outer one";
    BREAK: "`@` is a statement of a loop", "write it on its own in a `for` or a `while`: `if done { @; }`; a mask and `where_` leave out elements";
    BREAK_WITH_OPTIONS: "a loop that `break` leaves has no options", "leave out `.stages` and `.unroll`: what runs ahead must know that the iteration comes";
    LOOP: "`loop` is not part of the kernel language", "use `while` with a condition";
    FOR_ITER: "a `for` runs over a range", "write `a..b`, `range(a, b, step)`, `static_range(a, b)` or `persistent(total)`";
    RANGE_INCLUSIVE: "`..=` is not part of the kernel language", "write the end one further: `a..b + 1`";
    RANGE_OPEN: "this range has no start or no end", "write both: `0..n`";
    RANGE_VALUE: "a range can only stand in `for .. in`", "write `for i in a..b`";
    RANGE_OPTION: "a range has the options `.stages(n)` and `.unroll(n)`", "write `range(a, b, step).stages(3)`";
    RANGE_OPTION_VALUE: "this must be a number from 1 to 16", "write a literal: `.@(2)`";
    RANGE_ARGS: "`@` takes a start and an end, and perhaps a step", "write `@(0, n)` or `@(0, n, step)`";
    PERSISTENT_ARGS: "`persistent` takes one number: how many pieces of work there are", "write `persistent(total)`";
    ITER_CALL: "`@` can only stand in `for .. in`", "write `for i in @(..)`";
    ASSIGN_TARGET: "this can't be assigned to", "assign to a variable or a tuple of variables; to write memory, use `store`";
    ASSIGN_VALUE: "an assignment has no value", "write it as a statement of its own";
    RETURN_VALUE: "a kernel returns nothing", "write results to memory with `store`, then `return;`";
    RETURN_DEVICE: "a device function returns at its end only", "write the value as the last expression, with `if .. else ..` where there is a choice";
    RETURN_EXPR: "`return` is a statement", "write it on its own: `if done { return; }`";

    // Expressions.
    MATCH: "`match` is not part of the kernel language", "use `if .. else if ..` on scalars, `where_(cond, a, b)` on tiles";
    CLOSURE: "closures are not part of the kernel language", "write a function under `#[device]` and pass its name";
    QUESTION: "`?` is not part of the kernel language", "nothing in a kernel returns a `Result`; use `device_assert!` to check";
    REFERENCE: "references are not part of the kernel language", "tiles, scalars and pointers are copied: leave out the `&`";
    DEREFERENCE: "pointers are read by `load`", "write `load(ptr)` or `load(ptr, mask)`";
    STRUCT: "struct literals are not part of the kernel language", "use separate variables or a tuple";
    INDEX: "tiles can't be indexed", "take one element with `element(x, [i, j])`, or load what you need with pointers or a view";
    STRING: "strings are not part of the kernel language", "they stand in `device_print!`, `device_assert!`, `static_assert!` and `inline_asm!` only";
    CHAR: "characters are not part of the kernel language", "write the number: `65`";
    ASYNC: "`@` is not part of the kernel language", "loads run ahead by themselves: `range(..).stages(n)`";
    UNSAFE: "`unsafe` is not needed in a kernel", "the launch is what is `unsafe` where a kernel takes pointers";
    UNSAFE_DEVICE: "a device function can't be `unsafe`", "remove the word; a kernel that calls what nothing checks is declared `unsafe fn`, and its launch is `unsafe`";
    IF_LET: "`let` in a condition takes an optional parameter apart, and is all of the condition", "write `if let Some(x) = x { .. } else { .. }`, or `if` with a `bool`";
    REPEAT: "`[x; n]` is not part of the kernel language", "make a tile with `full::<f32, N>(x)`";
    ARRAY: "an array can only be a list of coordinates", "it stands in `view.load::<..>([i, j])`, `view.store([i, j], x)`, `view.subview([i, j], [m, n])`, `view_of(ptr, [m, n], [n, 1])`, `element(x, [i, j])` and `permute(x, [1, 0])`";
    EXPRESSION: "this is not part of the kernel language", "see the list of the language's functions in the documentation of `genesis_kernel::lang`";
    MACRO: "`@!` can't be used in a kernel", "the macros are `device_print!`, `device_assert!`, `static_assert!` and `inline_asm!`";
    INT_RANGE: "this number does not fit any integer dtype", "the largest are `i64::MAX` and `u64::MAX`";
    FLOAT_RANGE: "this number does not fit any float dtype", "write `f32::INFINITY` for infinity";
    SUFFIX: "`@` is not a dtype", "use `i64` for indices; the suffixes are `i8` to `i64`, `u8` to `u64`, `f32` and `f64`; write `bf16::from(1.0)` for the half floats";
    CAST_TYPE: "`as` converts to a dtype", "write `x as f32` or `x as T`";
    DTYPE_CONST: "dtypes have no constant `@`", "they have `ZERO`, `ONE`, `MIN`, `MAX`, and floats `INFINITY`, `NEG_INFINITY`, `NAN`, `EPSILON` and `MIN_POSITIVE`";
    CALL_TARGET: "only functions can be called", "call a function of the language or a `#[device]` function by its name";
    UNTYPED_WHERE: "both values are literals, so the dtype is unknown", "give one of them a dtype: `1.0_f32`";
    LITERAL_METHOD: "a literal has no dtype yet", "give it one: `1.0_f32`";

    // Calls.
    METHOD: "values in a kernel have no method `@`", "the methods are `to`, `row`, `col`, `expand_dims`, `squeeze`, `trans`, `permute`, `reshape`, `broadcast_to`, of an `Option` `is_some` and `is_none`, and of views `dim`, `stride`, `ptr`, `load`, `store`, `subview`; all else is a function: `sqrt(x)`";
    FUNCTION_AS_VALUE: "`@` is a function, not a value", "call it, or choose another name for a variable that is not declared yet";
    COORDINATES: "coordinates, extents and strides are lists", "write them in brackets: `[i, j]`";
    DTYPE_CALL: "dtypes have one function, `from`", "write `T::from(x)`";
    ARG_COUNT: "@", "look at its documentation: `genesis_kernel::lang`";
    AXIS: "an axis is a number known at compile time", "write a literal from 0 to 4: `sum(x, 1)`";
    AXIS_OF_EXTREMUM: "`@` reduces along an axis, and this is none", "write the axis as a literal: `@(x, 1)`; of two values, `@imum(a, b)` gives one";
    AXIS_NEGATIVE: "axes count from 0", "write the axis from the left: of a tile `[M, N]`, 0 is `M` and 1 is `N`";
    GRID_AXIS: "a grid has the axes 0, 1 and 2", "write `@(0)`";
    COMBINE: "this must be the name of a device function", "write a function of two values under `#[device]` and pass its name";
    COMBINE_BUILTIN: "`@` can't be passed as a function", "call the reduction by its name, such as `max(x, 0)`, or wrap it in a `#[device]` function";
    PERMUTATION: "this is not an order of the axes", "name each axis once: `permute(x, [1, 0])`";
    FLAG: "this must be `true` or `false`", "write the literal; the flag must be known at compile time";
    SHAPE_MISSING: "`@` needs the extents of its result", "write them as `::<..>`: `@::<BM, BN>`";
    DTYPE_SHAPE_MISSING: "`@` needs a dtype and the extents of its result", "write them as `::<..>`: `@::<f32, BM, BN>`";
    DTYPE_MISSING: "`@` needs a dtype", "write it as `::<..>`: `@::<f32>`";
    ARANGE: "`arange` needs one extent", "write `arange::<BLOCK>()`; for two axes, `.row()` and `.col()` add unit axes";
    ONE_EXTENT: "`@` needs one extent", "write it as `::<..>`: `@::<16>`";
    ATOMIC_ORDERING: "an atomic has an order and a scope, and nothing else, in `::<..>`", "write one of `Relaxed`, `Acquire`, `Release` and `AcqRel`, then one of `Block`, `Cluster`, `Gpu` and `System`, or either alone: `@::<Release, System>(..)`";
    NO_GENERICS: "`@` takes no `::<..>`", "leave it out";
    RANK_LIMIT: "a tile has at most 5 axes", "merge axes with `reshape`";
    GENERIC_ARG: "this can't stand in `::<..>`", "write a dtype, an extent (`BLOCK`, `128`) or `_`";
    MULTIPLE_OF: "the divisor is a number known at compile time", "write a literal or a const parameter: `multiple_of(x, 16)`";
    ASM_ARGS: "`inline_asm!` needs PTX and constraints as string literals, the inputs, and what the CPU computes", "write `inline_asm!(\"add.u32 $0, $1, $2;\", \"=r,r,r\", x, y, x + y)`";
    ASM_PACK: "`inline_asm!` has one option, how many elements its text is of", "write `pack = 2`, 4 or 8 as the last argument";
    FORMAT: "@", "each `{}` stands for one value: `device_print!(\"x = {}\", x)`";
    ASSERT_ARGS: "`@!` takes a condition and a message", "write `@!(cond, \"what went wrong\")`";

    // Structs of parameters.
    PARAM_STRUCT: "`#[derive(KernelParam)]` stands on a struct with named fields", "write `struct Params { x: View<f32, 1>, scale: f32 }`";
    PARAM_FIELD: "a field of a kernel's parameter can't have this type", "fields are scalars (`i64`, `f32`, `T`), `Ptr<T>`, `PtrMut<T>`, `View<T, RANK>` and `ViewMut<T, RANK>`, and `Option`s of these; a list of views, a tuple or another struct is a parameter of its own";
    PARAM_CONST: "a struct of parameters has no constants", "give them to the kernel: `fn k<const N: usize>(p: Params)`";
    AUTOTUNE_STRUCT: "an `example` says nothing of the fields of `@`", "leave out `example`, or take the fields as parameters of their own";

    // Modules.
    MODULE_NOT_A_STRUCT: "`#[derive(Module)]` stands on a struct, this is @", "make a struct of the fields; where there is a choice of layers, hold a `Box<dyn Layer>`";
    MODULE_LIFETIME: "a module owns its fields and has no lifetimes", "hold a `Parameter` instead of a reference: a clone of it is the same parameter";
    MODULE_ON_STRUCT: "`#[module(..)]` stands on a field", "move it to the field that it is about";
    MODULE_OPTION: "a field of a module has the options `skip` and `name`", "write `#[module(skip)]` or `#[module(name = \"weight\")]`";
    MODULE_BAD_NAME: "a name is not empty and has no dots", "dots are put between the names of modules inside modules";
    MODULE_NAME_TWICE: "the name `@` is taken by another field", "give one of them another name: `#[module(name = \"..\")]`";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_lower_case_without_a_full_stop() {
        for (name, message) in ALL {
            for part in [message.text, message.help] {
                assert!(!part.ends_with('.') || part.ends_with(".."), "{name}: {part}");
                let first = part.chars().next().expect("no text is empty");
                assert!(!first.is_uppercase(), "{name}: {part}");
            }
        }
    }

    #[test]
    fn texts_name_nothing_internal() {
        for (name, message) in ALL {
            for word in ["shadow", "AST", "syn::", "token", "LLVM", "MLIR"] {
                assert!(!message.text.contains(word) && !message.help.contains(word), "{name}");
            }
        }
    }
}
