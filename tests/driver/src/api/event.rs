//! Events.

use std::ffi::c_uint;

use cudarc::driver::sys::{CUevent, CUevent_flags, CUevent_record_flags, CUresult, CUstream};

use super::{answer, give, handle, number};
use crate::answer::Answer;
use crate::driver::lock;
use crate::run::{advance, wait_for};
use crate::work::Event;

#[unsafe(no_mangle)]
unsafe extern "C" fn cuEventCreate(event: *mut CUevent, flags: c_uint) -> CUresult {
    answer(|| {
        let mut driver = lock();
        let device = driver.device()?;
        let new = driver.handle();
        let is_timed = flags & CUevent_flags::CU_EVENT_DISABLE_TIMING as c_uint == 0;
        driver.events.insert(new, Event::new(device, is_timed));
        give(event, handle(new))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuEventDestroy_v2(event: CUevent) -> CUresult {
    answer(|| match lock().events.remove(&number(event)) {
        Some(_) => Ok(()),
        None => Err(CUresult::CUDA_ERROR_INVALID_HANDLE),
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuEventRecord(event: CUevent, stream: CUstream) -> CUresult {
    answer(|| lock().mark(number(event), number(stream), false))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuEventRecordWithFlags(
    event: CUevent,
    stream: CUstream,
    flags: c_uint,
) -> CUresult {
    let external = CUevent_record_flags::CU_EVENT_RECORD_EXTERNAL as c_uint;
    answer(|| lock().mark(number(event), number(stream), flags & external != 0))
}

/// Where an event is in its stream if that has not come there yet.
fn ahead(event: u64) -> Answer<Option<(u64, u64)>> {
    let driver = lock();
    let event = driver.events.get(&event).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
    driver.alive(event.device)?;
    if event.captured.is_some() {
        return Err(CUresult::CUDA_ERROR_CAPTURED_EVENT);
    }
    Ok(event.mark.filter(|(stream, upto)| {
        driver.streams.get(stream).is_some_and(|stream| stream.done < *upto)
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuEventQuery(event: CUevent) -> CUresult {
    answer(|| match ahead(number(event))? {
        None => Ok(()),
        Some((stream, _)) => {
            advance(stream);
            // A fault of what ran.
            ahead(number(event))?;
            Err(CUresult::CUDA_ERROR_NOT_READY)
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuEventSynchronize(event: CUevent) -> CUresult {
    answer(|| {
        ahead(number(event))?;
        let mark = lock().events.get(&number(event)).and_then(|event| event.mark);
        if let Some((stream, upto)) = mark {
            wait_for(stream, upto);
        }
        ahead(number(event)).map(drop)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuEventElapsedTime(ms: *mut f32, start: CUevent, end: CUevent) -> CUresult {
    answer(|| {
        for event in [start, end] {
            if ahead(number(event))?.is_some() {
                return Err(CUresult::CUDA_ERROR_NOT_READY);
            }
        }
        let driver = lock();
        let time = |event: CUevent| {
            let event = driver.events.get(&number(event)).filter(|event| event.is_timed);
            event.and_then(|event| event.time).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
        };
        let (start, end) = (time(start)?, time(end)?);
        give(ms, (end as f64 - start as f64) as f32 / 1e6)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuEventElapsedTime_v2(ms: *mut f32, start: CUevent, end: CUevent) -> CUresult {
    cuEventElapsedTime(ms, start, end)
}
