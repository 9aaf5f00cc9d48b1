//! The allocator without a GPU: a system that only counts, and streams that pass when told.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use super::arena::Allocation;
use super::*;
use crate::runtime::Device;

/// Addresses without memory behind.
struct Fake {
    next: AtomicU64,
    held: Mutex<Vec<(u64, usize)>>,
    most: AtomicUsize,
    is_capturing: AtomicBool,
}

impl System for Fake {
    fn granule_log2(&self) -> u32 {
        9
    }

    fn check(&self) -> Result<(), Error> {
        Ok(())
    }

    fn reserve(&self, bytes: usize) -> Result<Option<u64>, Error> {
        let mut held = self.held.lock().unwrap();
        if held.iter().map(|&(_, n)| n).sum::<usize>() + bytes > self.most.load(SeqCst) {
            return Ok(None);
        }
        let address = self.next.fetch_add(bytes as u64 + (1 << 30), SeqCst);
        held.push((address, bytes));
        Ok(Some(address))
    }

    fn release(&self, address: u64, bytes: usize) -> Result<(), Error> {
        let mut held = self.held.lock().unwrap();
        let at = held.iter().position(|&segment| segment == (address, bytes));
        held.swap_remove(at.expect("only what was reserved is released, once"));
        Ok(())
    }

    fn settle(&self) -> Result<bool, Error> {
        Ok(!self.is_capturing.load(SeqCst))
    }

    fn keeps(&self) -> usize {
        usize::MAX
    }

    fn space(&self) -> Option<(usize, usize)> {
        let held: usize = self.held.lock().unwrap().iter().map(|&(_, n)| n).sum();
        let most = self.most.load(SeqCst);
        Some((most - held, most))
    }
}

fn device(most: usize) -> (&'static Fake, &'static Ledger) {
    let fake: &'static Fake = Box::leak(Box::new(Fake {
        next: AtomicU64::new(1 << 40),
        held: Mutex::default(),
        most: AtomicUsize::new(most),
        is_capturing: AtomicBool::new(false),
    }));
    (fake, Box::leak(Box::new(Ledger::new(Device::Cuda(0), "cuda:0".to_owned(), fake))))
}

/// A stream that passes its fences when told.
struct Other {
    id: u64,
    has_passed: Arc<AtomicBool>,
    is_recorded: AtomicBool,
}

struct Passed(Arc<AtomicBool>);

impl User for Other {
    fn id(&self) -> u64 {
        self.id
    }

    fn fence(&self) -> Result<Option<Box<dyn Fence>>, Error> {
        if self.is_recorded.load(SeqCst) {
            return Ok(None);
        }
        Ok(Some(Box::new(Passed(self.has_passed.clone()))))
    }
}

impl Fence for Passed {
    fn is_reached(&self) -> Result<bool, Error> {
        Ok(self.0.load(SeqCst))
    }

    fn wait(&self) -> Result<(), Error> {
        Ok(())
    }
}

fn stream(id: u64) -> &'static Other {
    let (has_passed, is_recorded) = (Arc::default(), AtomicBool::new(false));
    Box::leak(Box::new(Other { id, has_passed, is_recorded }))
}

fn alloc(arena: &Arena, bytes: usize) -> Allocation {
    arena.alloc(bytes, &Label::default()).unwrap()
}

#[test]
fn freed_blocks_come_again_and_are_counted() {
    let (_, ledger) = device(1 << 30);
    let arena = ledger.arena(0);
    let first = alloc(arena, 1000);
    arena.free(first.block);
    assert_eq!(alloc(arena, 900), first);
    let stats = ledger.stats();
    assert_eq!((stats.allocated, stats.requested, stats.peak), (1024, 900, 1024));
    assert_eq!((stats.reserved, stats.free, stats.segments), (2 << 20, (2 << 20) - 1024, 1));
    assert_eq!((stats.allocations, stats.hits, stats.frees), (2, 1, 1));
    assert_eq!((stats.hit_rate(), stats.fragmentation()), (0.5, 0.0));
    arena.free(first.block);
    ledger.reset_peaks();
    ledger.release_free().unwrap();
    let stats = ledger.stats();
    assert_eq!(
        (stats.allocated, stats.reserved, stats.peak, stats.peak_reserved),
        (0, 0, 0, 2 << 20)
    );
    assert_eq!((stats.segments_reserved, stats.segments_released), (1, 1));
}

