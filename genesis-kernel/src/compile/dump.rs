//! What the compiler makes of each kernel, as it makes it: for `GENESIS_DUMP`, and for who records a
//! compilation to look at it.

use std::cell::RefCell;
use std::io::Write;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::knobs;

/// A stage of the compiler that can be printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    Tir,
    Passes,
    Lir,
    Machine,
    Llvm,
    Ptx,
    Asm,
}

impl Stage {
    fn name(self) -> &'static str {
        match self {
            Stage::Tir => "tir",
            Stage::Passes => "passes",
            Stage::Lir => "lir",
            Stage::Machine => "machine",
            Stage::Llvm => "llvm",
            Stage::Ptx => "ptx",
            Stage::Asm => "asm",
        }
    }

    fn is_wanted(self) -> bool {
        let dump = knobs::get().dump;
        match self {
            Stage::Tir => dump.tir,
            Stage::Passes => dump.passes,
            Stage::Lir => dump.lir,
            Stage::Machine => dump.machine,
            Stage::Llvm => dump.llvm,
            Stage::Ptx => dump.ptx,
            Stage::Asm => dump.asm,
        }
    }
}

/// Whether a stage is wanted that only a compilation makes.
pub(super) fn wants_compilation() -> bool {
    use Stage::*;
    [Passes, Lir, Machine, Llvm, Ptx, Asm].into_iter().any(Stage::is_wanted)
}

/// A pass by its name, and the IR after it.
pub(super) type PassText = (String, String);

thread_local! {
    /// The passes of the compilation that this thread records, if it does.
    static RECORD: RefCell<Option<Vec<PassText>>> = const { RefCell::new(None) };
}

/// Runs a compilation and keeps the IR after each of its passes.
pub(super) fn record<T>(compile: impl FnOnce() -> T) -> (T, Vec<PassText>) {
    RECORD.set(Some(Vec::new()));
    let result = compile();
    (result, RECORD.take().unwrap_or_default())
}

/// Notes the IR after a pass, where somebody wants it; `text` is only called then.
pub(super) fn note_pass(pass: &str, kernel: &str, text: impl Fn() -> String) {
    dump(Stage::Passes, kernel, || format!("// {pass}\n{}", text()));
    RECORD.with_borrow_mut(|record| {
        if let Some(passes) = record {
            passes.push((pass.to_owned(), text()));
        }
    });
}

/// Writes a stage of a kernel to where it is wanted, if it is; `text` is only called then.
pub(super) fn dump(stage: Stage, kernel: &str, text: impl FnOnce() -> String) {
    if !stage.is_wanted() {
        return;
    }
    let text = text();
    match &knobs::get().dump_dir {
        Some(dir) => {
            static NUMBER: AtomicU32 = AtomicU32::new(0);
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let path = dir.join(format!("{number:04}-{}.{}", file_name(kernel), stage.name()));
            let written = std::fs::create_dir_all(dir).and_then(|()| std::fs::write(&path, text));
            // The program does not depend on its dumps, but who asked for them is told.
            if let Err(error) = written {
                let why = format!("can't write {}: {error}; dumps are lost", path.display());
                knobs::warn_once("GENESIS_DUMP_DIR", why);
            }
        }
        None => {
            let mut out = std::io::stderr().lock();
            let _ = writeln!(out, "// {kernel}: {}\n{text}", stage.name());
        }
    }
}

/// A kernel's name as part of a file's, which has at most 255 bytes.
fn file_name(kernel: &str) -> String {
    kernel.chars().map(|c| if c == '/' || c == '\0' { '_' } else { c }).take(50).collect()
}
