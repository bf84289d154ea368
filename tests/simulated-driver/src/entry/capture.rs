//! Capture of streams into graphs: CUDA driver API, "Stream Management".
//!
//! What a capture allows and what breaks it is decided in `execution/capture.rs`; here are handles and arrays.
//! Read next: `graph.rs`, for what becomes of a captured graph.

use std::cell::RefCell;
use std::ffi::c_uint;
use std::sync::Arc;

use turnus_bindings::CUerror;
use turnus_bindings::types::*;

use super::graph::check_plain;
use super::{entry, needed, put, put_if_wanted, stream_entry};
use crate::execution::{self, CaptureInfo, CaptureMode, CaptureStatus, DependencyUpdate, Graph, NodeId};
use crate::graphs::{graph, handle_of, node_handle};
use crate::space::Result;
use crate::stream::{Default, StreamEntry, resolve};

thread_local! {
    /// What `dependencies_out` of the last query points to.
    static DEPENDENCIES: RefCell<Vec<CUgraphNode>> = const { RefCell::new(Vec::new()) };
}

entry! {
    fn cuThreadExchangeStreamCaptureMode(mode: *mut CUstreamCaptureMode) {
        needed(mode)?;
        let before = execution::exchange_thread_mode(mode_of(mode.read())?);
        put(mode, CUstreamCaptureMode_enum(match before {
            CaptureMode::Global => 0,
            CaptureMode::ThreadLocal => 1,
            CaptureMode::Relaxed => 2,
        }))
    }
}

stream_entry! {
    // The first version had no mode: global.
    fn cuStreamBeginCapture | cuStreamBeginCapture_ptsz [default] (h_stream: CUstream) {
        begin(h_stream, default, CUstreamCaptureMode_enum(0), None)
    }

    fn cuStreamBeginCapture_v2 | cuStreamBeginCapture_v2_ptsz [default] (
        h_stream: CUstream,
        mode: CUstreamCaptureMode,
    ) {
        begin(h_stream, default, mode, None)
    }

    fn cuStreamBeginCaptureToGraph | cuStreamBeginCaptureToGraph_ptsz [default] (
        h_stream: CUstream,
        h_graph: CUgraph,
        dependencies: *const CUgraphNode,
        dependency_data: *const CUgraphEdgeData,
        num_dependencies: usize,
        mode: CUstreamCaptureMode,
    ) {
        check_plain(dependency_data, num_dependencies)?;
        let into = (graph(h_graph)?, nodes(dependencies, num_dependencies)?);
        begin(h_stream, default, mode, Some(into))
    }

    fn cuStreamEndCapture | cuStreamEndCapture_ptsz [default] (h_stream: CUstream, ph_graph: *mut CUgraph) {
        needed(ph_graph)?;
        let entry = resolve(h_stream, default)?;
        put(ph_graph, std::ptr::null_mut())?;
        put(ph_graph, handle_of(&execution::end(&entry.context.queue, &entry.stream)?) as CUgraph)
    }

    fn cuStreamIsCapturing | cuStreamIsCapturing_ptsz [default] (
        h_stream: CUstream,
        capture_status: *mut CUstreamCaptureStatus,
    ) {
        needed(capture_status)?;
        let entry = resolve(h_stream, default)?;
        put(capture_status, number_of(execution::status(&entry.context.queue, &entry.stream)?))
    }

    fn cuStreamGetCaptureInfo | cuStreamGetCaptureInfo_ptsz [default] (
        h_stream: CUstream,
        capture_status_out: *mut CUstreamCaptureStatus,
        id_out: *mut cuuint64_t,
    ) {
        needed(capture_status_out)?;
        let (status, info) = information(&resolve(h_stream, default)?)?;
        put(capture_status_out, status)?;
        put_if_wanted(id_out, info.map_or(0, |info| info.id));
        Ok(())
    }

    fn cuStreamGetCaptureInfo_v2 | cuStreamGetCaptureInfo_v2_ptsz [default] (
        h_stream: CUstream,
        capture_status_out: *mut CUstreamCaptureStatus,
        id_out: *mut cuuint64_t,
        graph_out: *mut CUgraph,
        dependencies_out: *mut *const CUgraphNode,
        num_dependencies_out: *mut usize,
    ) {
        needed(capture_status_out)?;
        let (status, info) = information(&resolve(h_stream, default)?)?;
        put(capture_status_out, status)?;
        let Some(info) = info else { return Ok(()) };
        put_if_wanted(id_out, info.id);
        put_if_wanted(graph_out, handle_of(&info.graph) as CUgraph);
        put_dependencies(&info, dependencies_out, num_dependencies_out);
        Ok(())
    }

    fn cuStreamGetCaptureInfo_v3 | cuStreamGetCaptureInfo_v3_ptsz [default] (
        h_stream: CUstream,
        capture_status_out: *mut CUstreamCaptureStatus,
        id_out: *mut cuuint64_t,
        graph_out: *mut CUgraph,
        dependencies_out: *mut *const CUgraphNode,
        edge_data_out: *mut *const CUgraphEdgeData,
        num_dependencies_out: *mut usize,
    ) {
        needed(capture_status_out)?;
        let (status, info) = information(&resolve(h_stream, default)?)?;
        put(capture_status_out, status)?;
        let Some(info) = info else { return Ok(()) };
        put_if_wanted(id_out, info.id);
        put_if_wanted(graph_out, handle_of(&info.graph) as CUgraph);
        put_if_wanted(edge_data_out, std::ptr::null());
        put_dependencies(&info, dependencies_out, num_dependencies_out);
        Ok(())
    }

    fn cuStreamUpdateCaptureDependencies | cuStreamUpdateCaptureDependencies_ptsz [default] (
        h_stream: CUstream,
        dependencies: *mut CUgraphNode,
        num_dependencies: usize,
        flags: c_uint,
    ) {
        update(&resolve(h_stream, default)?, nodes(dependencies, num_dependencies)?, flags)
    }

    fn cuStreamUpdateCaptureDependencies_v2 | cuStreamUpdateCaptureDependencies_v2_ptsz [default] (
        h_stream: CUstream,
        dependencies: *mut CUgraphNode,
        dependency_data: *const CUgraphEdgeData,
        num_dependencies: usize,
        flags: c_uint,
    ) {
        check_plain(dependency_data, num_dependencies)?;
        update(&resolve(h_stream, default)?, nodes(dependencies, num_dependencies)?, flags)
    }
}

