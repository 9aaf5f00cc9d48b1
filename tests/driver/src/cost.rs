//! What work costs on the virtual clock: an H200's latencies and bandwidths.
//!
//! A kernel takes its launch and the bytes that its threads read and write in global memory, each time they do: what an L2
//! cache would save is not known, and arithmetic is not counted, since the emulator does not. Kernels of a size that it runs
//! in a test are bound by their launch anyway.

/// From the start of a kernel to that of the next in a stream if it does nothing, in ns: `start` of the rates in
/// `genesis/src/plan/gpu.rs`.
pub(crate) const LAUNCH: u64 = 2_500;

/// The same between nodes of a graph, in ns. An assumption.
pub(crate) const NODE: u64 = 1_200;

/// The launch of a graph, in ns. An assumption.
pub(crate) const GRAPH: u64 = 5_000;

/// Bytes a nanosecond of global memory: what `silu` and `adamw` reach of 4.8 TB/s (`genesis plan --rates`).
const MEMORY: f64 = 4_000.0;

/// Bytes a nanosecond between devices: NVLink 4.
const PEER: f64 = 450.0;

/// Bytes a nanosecond between host and device: PCIe 5.0 x16 less its protocol. An assumption.
const HOST: f64 = 55.0;

/// What a copy goes over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Route {
    /// Global memory of one device.
    Memory,
    Peer,
    Host,
}

/// Nanoseconds beside the launch of what moves so many bytes of global memory.
pub(crate) fn memory(bytes: u64) -> u64 {
    (bytes as f64 / MEMORY).ceil() as u64
}

/// Nanoseconds beside the launch of a copy of so many bytes.
pub(crate) fn copy(route: Route, bytes: u64) -> u64 {
    match route {
        Route::Memory => memory(2 * bytes),
        Route::Peer => (bytes as f64 / PEER).ceil() as u64,
        Route::Host => (bytes as f64 / HOST).ceil() as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_take_their_time() {
        assert_eq!([memory(0), memory(1), memory(4_000_000)], [0, 1, 1_000]);
        // A copy within a device reads and writes its memory.
        assert_eq!(copy(Route::Memory, 4_000_000), 2_000);
        assert_eq!(copy(Route::Peer, 450_000), 1_000);
        assert_eq!(copy(Route::Host, 55_000), 1_000);
    }
}
