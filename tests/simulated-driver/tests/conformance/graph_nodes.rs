//! Nodes of graphs asked for what they are, found in clones, and made by the one structure for all kinds.
//!
//! Rules: CUDA driver API, "Graph Management". What a capture makes is asked in the same way as what was made by
//! hand. Changes to instantiated graphs: `graph_updates.rs`.

use std::ffi::{CString, c_void};
use std::sync::atomic::{AtomicU32, Ordering};

use turnus_bindings::types::*;

use crate::common::{STORE_ONE, VECTOR_ADD, allocate, context, function, isolated, launch};
use crate::graph_support::{
    add_copy, add_empty, add_fill, add_to, copy_of, current, fill_of, graph, instantiate, read, run, run_of,
    stream, zeroed,
};

#[test]
fn nodes_tell_what_they_were_given() {
    isolated("nodes_tell_what_they_were_given", &[], || {
        context();
        let (kernel, own) = (function(VECTOR_ADD, c"vector_add"), graph());
        let (a, b) = (allocate(64), allocate(64));
        let mut arguments = [a, b, a, 16];
        let mut pointers = arguments.each_mut().map(|argument| std::ptr::from_mut(argument).cast::<c_void>());
        let mut said = run_of(kernel, &mut pointers);
        (said.blockDimX, said.sharedMemBytes) = (32, 64);
        let mut node = std::ptr::null_mut();
        ok!(cuGraphAddKernelNode_v2(&mut node, own, std::ptr::null(), 0, &said));
        arguments.fill(0);
        let mut told = run_of(std::ptr::null_mut(), &mut []);
        ok!(cuGraphKernelNodeGetParams_v2(node, &mut told));
        assert_eq!((told.func, told.gridDimX, told.blockDimX, told.sharedMemBytes), (kernel, 1, 32, 64));
        // SAFETY: one pointer per parameter of the kernel, each to its eight bytes.
        let values: Vec<u64> =
            (0..4).map(|index| unsafe { *(*told.kernelParams.add(index)).cast() }).collect();
        assert_eq!(values, [a, b, a, 16], "parameters were copied when the node was made");
        let mut fill = fill_of(0, 0);
        fails!(INVALID_VALUE, cuGraphMemsetNodeGetParams(node, &mut fill));
        // What was told makes another node.
        let mut again = std::ptr::null_mut();
        ok!(cuGraphAddKernelNode_v2(&mut again, own, &node, 1, &told));

        let memset = add_fill(own, &[], a, 0x55);
        ok!(cuGraphMemsetNodeGetParams(memset, &mut fill));
        assert_eq!((fill.dst, fill.value, fill.elementSize, fill.width, fill.height), (a, 0x55, 4, 1, 1));
        let memcpy = add_copy(own, &[], b, a);
        let mut copy = copy_of(0, 0, 0);
        ok!(cuGraphMemcpyNodeGetParams(memcpy, &mut copy));
        assert_eq!((copy.srcDevice, copy.dstDevice, copy.WidthInBytes), (a, b, 4));
        assert_eq!((copy.srcMemoryType, copy.dstMemoryType), (CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_DEVICE));
        let calls = AtomicU32::new(0);
        let data = std::ptr::from_ref(&calls).cast_mut().cast::<c_void>();
        let (mut host, said) = (node, CUDA_HOST_NODE_PARAMS { fn_: Some(add_to), userData: data });
        ok!(cuGraphAddHostNode(&mut host, own, std::ptr::null(), 0, &said));
        let mut told = CUDA_HOST_NODE_PARAMS { fn_: None, userData: std::ptr::null_mut() };
        ok!(cuGraphHostNodeGetParams(host, &mut told));
        assert_eq!(told.userData, data);
        assert_eq!(told.fn_.map(|function| function as usize), Some(add_to as *const () as usize));

        let (mut first, mut second) = (std::ptr::null_mut(), std::ptr::null_mut());
        ok!(cuEventCreate(&mut first, 0));
        ok!(cuEventCreate(&mut second, 0));
        let (mut record, mut wait, mut told) = (node, node, std::ptr::null_mut());
        ok!(cuGraphAddEventRecordNode(&mut record, own, std::ptr::null(), 0, first));
        ok!(cuGraphAddEventWaitNode(&mut wait, own, std::ptr::null(), 0, first));
        ok!(cuGraphEventRecordNodeGetEvent(record, &mut told));
        assert_eq!(told, first);
        ok!(cuGraphEventWaitNodeSetEvent(wait, second));
        ok!(cuGraphEventWaitNodeGetEvent(wait, &mut told));
        assert_eq!(told, second);
        fails!(INVALID_VALUE, cuGraphEventWaitNodeGetEvent(record, &mut told));

        let inner = graph();
        let inside = add_fill(inner, &[], a, 1);
        let (mut child, mut told) = (node, std::ptr::null_mut());
        ok!(cuGraphAddChildGraphNode(&mut child, own, std::ptr::null(), 0, inner));
        ok!(cuGraphChildGraphNodeGetGraph(child, &mut told));
        assert_ne!(told, inner, "the node has a copy");
        let (mut nodes, mut count) = ([std::ptr::null_mut(); 2], 2);
        ok!(cuGraphGetNodes(told, nodes.as_mut_ptr(), &mut count));
        assert_eq!(count, 1);
        assert_ne!(nodes[0], inside);
        ok!(cuGraphMemsetNodeGetParams(nodes[0], &mut fill));
        assert_eq!(fill.dst, a);
    });
}