fn mode_of(mode: CUstreamCaptureMode) -> Result<CaptureMode> {
    Ok(match mode.0 {
        0 => CaptureMode::Global,
        1 => CaptureMode::ThreadLocal,
        2 => CaptureMode::Relaxed,
        _ => return Err(CUerror::INVALID_VALUE),
    })
}

fn number_of(status: CaptureStatus) -> CUstreamCaptureStatus {
    CUstreamCaptureStatus_enum(match status {
        CaptureStatus::None => 0,
        CaptureStatus::Active => 1,
        CaptureStatus::Invalidated => 2,
    })
}

fn begin(
    stream: CUstream,
    default: Default,
    mode: CUstreamCaptureMode,
    into: Option<(Arc<Graph>, Vec<NodeId>)>,
) -> CUresult {
    let entry = resolve(stream, default)?;
    execution::begin(&entry.context.queue, &entry.stream, mode_of(mode)?, into)
}

fn information(entry: &StreamEntry) -> Result<(CUstreamCaptureStatus, Option<CaptureInfo>)> {
    let (status, info) = execution::info(&entry.context.queue, &entry.stream)?;
    Ok((number_of(status), info))
}

fn update(entry: &StreamEntry, nodes: Vec<NodeId>, flags: c_uint) -> CUresult {
    let update = match flags {
        0 => DependencyUpdate::Add,
        1 => DependencyUpdate::Set,
        _ => return Err(CUerror::INVALID_VALUE),
    };
    execution::update_dependencies(&entry.context.queue, &entry.stream, &nodes, update)
}

/// Node handles of an array of the caller's.
///
/// # Safety
/// `place` has `count` elements or `count` is 0.
pub(super) unsafe fn nodes(place: *const CUgraphNode, count: usize) -> Result<Vec<NodeId>> {
    if count == 0 {
        return Ok(Vec::new());
    }
    needed(place)?;
    // SAFETY: the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts(place, count) }.iter().map(|&node| NodeId(node as u64)).collect())
}

/// The array lives until the thread asks again, which is longer than documented.
///
/// # Safety
/// The places are null or valid for writing.
unsafe fn put_dependencies(info: &CaptureInfo, place: *mut *const CUgraphNode, count: *mut usize) {
    let _ = DEPENDENCIES.try_with(|dependencies| {
        let mut dependencies = dependencies.borrow_mut();
        *dependencies = info.dependencies.iter().map(|&node| node_handle(node)).collect();
        // SAFETY: the caller's promise.
        unsafe { put_if_wanted(place, dependencies.as_ptr()) };
    });
    // SAFETY: the caller's promise.
    unsafe { put_if_wanted(count, info.dependencies.len()) };
}
