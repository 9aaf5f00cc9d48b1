//! The peers on a GPU: `peer.py` measures them and prints one JSON object.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

/// Times in ms by `<peer>/<case>`.
pub(crate) struct Peers(Value);

impl Peers {
    /// Runs the script. Without Python, torch or a GPU there are no peers, and it says why.
    pub(crate) fn measure() -> Peers {
        let script = std::env::var_os("GENESIS_PEER").map_or_else(
            || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("peer.py"),
            PathBuf::from,
        );
        let output = Command::new("python3").arg(&script).output();
        let times = output.ok().filter(|o| o.status.success()).and_then(|output| {
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            serde_json::from_str(text.lines().last()?).ok()
        });
        if times.is_none() {
            println!("skipped: no peer, {} did not run", script.display());
        }
        Peers(times.unwrap_or(Value::Null))
    }

    /// The time of a peer on a case.
    pub(crate) fn get(&self, peer: &str, case: &str) -> Option<(String, f64)> {
        Some((peer.to_owned(), self.0.get(format!("{peer}/{case}"))?.as_f64()?))
    }
}