#[test]
fn captured_nodes_tell_what_they_do() {
    isolated("captured_nodes_tell_what_they_do", &[], || {
        context();
        let kernel = function(STORE_ONE, c"store_one");
        let (a, b, stream, mut own) = (allocate(64), allocate(64), stream(), std::ptr::null_mut());
        ok!(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
        assert_eq!(launch(kernel, 2, 1, stream, &[&a]), Ok(()));
        ok!(cuMemsetD16Async(a, 0x1234, 8, stream));
        ok!(cuMemcpyDtoDAsync_v2(b, a, 16, stream));
        ok!(cuStreamWriteValue32_v2(stream, b, 9, 0));
        ok!(cuStreamEndCapture(stream, &mut own));
        let (mut nodes, mut count) = ([std::ptr::null_mut(); 4], 4);
        ok!(cuGraphGetNodes(own, nodes.as_mut_ptr(), &mut count));
        assert_eq!(count, 4);
        for node in nodes {
            let mut any = zeroed();
            ok!(cuGraphNodeGetParams(node, &mut any));
            // SAFETY: the member read is that which the type names.
            unsafe {
                match any.type_ {
                    CU_GRAPH_NODE_TYPE_KERNEL => {
                        let told = any.anonymous_1.kernel;
                        assert_eq!((told.func, told.gridDimX), (kernel, 2));
                        assert_eq!(*(*told.kernelParams).cast::<u64>(), a);
                    }
                    CU_GRAPH_NODE_TYPE_MEMSET => {
                        let told = any.anonymous_1.memset;
                        assert_eq!((told.dst, told.value, told.elementSize, told.width), (a, 0x1234, 2, 8));
                    }
                    CU_GRAPH_NODE_TYPE_MEMCPY => {
                        let told = any.anonymous_1.memcpy.copyParams;
                        assert_eq!((told.srcDevice, told.dstDevice, told.WidthInBytes), (a, b, 16));
                    }
                    CU_GRAPH_NODE_TYPE_BATCH_MEM_OP => {
                        let told = any.anonymous_1.memOp;
                        assert_eq!(told.count, 1);
                        let operation = &(*told.paramArray).writeValue;
                        assert_eq!(operation.operation, CU_STREAM_MEM_OP_WRITE_VALUE_32);
                        assert_eq!((operation.address, operation.anonymous_1.value), (b, 9));
                    }
                    other => panic!("a node of kind {}", other.0),
                }
            }
        }
    });
}

#[test]
fn clones_and_neighbours_are_found() {
    isolated("clones_and_neighbours_are_found", &[], || {
        context();
        let (a, own) = (allocate(4), graph());
        let first = add_fill(own, &[], a, 1);
        let (left, right) = (add_empty(own, &[first]), add_empty(own, &[first]));
        let last = add_empty(own, &[left, right]);
        let (mut nodes, mut count) = ([std::ptr::null_mut(); 4], 4);
        ok!(cuGraphNodeGetDependencies(last, nodes.as_mut_ptr(), &mut count));
        assert_eq!((count, nodes[2]), (2, std::ptr::null_mut()), "unused places are cleared");
        assert!(nodes[..2].contains(&left) && nodes[..2].contains(&right));
        ok!(cuGraphNodeGetDependentNodes(first, std::ptr::null_mut(), &mut count));
        assert_eq!(count, 2);
        let (mut from, mut to) = ([std::ptr::null_mut(); 4], [std::ptr::null_mut(); 4]);
        // SAFETY: all-zero is a valid value.
        let mut data: [CUgraphEdgeData; 4] = unsafe { std::mem::zeroed() };
        data[0].type_ = 9;
        count = 4;
        ok!(cuGraphGetEdges_v2(own, from.as_mut_ptr(), to.as_mut_ptr(), data.as_mut_ptr(), &mut count));
        assert_eq!((count, data[0].type_), (4, 0));
        assert!(from.iter().zip(&to).any(|edge| edge == (&left, &last)));

        let (mut clone, mut found) = (std::ptr::null_mut(), std::ptr::null_mut());
        ok!(cuGraphClone(&mut clone, own));
        ok!(cuGraphNodeFindInClone(&mut found, first, clone));
        assert_ne!(found, first);
        let mut containing = std::ptr::null_mut();
        ok!(cuGraphNodeGetContainingGraph(found, &mut containing));
        assert_eq!(containing, clone);
        let late = add_empty(own, &[]);
        fails!(INVALID_VALUE, cuGraphNodeFindInClone(&mut found, late, clone));
        fails!(INVALID_VALUE, cuGraphNodeFindInClone(&mut found, first, own));
        ok!(cuGraphNodeFindInClone(&mut found, last, clone));
        ok!(cuGraphDestroyNode(found));
        fails!(INVALID_VALUE, cuGraphNodeFindInClone(&mut found, last, clone));
        ok!(cuGraphRemoveDependencies(own, &left, &last, 1));
        fails!(INVALID_VALUE, cuGraphRemoveDependencies(own, &left, &last, 1));
        ok!(cuGraphDestroy(clone));
        fails!(INVALID_VALUE, cuGraphDestroy(clone));
    });
}

#[test]
fn one_structure_makes_nodes_of_all_kinds() {
    isolated("one_structure_makes_nodes_of_all_kinds", &[], || {
        context();
        let kernel = function(STORE_ONE, c"store_one");
        let (a, b, own) = (allocate(8), allocate(8), graph());
        let mut nodes: Vec<CUgraphNode> = Vec::new();
        let mut add = |said: &mut CUgraphNodeParams| {
            let mut node = std::ptr::null_mut();
            let after = nodes.last().map_or(std::ptr::null(), std::ptr::from_ref);
            let count = usize::from(!after.is_null());
            let outcome = call!(cuGraphAddNode_v2(&mut node, own, after, std::ptr::null(), count, said));
            if outcome.is_ok() {
                nodes.push(node);
            }
            outcome
        };
        let mut said = zeroed();
        said.type_ = CU_GRAPH_NODE_TYPE_MEMSET;
        said.anonymous_1.memset = CUDA_MEMSET_NODE_PARAMS_v2 {
            dst: a,
            pitch: 0,
            value: 40,
            elementSize: 4,
            width: 2,
            height: 1,
            ctx: current(),
        };
        assert_eq!(add(&mut said), Ok(()));
        let mut said = zeroed();
        said.type_ = CU_GRAPH_NODE_TYPE_MEMCPY;
        said.anonymous_1.memcpy.copyCtx = current();
        said.anonymous_1.memcpy.copyParams = copy_of(b, a, 8);
        assert_eq!(add(&mut said), Ok(()));
        let (mut place, mut said) = (a, zeroed());
        let mut pointers = [(&raw mut place).cast::<c_void>()];
        said.type_ = CU_GRAPH_NODE_TYPE_KERNEL;
        let run_said = run_of(kernel, &mut pointers);
        said.anonymous_1.kernel = CUDA_KERNEL_NODE_PARAMS_v3 {
            func: kernel,
            gridDimX: 1,
            gridDimY: 1,
            gridDimZ: 1,
            blockDimX: 1,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: 0,
            kernelParams: run_said.kernelParams,
            extra: std::ptr::null_mut(),
            kern: std::ptr::null_mut(),
            ctx: std::ptr::null_mut(),
        };
        assert_eq!(add(&mut said), Ok(()));
        // SAFETY: all-zero is a valid value.
        let mut operations: [CUstreamBatchMemOpParams; 2] = unsafe { std::mem::zeroed() };
        for (index, operation) in operations.iter_mut().enumerate() {
            operation.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
            operation.writeValue.address = b + 4 * index as u64;
            operation.writeValue.anonymous_1.value = 70 + index as u32;
        }
        let mut said = zeroed();
        said.type_ = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
        said.anonymous_1.memOp = CUDA_BATCH_MEM_OP_NODE_PARAMS_v2 {
            ctx: current(),
            count: 2,
            paramArray: operations.as_mut_ptr(),
            flags: 0,
        };
        assert_eq!(add(&mut said), Ok(()));
        let mut said = zeroed();
        said.type_ = CUgraphNodeType_enum(99);
        assert_eq!(add(&mut said), Err(turnus_bindings::CUerror::INVALID_VALUE));
        let exec = instantiate(own);
        run(exec);
        assert_eq!((read(a), read(a + 4), read(b), read(b + 4)), (1, 40, 70, 71));

        // The same structure changes nodes.
        let mut said = zeroed();
        ok!(cuGraphNodeGetParams(nodes[0], &mut said));
        // SAFETY: the node is a memset.
        assert_eq!(unsafe { said.anonymous_1.memset.value }, 40);
        said.anonymous_1.memset.value = 41;
        said.anonymous_1.memset.ctx = current();
        ok!(cuGraphExecNodeSetParams(exec, nodes[0], &mut said));
        run(exec);
        assert_eq!(read(a + 4), 41);
        ok!(cuGraphNodeSetParams(nodes[0], &mut said));
        fails!(INVALID_VALUE, cuGraphNodeSetParams(nodes[1], &mut said));
        let mut told = fill_of(0, 0);
        ok!(cuGraphMemsetNodeGetParams(nodes[0], &mut told));
        assert_eq!(told.value, 41);
        ok!(cuGraphGetNodes(own, std::ptr::null_mut(), &mut 0));
    });
}

#[test]
fn user_objects_live_as_long_as_graphs_need_them() {
    isolated("user_objects_live_as_long_as_graphs_need_them", &[], || {
        context();
        let ends = AtomicU32::new(0);
        let data = std::ptr::from_ref(&ends).cast_mut().cast::<c_void>();
        let ended = |count: u32| {
            for _ in 0..2000 {
                if ends.load(Ordering::SeqCst) == count {
                    return true;
                }
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            false
        };
        let (own, mut object) = (graph(), std::ptr::null_mut());
        fails!(INVALID_VALUE, cuUserObjectCreate(&mut object, data, Some(add_to), 1, 0));
        ok!(cuUserObjectCreate(&mut object, data, Some(add_to), 2, 1));
        ok!(cuUserObjectRelease(object, 2));
        assert!(ended(1), "the last reference is gone");
        ok!(cuUserObjectCreate(&mut object, data, Some(add_to), 1, 1));
        fails!(INVALID_VALUE, cuGraphRetainUserObject(own, object, 0, 0));
        ok!(cuGraphRetainUserObject(own, object, 1, 1));
        let (exec, mut clone) = (instantiate(own), std::ptr::null_mut());
        ok!(cuGraphClone(&mut clone, own));
        ok!(cuGraphDestroy(own));
        ok!(cuGraphReleaseUserObject(clone, object, 1));
        ok!(cuGraphDestroy(clone));
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert_eq!(ends.load(Ordering::SeqCst), 1, "what was instantiated needs it");
        run(exec);
        ok!(cuGraphExecDestroy(exec));
        ok!(cuCtxSynchronize());
        assert!(ended(2));
    });
}

#[test]
fn a_graph_is_drawn() {
    isolated("a_graph_is_drawn", &[], || {
        context();
        let own = graph();
        let first = add_fill(own, &[], allocate(4), 1);
        add_empty(own, &[first]);
        let path = std::env::temp_dir().join(format!("graph-{}.dot", std::process::id()));
        let name = CString::new(path.to_str().unwrap()).unwrap();
        ok!(cuGraphDebugDotPrint(own, name.as_ptr(), 1));
        let text = std::fs::read_to_string(&path).unwrap();
        let _ = std::fs::remove_file(&path);
        assert!(text.starts_with("digraph"), "{text}");
        assert_eq!(text.matches("->").count(), 1, "{text}");
        fails!(INVALID_VALUE, cuGraphDebugDotPrint(own, std::ptr::null(), 0));
    });
}

#[test]
fn handles_of_nothing_are_refused() {
    isolated("handles_of_nothing_are_refused", &[], || {
        context();
        let null_node: CUgraphNode = std::ptr::null_mut();
        let stray: CUgraphNode = std::ptr::without_provenance_mut(0x1230);
        let (mut kind, mut enabled, mut any) = (CU_GRAPH_NODE_TYPE_EMPTY, 0, zeroed());
        for node in [null_node, stray] {
            fails!(INVALID_VALUE, cuGraphNodeGetType(node, &mut kind));
            fails!(INVALID_VALUE, cuGraphNodeGetParams(node, &mut any));
            fails!(INVALID_VALUE, cuGraphDestroyNode(node));
            fails!(INVALID_VALUE, cuGraphNodeGetEnabled(instantiate(graph()), node, &mut enabled));
        }
        let own = graph();
        let fill = add_fill(own, &[], allocate(4), 1);
        fails!(INVALID_VALUE, cuGraphMemsetNodeGetParams(fill, std::ptr::null_mut()));
        fails!(INVALID_VALUE, cuGraphNodeGetParams(fill, std::ptr::null_mut()));
        fails!(INVALID_VALUE, cuGraphNodeGetEnabled(std::ptr::null_mut(), fill, &mut enabled));
        ok!(cuGraphDestroy(own));
        fails!(INVALID_VALUE, cuGraphNodeGetType(fill, &mut kind));
        let mut node = std::ptr::null_mut();
        fails!(INVALID_VALUE, cuGraphAddEmptyNode(&mut node, own, std::ptr::null(), 0));
    });
}
