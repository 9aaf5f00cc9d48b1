//! Out-of-range indices of GPU ops: found by the launch that reads them, reported at the next synchronizing read.
//!
//! A launch does not wait, so that an op on a GPU can't refuse what it has not seen. Its kernel sends a
//! wrong index to a place that is none, so that nothing outside of the tensor is touched, and leaves the
//! number of the launch and the index in words of the device. The thread that launched finds them there
//! when it next brings values to the host: that read fails with the op's name, the index and the extent,
//! and the words are clear again.
//!
//! The words are of a thread, so that none is told of another's mistake. Those of a thread that is gone
//! are told to the next that reads.
//!
//! ```text
//! word 0: the code of the first launch that found one, 0 where all is well
//! word 1 + (number of the launch % 1024): the largest index that it refused
//! ```

use std::sync::{Arc, Mutex, PoisonError, Weak};

use genesis_kernel::ir::{DType, Scalar};
use genesis_kernel::launch_at_once;
use genesis_kernel::runtime::{Arg, Device};
use kernels::index as device;

use crate::error::{Error, Result};
use crate::launch;
use crate::tensor::Tensor;

/// Launches that are remembered, as the kernels know.
const LAUNCHES: usize = 1024;
/// A word in which no index was left.
const NONE: i64 = i64::MIN;

/// A launch that reads indices.
#[derive(Clone, Debug)]
struct Call {
    op: &'static str,
    code: i64,
    extent: usize,
}

/// The words of a thread on a device, and what it launched.
struct Flags {
    on: Device,
    thread: Weak<()>,
    words: Tensor,
    next: u64,
    calls: Vec<Option<Call>>,
}

static FLAGS: Mutex<Vec<Flags>> = Mutex::new(Vec::new());

thread_local! {
    /// Lives as long as the thread does.
    static THREAD: Arc<()> = Arc::new(());
}

/// This thread; none where it is about to end.
fn this_thread() -> Option<Arc<()>> {
    THREAD.try_with(Arc::clone).ok()
}

/// What a launch leaves of its number: the first has the largest, and none is 0 or a multiple of 16, for
/// which there would be code of its own.
fn code_of(number: u64) -> i64 {
    ((1 << 50) - 1 - number as i64) * 16 + 1
}

/// Which of the words and calls are those of a code, as the kernels reckon.
fn slot_of(code: i64) -> usize {
    (code >> 4) as usize % LAUNCHES
}

impl Flags {
    #[track_caller]
    fn new(on: Device, thread: &Arc<()>) -> Result<Flags> {
        let words = Tensor::uninitialized(&[1 + LAUNCHES], (DType::I64, on))?;
        launch_at_once(|| clear(&words))?;
        Ok(Flags {
            on,
            thread: Arc::downgrade(thread),
            words,
            next: 0,
            calls: vec![None; LAUNCHES],
        })
    }

    fn is_of(&self, on: Device, thread: &Arc<()>) -> bool {
        self.on == on && std::ptr::eq(self.thread.as_ptr(), Arc::as_ptr(thread))
    }

    /// The words, and the code of one more launch.
    fn take(&mut self, op: &'static str, extent: usize) -> (Tensor, i64) {
        let code = code_of(self.next);
        self.next += 1;
        self.calls[slot_of(code)] = Some(Call { op, code, extent });
        (self.words.clone(), code)
    }
}

fn word(words: &Tensor, index: usize) -> Result<i64> {
    let mut bytes = [0; 8];
    words.storage().buffer().read(8 * index, &mut bytes)?;
    Ok(i64::from_le_bytes(bytes))
}

/// Writes that no launch found anything.
fn clear(words: &Tensor) -> Result<()> {
    launch::fill(words, Scalar::int(DType::I64, NONE))?;
    launch::fill(&words.narrow(0, 0, 1)?, Scalar::int(DType::I64, 0))
}

/// The code of the first launch that found an index that was not there, and the index; the words are
/// clear then.
fn found(words: &Tensor) -> Result<Option<(i64, i64)>> {
    let code = word(words, 0)?;
    if code == 0 {
        return Ok(None);
    }
    let index = word(words, 1 + slot_of(code))?;
    clear(words)?;
    Ok(Some((code, index)))
}

fn is_same(a: &Tensor, b: &Tensor) -> bool {
    Arc::ptr_eq(a.storage(), b.storage())
}

/// What is told of an index that was not there.
fn refusal(call: Option<&Call>, index: i64, when: &str) -> Error {
    match call {
        Some(Call { op, extent, .. }) => {
            Error::op(*op, format!("index {index} is out of range for {extent} elements{when}"))
        }
        None => Error::op("index", format!("{index} was out of range{when}")),
    }
}

/// Where a kernel leaves an index of `op` that is not there: the words and the code of the launch, as
/// arguments.
#[track_caller]
pub(in crate::ops) fn args(op: &'static str, on: Device, extent: usize) -> Result<[Arg; 2]> {
    let thread = this_thread().unwrap_or_default();
    let mut flags = FLAGS.lock().unwrap_or_else(PoisonError::into_inner);
    let at = match flags.iter().position(|flags| flags.is_of(on, &thread)) {
        Some(at) => at,
        None => {
            flags.push(Flags::new(on, &thread)?);
            flags.len() - 1
        }
    };
    let (words, code) = flags[at].take(op, extent);
    Ok([launch::pointer(&words, true), Arg::Scalar(Scalar::int(DType::I64, code))])
}

