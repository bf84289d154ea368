//! Instantiated graphs changed: node by node, switched off, and by another graph of the same shape.
//!
//! Rules: CUDA driver API, "Graph Management", above all cuGraphExecUpdate.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering};

use turnus_bindings::types::*;

use crate::common::{STORE_ONE, allocate, context, function, isolated};
use crate::graph_support::{
    add_copy, add_empty, add_fill, add_to, copy_of, current, fill_of, graph, instantiate, read, run, run_of,
};

#[test]
fn an_instantiated_graph_takes_new_parameters() {
    isolated("an_instantiated_graph_takes_new_parameters", &[], || {
        context();
        let kernel = function(STORE_ONE, c"store_one");
        let (a, b, c, own) = (allocate(4), allocate(4), allocate(4), graph());
        let (first, second) = (AtomicU32::new(0), AtomicU32::new(0));
        let data = |calls: &AtomicU32| std::ptr::from_ref(calls).cast_mut().cast::<c_void>();
        let fill = add_fill(own, &[], a, 5);
        let copy = add_copy(own, &[fill], b, a);
        let (mut place, mut other_place) = (c, allocate(4));
        let mut pointers = [(&raw mut place).cast::<c_void>()];
        let (mut store, mut host) = (fill, fill);
        ok!(cuGraphAddKernelNode_v2(&mut store, own, &copy, 1, &run_of(kernel, &mut pointers)));
        let said = CUDA_HOST_NODE_PARAMS { fn_: Some(add_to), userData: data(&first) };
        ok!(cuGraphAddHostNode(&mut host, own, &store, 1, &said));
        let exec = instantiate(own);
        run(exec);
        assert_eq!((read(a), read(b), read(c), first.load(Ordering::SeqCst)), (5, 5, 1, 1));

        let d = allocate(4);
        let mut other_pointers = [(&raw mut other_place).cast::<c_void>()];
        ok!(cuGraphExecMemsetNodeSetParams(exec, fill, &fill_of(a, 6), current()));
        ok!(cuGraphExecMemcpyNodeSetParams(exec, copy, &copy_of(d, a, 4), current()));
        ok!(cuGraphExecKernelNodeSetParams_v2(exec, store, &run_of(kernel, &mut other_pointers)));
        let said = CUDA_HOST_NODE_PARAMS { fn_: Some(add_to), userData: data(&second) };
        ok!(cuGraphExecHostNodeSetParams(exec, host, &said));
        run(exec);
        assert_eq!((read(a), read(b), read(d), read(other_place)), (6, 5, 6, 1));
        assert_eq!((first.load(Ordering::SeqCst), second.load(Ordering::SeqCst)), (1, 1));
        let mut told = fill_of(0, 0);
        ok!(cuGraphMemsetNodeGetParams(fill, &mut told));
        assert_eq!(told.value, 5, "the graph's own node stays");

        // Limits: kinds stay, copies and memsets have one dimension and are not empty.
        fails!(INVALID_VALUE, cuGraphExecMemsetNodeSetParams(exec, copy, &fill_of(a, 6), current()));
        let flat = CUDA_MEMSET_NODE_PARAMS { pitch: 512, width: 1, height: 2, ..fill_of(allocate(1024), 1) };
        fails!(INVALID_VALUE, cuGraphExecMemsetNodeSetParams(exec, fill, &flat, current()));
        let mut rows = copy_of(allocate(64), allocate(64), 4);
        (rows.Height, rows.srcPitch, rows.dstPitch) = (2, 8, 8);
        fails!(INVALID_VALUE, cuGraphExecMemcpyNodeSetParams(exec, copy, &rows, current()));
        let stranger = add_fill(graph(), &[], a, 1);
        fails!(INVALID_VALUE, cuGraphExecMemsetNodeSetParams(exec, stranger, &fill_of(a, 6), current()));
        // New parameters of the graph's node have no effect on what is instantiated.
        ok!(cuGraphMemsetNodeSetParams(fill, &fill_of(a, 8)));
        run(exec);
        assert_eq!(read(a), 6);
        run(instantiate(own));
        assert_eq!(read(a), 8);
    });
}

#[test]
fn a_node_can_be_switched_off() {
    isolated("a_node_can_be_switched_off", &[], || {
        context();
        let (a, own) = (allocate(4), graph());
        let fill = add_fill(own, &[], a, 1);
        let empty = add_empty(own, &[fill]);
        let exec = instantiate(own);
        let mut enabled = 7;
        ok!(cuGraphNodeGetEnabled(exec, fill, &mut enabled));
        assert_eq!(enabled, 1);
        ok!(cuMemsetD32_v2(a, 0, 1));
        ok!(cuGraphNodeSetEnabled(exec, fill, 0));
        ok!(cuGraphNodeGetEnabled(exec, fill, &mut enabled));
        assert_eq!(enabled, 0);
        run(exec);
        assert_eq!(read(a), 0);
        ok!(cuGraphExecMemsetNodeSetParams(exec, fill, &fill_of(a, 3), current()));
        ok!(cuGraphNodeSetEnabled(exec, fill, 1));
        run(exec);
        assert_eq!(read(a), 3);
        fails!(INVALID_VALUE, cuGraphNodeSetEnabled(exec, empty, 0));
    });
}