#[test]
fn a_block_waits_for_the_streams_that_use_it() {
    let (_, ledger) = device(1 << 30);
    let (arena, side) = (ledger.arena(0), stream(7));
    let block = alloc(arena, 4096);
    arena.record_user(block.block, side);
    arena.record_user(block.block, side);
    assert_eq!(arena.users(block.block).len(), 1);
    arena.free(block.block);
    assert_ne!(alloc(arena, 4096), block);
    assert_eq!(ledger.stats().waiting, 4096);
    side.has_passed.store(true, SeqCst);
    assert_eq!(alloc(arena, 4096), block);
    assert_eq!((ledger.stats().waiting, arena.users(block.block).len()), (0, 0));
}

#[test]
fn nothing_is_marked_while_a_graph_is_recorded() {
    let (_, ledger) = device(1 << 30);
    let (arena, side) = (ledger.arena(0), stream(7));
    let block = alloc(arena, 4096);
    arena.record_user(block.block, side);
    side.is_recorded.store(true, SeqCst);
    side.has_passed.store(true, SeqCst);
    arena.free(block.block);
    assert_ne!(alloc(arena, 4096), block);
    side.is_recorded.store(false, SeqCst);
    assert_eq!(alloc(arena, 4096), block);
}

#[test]
fn a_block_that_graphs_name_stays_until_the_last_is_gone() {
    let (_, ledger) = device(1 << 30);
    let (arena, side) = (ledger.arena(0), stream(7));
    let block = alloc(arena, 4096);
    arena.hold(block.block);
    arena.hold(block.block);
    arena.free(block.block);
    let stats = ledger.stats();
    assert_eq!((stats.allocated, stats.waiting), (0, 4096));
    arena.let_go(block.block, None);
    let other = alloc(arena, 4096);
    assert_ne!(other, block);
    // The last was replayed on another stream, which has not passed yet.
    arena.let_go(block.block, Some(side));
    assert_ne!(alloc(arena, 4096), block);
    side.has_passed.store(true, SeqCst);
    assert_eq!(alloc(arena, 4096), block);
    // One that lives on is nobody's to free.
    arena.hold(other.block);
    arena.let_go(other.block, None);
    assert_ne!(alloc(arena, 4096), other);
    arena.free(other.block);
    assert_eq!(alloc(arena, 4096), other);
    assert_eq!(ledger.stats().waiting, 0);
}

#[test]
fn streams_do_not_share_blocks() {
    let (_, ledger) = device(1 << 30);
    let (main, side) = (ledger.arena(0), ledger.arena(1));
    let block = alloc(main, 100);
    main.free(block.block);
    assert_ne!(alloc(side, 100).address, block.address);
    assert_eq!(alloc(main, 100), block);
}

