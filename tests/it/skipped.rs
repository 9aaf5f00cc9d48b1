//! What this machine lacks, said aloud: a test that is not run is no test that passed.
//!
//! `GENESIS_TEST_REQUIRE=ptxas,gpu` makes the absence of what it names a failure; `.ci/run` requires `ptxas`.

use std::collections::BTreeSet;
use std::io::Write;
use std::sync::{Mutex, PoisonError};

use genesis_kernel::inspect::find_tool;

/// What a machine may lack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Needed {
    /// NVIDIA's assembler of PTX, which `scripts/ptxas.sh` installs.
    Ptxas,
    /// A GPU.
    Gpu,
    /// PyTorch's launcher of ranks.
    Torchrun,
    /// Open MPI's, in Debian's package `openmpi-bin`.
    Mpirun,
}

impl Needed {
    const ALL: [Needed; 4] = [Needed::Ptxas, Needed::Gpu, Needed::Torchrun, Needed::Mpirun];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Needed::Ptxas => "ptxas",
            Needed::Gpu => "gpu",
            Needed::Torchrun => "torchrun",
            Needed::Mpirun => "mpirun",
        }
    }

    /// Whether a list such as `ptxas,gpu` has it.
    ///
    /// # Panics
    /// If the list has a word that names nothing.
    fn is_in(self, list: &str) -> bool {
        let words = || list.split(',').map(str::trim).filter(|word| !word.is_empty());
        let known = Needed::ALL.map(Needed::name);
        let unknown = words().find(|word| !known.contains(word));
        assert!(unknown.is_none(), "GENESIS_TEST_REQUIRE has no {}", unknown.unwrap_or_default());
        words().any(|word| word == self.name())
    }
}

/// Says once for each `what` that it is not tested.
///
/// # Panics
/// If `GENESIS_TEST_REQUIRE` names what is missing.
pub(crate) fn skip(missing: Needed, what: &'static str, why: &str) {
    let required = std::env::var("GENESIS_TEST_REQUIRE").unwrap_or_default();
    let name = missing.name();
    assert!(!missing.is_in(&required), "{what} needs {name}, which is required: {why}");
    tell(format!("no {name}: {what} ({why})"));
}

/// Says once what is skipped and why, also where the test harness keeps to itself what passing tests print.
pub(crate) fn tell(what: String) {
    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    if !said.contains(&what) {
        // Not `eprintln!`, which the harness takes. A closed stream loses a line and nothing else.
        let _ = writeln!(std::io::stderr(), "skipped: {what}");
        said.insert(what);
    }
}

/// Whether `ptxas` is here; where it is not, [`skip`] says so.
pub(crate) fn has_ptxas(what: &'static str) -> bool {
    let found = find_tool("ptxas").is_some();
    if !found {
        skip(Needed::Ptxas, what, "scripts/ptxas.sh installs it");
    }
    found
}

#[test]
fn what_is_required_is_named() {
    assert!(Needed::Ptxas.is_in("ptxas") && Needed::Gpu.is_in("ptxas, gpu"));
    assert!(!Needed::Gpu.is_in("ptxas") && !Needed::Ptxas.is_in(""));
    assert!(std::panic::catch_unwind(|| Needed::Ptxas.is_in("ptxa")).is_err());
}

/// A test without `ptxas` in a process of its own: it says what it leaves out, and fails where that is required.
#[test]
fn a_missing_assembler_is_told_or_fails() {
    const CHILD: &str = "GENESIS_TEST_WITHOUT_PTXAS";
    if std::env::var_os(CHILD).is_some() {
        assert!(!has_ptxas("this test"), "PATH and the folders above are empty");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let run = |required: &str| {
        let output = std::process::Command::new(std::env::current_exe().expect("this program"))
            .args(["skipped::a_missing_assembler_is_told_or_fails", "--exact"])
            .current_dir(&folder)
            .env(CHILD, "1")
            .env("PATH", folder.path())
            .env_remove("GENESIS_PTXAS")
            .env("GENESIS_TEST_REQUIRE", required)
            .output()
            .expect("it starts");
        let text = [&output.stdout[..], &output.stderr[..]].map(String::from_utf8_lossy).concat();
        (output.status.success(), text)
    };
    let (passed, text) = run("");
    assert!(passed && text.contains("skipped: no ptxas: this test"), "{text}");
    let (passed, text) = run("ptxas");
    assert!(!passed && text.contains("this test needs ptxas, which is required"), "{text}");
}