/// Which indices are in range, and what one is multiplied by.
#[derive(Clone, Copy)]
pub(in crate::ops) struct Range {
    /// How many elements there are.
    pub(in crate::ops) extent: usize,
    /// Whether what is below 0 counts from the end.
    pub(in crate::ops) wraps: bool,
    /// The distance of two elements.
    pub(in crate::ops) step: i64,
}

/// `step` times an index. One that is not there becomes a place far below 0, and is told.
#[track_caller]
pub(in crate::ops) fn resolve(op: &'static str, index: &Tensor, range: Range) -> Result<Tensor> {
    let Range { extent, wraps, step } = range;
    let places = Tensor::uninitialized(index.shape(), (DType::I64, index.device()))?;
    let low = if wraps { -(extent as i64) } else { 0 };
    let number = |value: i64| Arg::Scalar(Scalar::int(DType::I64, value));
    let [words, code] = args(op, index.device(), extent)?;
    let numbers = [number(extent as i64), number(low), number(step), words, code];
    launch::strided(&device::resolve::KERNEL, &[], &[index], &places, &numbers)?;
    Ok(places)
}

/// Refuses where a launch of this thread found an index that was not there; to be called when the device
/// is done.
pub(crate) fn check(on: Device) -> Result<()> {
    told(on, "; found when values were read")
}

/// Refuses what the launch before this found, on the CPU, which is done with it.
pub(in crate::ops) fn refuse(on: Device) -> Result<()> {
    if on == Device::Cpu { told(on, "") } else { Ok(()) }
}

fn told(on: Device, when: &str) -> Result<()> {
    let lock = || FLAGS.lock().unwrap_or_else(PoisonError::into_inner);
    let thread = this_thread().unwrap_or_default();
    // Nobody else is to be told of those of threads that are gone.
    let is_told = |flags: &&Flags| {
        flags.on == on && (flags.is_of(on, &thread) || flags.thread.strong_count() == 0)
    };
    // The device is not waited for with the lock held.
    let all: Vec<Tensor> = lock().iter().filter(is_told).map(|flags| flags.words.clone()).collect();
    let mut wrong = None;
    for words in &all {
        let Some((code, index)) = found(words)? else { continue };
        let flags = lock();
        let own = flags.iter().find(|flags| is_same(&flags.words, words));
        let call = own.and_then(|flags| flags.calls[slot_of(code)].as_ref());
        wrong = Some(refusal(call.filter(|call| call.code == code), index, when));
    }
    let is_read = |flags: &Flags| all.iter().any(|words| is_same(&flags.words, words));
    if all.len() > 1 {
        lock().retain(|flags| flags.thread.strong_count() > 0 || !is_read(flags));
    }
    wrong.map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIVE: Range = Range { extent: 5, wraps: true, step: 10 };

    fn indices(values: &[i64]) -> Result<Tensor> {
        Tensor::from_slice_on(values, &[values.len()], Device::Cpu)
    }

    #[test]
    fn a_wrong_index_goes_nowhere_and_is_told_once() -> Result<()> {
        let places = resolve("gather", &indices(&[1, -1, 5, -6, 0])?, FIVE)?.to_vec::<i64>()?;
        assert_eq!([places[0], places[1], places[4]], [10, 40, 0]);
        assert!(places[2] < -(1 << 60) && places[3] < -(1 << 60));
        let error = check(Device::Cpu).expect_err("5 and -6 are not in 0..5");
        let text = "gather: index 5 is out of range for 5 elements; found when values were read";
        assert_eq!(error.to_string(), text);
        check(Device::Cpu)
    }

    #[test]
    fn the_first_launch_with_a_wrong_index_is_the_one_that_is_told() -> Result<()> {
        resolve("gather", &indices(&[4, 0])?, FIVE)?;
        resolve("take", &indices(&[7])?, FIVE)?;
        resolve("put", &indices(&[9])?, FIVE)?;
        resolve("one_hot", &indices(&[-1])?, Range { wraps: false, ..FIVE })?;
        let error = check(Device::Cpu).expect_err("7 is not in 0..5");
        assert!(error.to_string().starts_with("take: index 7 is out of range"), "{error}");
        check(Device::Cpu)?;
        resolve("one_hot", &indices(&[-1])?, Range { wraps: false, ..FIVE })?;
        let error = check(Device::Cpu).expect_err("classes do not count from the end");
        assert!(error.to_string().starts_with("one_hot: index -1 "), "{error}");
        Ok(())
    }

    #[test]
    fn no_thread_is_told_of_the_mistake_of_another() -> Result<()> {
        resolve("gather", &indices(&[5])?, FIVE)?;
        std::thread::scope(|scope| scope.spawn(|| check(Device::Cpu)).join())
            .expect("it does not panic")?;
        assert!(check(Device::Cpu).is_err());
        check(Device::Cpu)
    }

    #[test]
    fn more_launches_than_are_remembered_do_not_hide_one() -> Result<()> {
        resolve("take", &indices(&[6])?, FIVE)?;
        for _ in 0..LAUNCHES {
            resolve("gather", &indices(&[0])?, FIVE)?;
        }
        let error = check(Device::Cpu).expect_err("6 is not in 0..5");
        assert_eq!(error.to_string(), "index: 6 was out of range; found when values were read");
        check(Device::Cpu)
    }

    #[test]
    fn codes_fall_and_are_no_multiples_of_two() {
        let codes: Vec<i64> = (0..3 * LAUNCHES as u64).map(code_of).collect();
        assert!(codes.iter().all(|code| code % 2 == 1 && *code > 0));
        assert!(codes.windows(2).all(|pair| pair[0] > pair[1]));
        assert_eq!(slot_of(codes[0]), slot_of(codes[LAUNCHES]));
    }
}
