//! What the simulated driver does not simulate of graphs, arrays and textures says so, and never succeeds.
//!
//! A card may well do these; so they are no part of the conformance tests.

#[macro_use]
mod common;

use std::ffi::CStr;

use common::{allocate, context, function, isolated, launch};
use turnus_bindings::types::*;

fn zeroed<T>() -> T {
    // SAFETY: used for plain structures of the header only.
    unsafe { std::mem::zeroed() }
}

#[test]
fn parts_of_graphs_that_are_not_simulated_are_refused() {
    isolated("parts_of_graphs_that_are_not_simulated_are_refused", &[], || {
        let current = context();
        let (mut graph, mut first, mut second) =
            (std::ptr::null_mut(), std::ptr::null_mut(), std::ptr::null_mut());
        ok!(cuGraphCreate(&mut graph, 0));
        let mut condition = 0;
        fails!(NOT_SUPPORTED, cuGraphConditionalHandleCreate(&mut condition, graph, current, 1, 0));
        let kinds = [
            CU_GRAPH_NODE_TYPE_CONDITIONAL,
            CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL,
            CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT,
            CU_GRAPH_NODE_TYPE_MEMCPY_BATCH,
        ];
        for kind in kinds {
            let mut said: CUgraphNodeParams = zeroed();
            said.type_ = kind;
            let none = std::ptr::null();
            fails!(NOT_SUPPORTED, cuGraphAddNode_v2(&mut first, graph, none, std::ptr::null(), 0, &mut said));
        }
        ok!(cuGraphAddEmptyNode(&mut first, graph, std::ptr::null(), 0));
        ok!(cuGraphAddEmptyNode(&mut second, graph, std::ptr::null(), 0));
        let mut programmatic: CUgraphEdgeData = zeroed();
        programmatic.type_ = 1;
        fails!(NOT_SUPPORTED, cuGraphAddDependencies_v2(graph, &first, &second, &programmatic, 1));
        let mut exec = std::ptr::null_mut();
        // CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH.
        fails!(NOT_SUPPORTED, cuGraphInstantiateWithFlags(&mut exec, graph, 4));
    });
}

#[test]
fn arrays_that_are_not_simulated_are_refused() {
    isolated("arrays_that_are_not_simulated_are_refused", &[], || {
        context();
        let mut said: CUDA_ARRAY3D_DESCRIPTOR = zeroed();
        (said.Width, said.Height, said.Format, said.NumChannels) = (64, 64, CU_AD_FORMAT_FLOAT, 1);
        let (mut array, mut supported) = (std::ptr::null_mut(), 1);
        let attributes = [
            (CUDA_ARRAY3D_SPARSE, CU_DEVICE_ATTRIBUTE_SPARSE_CUDA_ARRAY_SUPPORTED),
            (CUDA_ARRAY3D_DEFERRED_MAPPING, CU_DEVICE_ATTRIBUTE_DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED),
        ];
        for (flag, attribute) in attributes {
            said.Flags = flag;
            fails!(NOT_SUPPORTED, cuArray3DCreate_v2(&mut array, &said));
            ok!(cuDeviceGetAttribute(&mut supported, attribute, 0));
            assert_eq!(supported, 0, "the attribute says so");
        }
        (said.Flags, said.Format) = (0, CU_AD_FORMAT_NV12);
        fails!(NOT_SUPPORTED, cuArray3DCreate_v2(&mut array, &said));
        let mut list: CUarrayMapInfo = zeroed();
        fails!(NOT_SUPPORTED, cuMemMapArrayAsync(&mut list, 1, std::ptr::null_mut()));
    });
}

/// Reads the middle of a plane.
const READ_MIDDLE: &CStr = c".version 7.0
.target sm_60
.address_size 64
.visible .entry read_middle(.param .u64 texture, .param .u64 place)
{
    .reg .f32 %f<6>; .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [texture]; ld.param.u64 %rd2, [place];
    mov.f32 %f5, 0f3F800000;
    tex.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%rd1, {%f5, %f5}];
    st.global.f32 [%rd2], %f1;
    ret;
}
";

#[test]
fn a_filtered_read_ends_the_kernel() {
    isolated("a_filtered_read_ends_the_kernel", &[], || {
        context();
        let read = function(READ_MIDDLE, c"read_middle");
        let (place, mut array) = (allocate(4), std::ptr::null_mut());
        let said = CUDA_ARRAY_DESCRIPTOR { Width: 4, Height: 4, Format: CU_AD_FORMAT_FLOAT, NumChannels: 1 };
        ok!(cuArrayCreate_v2(&mut array, &said));
        let mut resource: CUDA_RESOURCE_DESC = zeroed();
        resource.res.array.hArray = array;
        let mut sampling: CUDA_TEXTURE_DESC = zeroed();
        sampling.filterMode = CU_TR_FILTER_MODE_LINEAR;
        let mut object = 0;
        ok!(cuTexObjectCreate(&mut object, &resource, &sampling, std::ptr::null()));
        assert_eq!(launch(read, 1, 1, std::ptr::null_mut(), &[&object, &place]), Ok(()));
        assert!(call!(cuCtxSynchronize()).is_err(), "no value is better than a wrong one");
    });
}