#[test]
fn a_full_device_gives_back_what_is_free_before_it_refuses() {
    let (fake, ledger) = device(100 << 20);
    let (main, side) = (ledger.arena(0), ledger.arena(1));
    let large = alloc(main, 60 << 20);
    main.free(large.block);
    // 60 MiB are kept for the first stream; the second one gets them after they went back.
    let large = alloc(side, 70 << 20);
    assert_eq!(ledger.stats().retries, 1);
    assert_eq!(fake.held.lock().unwrap().len(), 1);
    // A segment smaller than wished is taken where there is no more.
    let rest = alloc(main, 5 << 20);
    let last = alloc(main, 9 << 20);
    let error = main.alloc(20 << 20, &Label::tensor(DType::F32, &[5, 1 << 20])).unwrap_err();
    assert!(error.is_out_of_memory());
    let text = error.to_string();
    for part in [
        "asked cuda:0 for 20.0 MiB for f32 [5, 1048576]; of 100.0 MiB, ",
        "84.0 MiB are in use by this process",
        "the largest of 3 live tensors:\n    70.0 MiB  bytes",
        "what may help: a smaller batch",
    ] {
        assert!(text.contains(part), "{part} is not in: {text}");
    }
    // The process goes on.
    side.free(large.block);
    main.free(rest.block);
    main.free(last.block);
    assert!(main.alloc(90 << 20, &Label::default()).is_ok());
    let text = main.alloc(1 << 30, &Label::default()).unwrap_err().to_string();
    assert!(text.contains("nothing is as large as this one request; at most 100.0 MiB"), "{text}");
    assert!(main.alloc(usize::MAX, &Label::default()).unwrap_err().is_out_of_memory());
    assert_eq!(ledger.stats().out_of_memory, 3);
}

#[test]
fn pieces_are_told_from_lack() {
    let (_, ledger) = device(64 << 20);
    let arena = ledger.arena(0);
    let blocks: Vec<Allocation> = (0..32).map(|_| alloc(arena, 2 << 20)).collect();
    blocks.iter().step_by(2).for_each(|block| arena.free(block.block));
    let text = arena.alloc(8 << 20, &Label::default()).unwrap_err().to_string();
    assert!(text.contains("in blocks of at most 2.0 MiB"), "{text}");
    assert!(text.contains("enough is reserved but in pieces"), "{text}");
    assert!(ledger.stats().fragmentation() > 0.9);
}

#[test]
fn a_limit_holds() {
    let (_, ledger) = device(1 << 40);
    let arena = ledger.arena(0);
    ledger.set_limit(Some(64 << 20));
    let half = alloc(arena, 40 << 20);
    let text = arena.alloc(40 << 20, &Label::default()).unwrap_err().to_string();
    assert!(text.contains("the limit of this process is 64.0 MiB"), "{text}");
    assert!(text.contains("a higher limit"), "{text}");
    arena.free(half.block);
    alloc(arena, 64 << 20);
    ledger.set_limit(None);
    alloc(arena, 40 << 20);
}

#[test]
fn a_private_pool_is_nobody_elses() {
    let (fake, ledger) = device(64 << 20);
    let arena = ledger.arena(0);
    let pool = MemoryPool::new();
    let (first, second) = pool.scope(|| {
        let arena = current_arena(ledger.arena(0));
        let first = alloc(arena, 30 << 20);
        arena.free(first.block);
        // Reused inside of the pool.
        let again = alloc(arena, 30 << 20);
        assert_eq!(again, first);
        arena.free(again.block);
        (first, alloc(arena, 1000))
    });
    assert_eq!(ledger.snapshot().segments[0].pool, Some(pool.id()));
    // What is free in it goes neither to others nor back, for its graph names the addresses.
    assert!(arena.alloc(40 << 20, &Label::default()).is_err());
    assert_eq!(fake.held.lock().unwrap().len(), 2);
    let inside = pool.scope(|| current_arena(arena));
    drop(pool);
    assert_eq!(fake.held.lock().unwrap().len(), 1);
    assert_ne!(alloc(arena, 40 << 20).address, first.address);
    // The last buffer that outlives its pool takes the segment with it.
    inside.free(second.block);
    assert_eq!(ledger.stats().allocated, 40 << 20);
    assert_eq!(fake.held.lock().unwrap().len(), 1);
    // The next pool takes over what is left of the old one.
    let next = MemoryPool::new();
    assert!(std::ptr::eq(next.scope(|| current_arena(arena)), inside));
}

