//! Captures and graphs.

use std::ffi::c_ulonglong;

use cudarc::driver::sys::{
    CUgraph, CUgraphExec, CUgraphExecUpdateResult_enum, CUgraphExecUpdateResultInfo, CUgraphNode,
    CUresult, CUstream, CUstreamCaptureMode, CUstreamCaptureStatus, cuuint64_t,
};

use super::{answer, give, handle, number};
use crate::answer::Answer;
use crate::driver::lock;
use crate::stream::enqueue;
use crate::work::Work;

const NO_HANDLE: CUresult = CUresult::CUDA_ERROR_INVALID_HANDLE;

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamBeginCapture_v2(
    stream: CUstream,
    mode: CUstreamCaptureMode,
) -> CUresult {
    answer(|| lock().begin_capture(number(stream), mode))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamEndCapture(stream: CUstream, graph: *mut CUgraph) -> CUresult {
    answer(|| {
        let mut driver = lock();
        let captured = driver.end_capture(number(stream))?;
        let new = driver.add_graph(captured);
        give(graph, handle(new))
    })
}

fn status(stream: CUstream) -> Answer<(CUstreamCaptureStatus, u64)> {
    let mut driver = lock();
    let stream = driver.stream(number(stream))?;
    let Some(capture) = driver.streams[&stream].capture else {
        return Ok((CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE, 0));
    };
    let is_broken = driver.captures.get(&capture).is_none_or(|capture| capture.is_broken);
    Ok(match is_broken {
        true => (CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_INVALIDATED, capture),
        false => (CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE, capture),
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamIsCapturing(
    stream: CUstream,
    to: *mut CUstreamCaptureStatus,
) -> CUresult {
    answer(|| give(to, status(stream)?.0))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamGetCaptureInfo_v2(
    stream: CUstream,
    to: *mut CUstreamCaptureStatus,
    id: *mut cuuint64_t,
    graph: *mut CUgraph,
    dependencies: *mut *const CUgraphNode,
    count: *mut usize,
) -> CUresult {
    answer(|| {
        let (found, capture) = status(stream)?;
        give(to, found)?;
        if !id.is_null() {
            give(id, capture)?;
        }
        // The graph of a capture in progress has no handle of its own.
        match graph.is_null() && dependencies.is_null() && count.is_null() {
            true => Ok(()),
            false => Err(CUresult::CUDA_ERROR_NOT_SUPPORTED),
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGraphInstantiateWithFlags(
    exec: *mut CUgraphExec,
    graph: CUgraph,
    _flags: c_ulonglong,
) -> CUresult {
    answer(|| {
        let mut driver = lock();
        let graph = driver.graphs.get(&number(graph)).cloned().ok_or(NO_HANDLE)?;
        let new = driver.handle();
        driver.execs.insert(new, graph);
        give(exec, handle(new))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGraphLaunch(exec: CUgraphExec, stream: CUstream) -> CUresult {
    answer(|| {
        let graph = lock().execs.get(&number(exec)).cloned().ok_or(NO_HANDLE)?;
        enqueue(number(stream), Work::Graph(graph))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGraphExecUpdate_v2(
    exec: CUgraphExec,
    graph: CUgraph,
    info: *mut CUgraphExecUpdateResultInfo,
) -> CUresult {
    answer(|| {
        let mut driver = lock();
        let new = driver.graphs.get(&number(graph)).cloned().ok_or(NO_HANDLE)?;
        let old = driver.execs.get_mut(&number(exec)).ok_or(NO_HANDLE)?;
        let fits = old.shape() == new.shape();
        let result = match fits {
            true => CUgraphExecUpdateResult_enum::CU_GRAPH_EXEC_UPDATE_SUCCESS,
            false => CUgraphExecUpdateResult_enum::CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED,
        };
        let none = std::ptr::null_mut();
        give(info, CUgraphExecUpdateResultInfo { result, errorNode: none, errorFromNode: none })?;
        if !fits {
            return Err(CUresult::CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
        }
        *old = new;
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGraphExecDestroy(exec: CUgraphExec) -> CUresult {
    answer(|| lock().execs.remove(&number(exec)).map(drop).ok_or(NO_HANDLE))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGraphDestroy(graph: CUgraph) -> CUresult {
    answer(|| lock().graphs.remove(&number(graph)).map(drop).ok_or(NO_HANDLE))
}

/// How many nodes there are; the nodes themselves have no handles.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuGraphGetNodes(
    graph: CUgraph,
    nodes: *mut CUgraphNode,
    count: *mut usize,
) -> CUresult {
    answer(|| {
        let found = lock().graphs.get(&number(graph)).ok_or(NO_HANDLE)?.nodes();
        if !nodes.is_null() {
            return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
        }
        give(count, found)
    })
}