#[test]
fn an_update_says_where_graphs_differ() {
    isolated("an_update_says_where_graphs_differ", &[], || {
        context();
        let (a, b, own) = (allocate(4), allocate(4), graph());
        let fill = add_fill(own, &[], a, 1);
        add_copy(own, &[fill], b, a);
        let exec = instantiate(own);
        let update = |graph: CUgraph| {
            let mut told = CUgraphExecUpdateResultInfo {
                result: CU_GRAPH_EXEC_UPDATE_ERROR,
                errorNode: std::ptr::null_mut(),
                errorFromNode: std::ptr::null_mut(),
            };
            let outcome = call!(cuGraphExecUpdate_v2(exec, graph, &mut told));
            (outcome, told.result, told.errorNode, told.errorFromNode)
        };
        let null = std::ptr::null_mut();
        let refused = Err(turnus_bindings::CUerror::GRAPH_EXEC_UPDATE_FAILURE);

        let same = graph();
        let fill = add_fill(same, &[], a, 9);
        add_copy(same, &[fill], b, a);
        assert_eq!(update(same), (Ok(()), CU_GRAPH_EXEC_UPDATE_SUCCESS, null, null));
        run(exec);
        assert_eq!(read(b), 9);

        let more = graph();
        let fill = add_fill(more, &[], a, 1);
        add_copy(more, &[fill], b, a);
        add_empty(more, &[]);
        assert_eq!(update(more), (refused, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, null, null));

        let kinds = graph();
        let fill = add_fill(kinds, &[], a, 1);
        let second = add_fill(kinds, &[fill], b, 1);
        assert_eq!(update(kinds), (refused, CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED, second, null));

        let apart = graph();
        add_fill(apart, &[], a, 1);
        add_copy(apart, &[], b, a);
        let (outcome, result, node, _) = update(apart);
        assert_eq!((outcome, result), (refused, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED));
        assert_ne!(node, null, "one of the nodes that end the graph");

        let flat = graph();
        let mut fill = null;
        let said = CUDA_MEMSET_NODE_PARAMS { pitch: 512, height: 2, ..fill_of(allocate(1024), 1) };
        ok!(cuGraphAddMemsetNode(&mut fill, flat, std::ptr::null(), 0, &said, current()));
        add_copy(flat, &[fill], b, a);
        assert_eq!(update(flat), (refused, CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED, fill, null));
        run(exec);
        assert_eq!(read(b), 9, "a refused update changes nothing");

        let (mut result, mut node) = (CU_GRAPH_EXEC_UPDATE_SUCCESS, null);
        fails!(GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate(exec, kinds, &mut node, &mut result));
        assert_eq!((result, node), (CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED, second));
    });
}

#[test]
fn graphs_inside_can_be_updated() {
    isolated("graphs_inside_can_be_updated", &[], || {
        context();
        let (a, inner, own) = (allocate(4), graph(), graph());
        let first = add_fill(inner, &[], a, 1);
        add_empty(inner, &[first]);
        let mut child = std::ptr::null_mut();
        ok!(cuGraphAddChildGraphNode(&mut child, own, std::ptr::null(), 0, inner));
        let exec = instantiate(own);
        run(exec);
        assert_eq!(read(a), 1);
        let other = graph();
        let fill = add_fill(other, &[], a, 2);
        add_empty(other, &[fill]);
        ok!(cuGraphExecChildGraphNodeSetParams(exec, child, other));
        run(exec);
        assert_eq!(read(a), 2);
        add_empty(other, &[]);
        fails!(INVALID_VALUE, cuGraphExecChildGraphNodeSetParams(exec, child, other));
        // A node of the graph inside is known to what was instantiated.
        let (mut copy, mut node, mut count) = (std::ptr::null_mut(), std::ptr::null_mut(), 1);
        ok!(cuGraphChildGraphNodeGetGraph(child, &mut copy));
        ok!(cuGraphGetRootNodes(copy, &mut node, &mut count));
        ok!(cuGraphExecMemsetNodeSetParams(exec, node, &fill_of(a, 3), current()));
        run(exec);
        assert_eq!(read(a), 3);
    });
}