#[test]
fn nothing_goes_back_while_a_graph_is_recorded() {
    let (fake, ledger) = device(64 << 20);
    let arena = ledger.arena(0);
    arena.free(alloc(arena, 40 << 20).block);
    fake.is_capturing.store(true, SeqCst);
    assert!(arena.alloc(50 << 20, &Label::default()).is_err());
    ledger.release_free().unwrap();
    assert_eq!(ledger.stats().reserved, 40 << 20);
    fake.is_capturing.store(false, SeqCst);
    assert!(arena.alloc(50 << 20, &Label::default()).is_ok());
}

/// A walk of random requests over two streams that use each other's blocks: no two live or waiting
/// blocks overlap, and at the end nothing is left.
#[test]
fn threads_and_streams_never_share_a_byte() {
    let (_, ledger) = device(1 << 40);
    let taken: Mutex<std::collections::BTreeMap<u64, u64>> = Mutex::default();
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let taken = &taken;
            scope.spawn(move || {
                let (own, other) = (ledger.arena(thread % 2), stream(100 + thread));
                let mut seed = 77 + thread;
                let mut random = |n: u64| {
                    seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    (seed >> 33) % n
                };
                let mut live: Vec<(Allocation, u64)> = Vec::new();
                for step in 0..5_000 {
                    other.has_passed.store(step % 64 > 32, SeqCst);
                    if live.len() < 40 || random(2) == 0 {
                        let exponent = random(22);
                        let bytes = 1 + random(1 << exponent);
                        let block = alloc(own, bytes as usize);
                        let mut taken = taken.lock().unwrap();
                        let before = taken.range(..block.address + bytes).next_back();
                        let is_apart = before.is_none_or(|(_, &end)| end <= block.address);
                        assert!(is_apart, "{block:?} of {bytes} bytes overlaps {before:x?}");
                        taken.insert(block.address, block.address + bytes);
                        live.push((block, bytes));
                    } else {
                        let (block, _) = live.swap_remove(random(live.len() as u64) as usize);
                        if random(4) == 0 {
                            own.record_user(block.block, other);
                        }
                        taken.lock().unwrap().remove(&block.address);
                        own.free(block.block);
                    }
                }
                other.has_passed.store(true, SeqCst);
                live.iter().for_each(|(block, _)| own.free(block.block));
            });
        }
    });
    ledger.release_free().unwrap();
    let stats = ledger.stats();
    assert_eq!((stats.allocated, stats.reserved, stats.waiting), (0, 0, 0));
    assert_eq!(stats.allocations, stats.frees);
}

/// Allocated bytes after each event of the device that the test of the hook uses.
static TOLD: Mutex<Vec<(MemoryEventKind, usize, usize)>> = Mutex::new(Vec::new());

#[test]
fn a_hook_is_told_of_everything() {
    const DEVICE: Device = Device::Cuda(77);
    // Tests of other threads are told of as well.
    set_memory_hook(Some(|event| {
        if event.device == DEVICE {
            TOLD.lock().unwrap().push((event.kind, event.bytes, event.allocated));
        }
    }));
    let fake = device(8 << 20).0;
    let ledger: &'static Ledger =
        Box::leak(Box::new(Ledger::new(DEVICE, DEVICE.to_string(), fake)));
    let arena = ledger.arena(0);
    arena.free(alloc(arena, 1000).block);
    assert!(arena.alloc(1 << 30, &Label::default()).is_err());
    set_memory_hook(None);
    arena.free(alloc(arena, 1000).block);
    use MemoryEventKind::{Alloc, Free, OutOfMemory, Release, Reserve};
    let want = [
        (Reserve, 2 << 20, 0),
        (Alloc, 1024, 1024),
        (Free, 1024, 0),
        (Release, 2 << 20, 0),
        (OutOfMemory, 1 << 30, 0),
    ];
    assert_eq!(*TOLD.lock().unwrap(), want);
}
