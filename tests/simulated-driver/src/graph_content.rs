//! From the structures of the header to what nodes hold, and back.
//!
//! A hand-made node keeps the structure it was made from; that of a captured one is made from its work when it is
//! asked for. The function `check_update` has the limits of `cuGraphExecUpdate`.

use std::ffi::c_void;
use std::sync::Arc;

use turnus_bindings::CUerror;
use turnus_bindings::types::*;

use crate::arrays;
use crate::context::{CONTEXTS, current};
use crate::entry::{fill_work, operation, plan_3d};
use crate::execution::{
    Content, CopyEnd, CopyWork, Difference, FillWork, Given, HostFunction, HostPointer, Memory, NodeKind,
    WaitCondition, Work,
};
use crate::launch::{Shape, kernel_work};
use crate::module::kernel::Kernel;
use crate::module::library::function_of;
use crate::space::Result;

/// What the program said about a node.
enum Said {
    Copy(CUDA_MEMCPY3D),
    Fill(CUDA_MEMSET_NODE_PARAMS),
    Values(Vec<CUstreamBatchMemOpParams>),
    /// One pointer per parameter, into the kernel's own copy of them.
    Pointers(Vec<*mut c_void>),
}

// SAFETY: the pointers are values that the program gave, or point into the node's own kernel; they are handed
// back and never followed here.
unsafe impl Send for Said {}
// SAFETY: as above.
unsafe impl Sync for Said {}

fn given(said: Said) -> Option<Given> {
    Some(Arc::new(said))
}

fn said(content: &Content) -> Option<&Said> {
    content.given.as_ref()?.downcast_ref()
}

/// The parameters of a kernel node, of all versions of the structure.
#[derive(Clone, Copy)]
pub struct KernelSaid {
    /// `func`, or the kernel when that is null.
    pub function: *mut c_void,
    /// Grid and block.
    pub grid: [u32; 3],
    /// See there.
    pub block: [u32; 3],
    /// Dynamic shared memory.
    pub shared_bytes: u32,
    /// `kernelParams`.
    pub parameters: *mut *mut c_void,
    /// `extra`.
    pub extra: *mut *mut c_void,
}

/// # Safety
/// As `cuGraphAddKernelNode`.
pub unsafe fn kernel(said: &KernelSaid) -> Result<Content> {
    let shape =
        Shape { grid: said.grid, block: said.block, shared_bytes: said.shared_bytes, cooperative: false };
    let function = function_of(said.function)?;
    // SAFETY: the caller's promise.
    unsafe { kernel_work(&function, shape, said.parameters, said.extra) }.map(Content::from)
}

/// The kernel of a kernel node.
pub fn kernel_of(content: &Content) -> Result<&Kernel> {
    match &content.work {
        Work::Kernel(image) => image.as_any().downcast_ref().ok_or(CUerror::INVALID_VALUE),
        _ => Err(CUerror::INVALID_VALUE),
    }
}

/// A kernel node with one pointer per parameter to give back, made now if nobody asked before.
pub fn with_pointers(content: &Content) -> Result<Content> {
    let kernel = kernel_of(content)?;
    if matches!(said(content), Some(Said::Pointers(_))) {
        return Ok(content.clone());
    }
    let base = kernel.parameters.as_ptr();
    let pointer = |offset: u32| base.wrapping_add(offset as usize).cast_mut().cast();
    let pointers =
        kernel.function.entry.parameters.iter().map(|parameter| pointer(parameter.offset as _)).collect();
    Ok(Content { given: given(Said::Pointers(pointers)), ..content.clone() })
}

/// A kernel node whose blocks must all be able to run at once, or need not.
pub fn with_cooperation(content: &Content, cooperative: bool) -> Result<Content> {
    let kernel = kernel_of(content)?;
    let shape = Shape { cooperative, ..kernel.shape };
    let changed = Kernel {
        space: Arc::clone(&kernel.space),
        function: Arc::clone(&kernel.function),
        shape,
        parameters: kernel.parameters.clone(),
    };
    Ok(Work::Kernel(Arc::new(changed)).into())
}

/// What `with_pointers` made.
pub fn pointers_of(content: &Content) -> *mut *mut c_void {
    match said(content) {
        Some(Said::Pointers(pointers)) if !pointers.is_empty() => pointers.as_ptr().cast_mut(),
        _ => std::ptr::null_mut(),
    }
}

/// # Safety
/// As `cuGraphAddMemcpyNode`.
pub unsafe fn copy(parameters: *const CUDA_MEMCPY3D, context: CUcontext) -> Result<Content> {
    check_context(context)?;
    // SAFETY: the caller's promise.
    let parameters = unsafe { parameters.as_ref() }.ok_or(CUerror::INVALID_VALUE)?;
    let work = plan_3d(parameters)?.map_or(Work::Nothing, |copy| Work::Copy(Arc::new(copy)));
    Ok(Content { kind: NodeKind::Copy, work, given: given(Said::Copy(*parameters)) })
}

/// The structure of a copy node.
pub fn copy_said(content: &Content) -> Result<CUDA_MEMCPY3D> {
    match (said(content), &content.work) {
        (Some(Said::Copy(parameters)), _) => Ok(*parameters),
        (_, Work::Copy(copy)) => Ok(copy_parameters(copy)),
        _ => Err(CUerror::INVALID_VALUE),
    }
}

fn copy_parameters(copy: &CopyWork) -> CUDA_MEMCPY3D {
    // SAFETY: all-zero is a valid value.
    let mut said: CUDA_MEMCPY3D = unsafe { std::mem::zeroed() };
    (said.WidthInBytes, said.Height, said.Depth) =
        (copy.width_bytes as usize, copy.height as usize, copy.depth as usize);
    let pitches = |end: &CopyEnd| {
        let rows = end.slice_pitch_bytes.checked_div(end.row_pitch_bytes).unwrap_or(0);
        (end.row_pitch_bytes as usize, rows as usize)
    };
    (said.srcPitch, said.srcHeight) = pitches(&copy.source);
    (said.dstPitch, said.dstHeight) = pitches(&copy.destination);
    match &copy.source.memory {
        Memory::Device(address) if arrays::at_address(*address).is_some() => {
            said.srcMemoryType = CU_MEMORYTYPE_ARRAY;
            (said.srcArray, [said.srcXInBytes, said.srcY, said.srcZ]) = place_in_array(*address);
        }
        Memory::Device(address) => (said.srcMemoryType, said.srcDevice) = (CU_MEMORYTYPE_DEVICE, *address),
        Memory::Host(pointer) => (said.srcMemoryType, said.srcHost) = (CU_MEMORYTYPE_HOST, pointer.0),
        Memory::Staged(bytes) => {
            (said.srcMemoryType, said.srcHost) = (CU_MEMORYTYPE_HOST, bytes.as_ptr().cast())
        }
    }
    match &copy.destination.memory {
        Memory::Device(address) if arrays::at_address(*address).is_some() => {
            said.dstMemoryType = CU_MEMORYTYPE_ARRAY;
            (said.dstArray, [said.dstXInBytes, said.dstY, said.dstZ]) = place_in_array(*address);
        }
        Memory::Device(address) => (said.dstMemoryType, said.dstDevice) = (CU_MEMORYTYPE_DEVICE, *address),
        Memory::Host(pointer) => (said.dstMemoryType, said.dstHost) = (CU_MEMORYTYPE_HOST, pointer.0),
        Memory::Staged(_) => {}
    }
    said
}

/// The array around an address, and the place in it.
fn place_in_array(address: u64) -> (CUarray, [usize; 3]) {
    let Some(array) = arrays::at_address(address) else { return (std::ptr::null_mut(), [0; 3]) };
    let (offset, shape) = (address - array.base, &array.shape);
    let (slice, rest) = (offset / shape.slice_bytes(), offset % shape.slice_bytes());
    let place = [rest % shape.row_bytes(), rest / shape.row_bytes(), slice];
    (array.handle as CUarray, place.map(|part| part as usize))
}

/// # Safety
/// As `cuGraphAddMemsetNode`.
pub unsafe fn memset(parameters: *const CUDA_MEMSET_NODE_PARAMS, context: CUcontext) -> Result<Content> {
    check_context(context)?;
    // SAFETY: the caller's promise.
    let parameters = unsafe { parameters.as_ref() }.ok_or(CUerror::INVALID_VALUE)?;
    if !matches!(parameters.elementSize, 1 | 2 | 4) {
        return Err(CUerror::INVALID_VALUE);
    }
    let work = fill_work(
        parameters.dst,
        parameters.pitch,
        parameters.value,
        parameters.elementSize as u8,
        parameters.width,
        parameters.height,
    )?;
    let work = work.map_or(Work::Nothing, |work| Work::Fill(Arc::new(work)));
    Ok(Content { kind: NodeKind::Fill, work, given: given(Said::Fill(*parameters)) })
}

/// The structure of a memset node.
pub fn memset_said(content: &Content) -> Result<CUDA_MEMSET_NODE_PARAMS> {
    match (said(content), &content.work) {
        (Some(Said::Fill(parameters)), _) => Ok(*parameters),
        (_, Work::Fill(fill)) => Ok(fill_parameters(fill)),
        _ => Err(CUerror::INVALID_VALUE),
    }
}

fn fill_parameters(fill: &FillWork) -> CUDA_MEMSET_NODE_PARAMS {
    CUDA_MEMSET_NODE_PARAMS {
        dst: fill.destination,
        pitch: fill.row_pitch_bytes as usize,
        value: fill.value,
        elementSize: fill.element_bytes.into(),
        width: fill.width as usize,
        height: fill.height as usize,
    }
}

/// A host node.
pub fn host(function: CUhostFn, data: *mut c_void) -> Result<Content> {
    let function = function.ok_or(CUerror::INVALID_VALUE)?;
    Ok(Work::HostFunction(HostFunction { function, data: HostPointer(data) }).into())
}

/// The function of a host node.
pub fn host_said(content: &Content) -> Result<(CUhostFn, *mut c_void)> {
    match &content.work {
        Work::HostFunction(host) => Ok((Some(host.function), host.data.0)),
        _ => Err(CUerror::INVALID_VALUE),
    }
}

/// # Safety
/// `operations` has `count` elements.
pub unsafe fn values(
    operations: *const CUstreamBatchMemOpParams,
    count: u32,
    flags: u32,
    context: CUcontext,
) -> Result<Content> {
    check_context(context)?;
    if count == 0 || operations.is_null() || flags != 0 {
        return Err(CUerror::INVALID_VALUE);
    }
    // SAFETY: the caller's promise.
    let operations = unsafe { std::slice::from_raw_parts(operations, count as usize) };
    let works: Vec<Work> = operations.iter().map(operation).collect::<Result<_>>()?;
    let said = given(Said::Values(operations.to_vec()));
    Ok(Content { kind: NodeKind::Values, work: Work::Batch(works.into()), given: said })
}

/// A node of stream memory operations with the operations to give back, made now if it was captured.
pub fn with_values(content: &Content) -> Result<Content> {
    if matches!(said(content), Some(Said::Values(_))) {
        return Ok(content.clone());
    }
    let works = match &content.work {
        Work::Batch(works) => works.iter().map(value_parameters).collect::<Result<Vec<_>>>()?,
        work => vec![value_parameters(work)?],
    };
    Ok(Content { given: given(Said::Values(works)), ..content.clone() })
}

/// What `with_values` made: the first operation and their number.
pub fn values_of(content: &Content) -> (*mut CUstreamBatchMemOpParams, u32) {
    match said(content) {
        Some(Said::Values(operations)) => (operations.as_ptr().cast_mut(), operations.len() as u32),
        _ => (std::ptr::null_mut(), 0),
    }
}

fn value_parameters(work: &Work) -> Result<CUstreamBatchMemOpParams> {
    // SAFETY: all-zero is a valid value; each variant begins with the operation.
    unsafe {
        let mut said: CUstreamBatchMemOpParams = std::mem::zeroed();
        match work {
            Work::WriteValue { address, value, bytes } => {
                said.writeValue.operation = if *bytes == 4 {
                    CU_STREAM_MEM_OP_WRITE_VALUE_32
                } else {
                    CU_STREAM_MEM_OP_WRITE_VALUE_64
                };
                said.writeValue.address = *address;
                said.writeValue.anonymous_1.value64 = *value;
            }
            Work::WaitValue { address, value, bytes, condition } => {
                said.waitValue.operation =
                    if *bytes == 4 { CU_STREAM_MEM_OP_WAIT_VALUE_32 } else { CU_STREAM_MEM_OP_WAIT_VALUE_64 };
                said.waitValue.address = *address;
                said.waitValue.anonymous_1.value64 = *value;
                said.waitValue.flags = match condition {
                    WaitCondition::GreaterOrEqual => 0,
                    WaitCondition::Equal => 1,
                    WaitCondition::And => 2,
                    WaitCondition::Nor => 3,
                };
            }
            _ => said.operation = CU_STREAM_MEM_OP_BARRIER,
        }
        Ok(said)
    }
}

/// The context of a node's parameters: null is the current one.
pub fn check_context(context: CUcontext) -> Result<()> {
    if context.is_null() {
        return current::get().map(drop);
    }
    CONTEXTS.get(context).map(drop).map_err(|_| CUerror::INVALID_CONTEXT)
}

/// The limits of `cuGraphExecUpdate` for two nodes of one kind.
pub fn check_update(old: &Content, new: &Content) -> std::result::Result<(), Difference> {
    let check = |same: bool, difference| if same { Ok(()) } else { Err(difference) };
    match new.kind {
        NodeKind::Kernel => {
            let (Ok(old), Ok(new)) = (kernel_of(old), kernel_of(new)) else { return Ok(()) };
            let same = old.function.context.id() == new.function.context.id();
            check(same, Difference::Function)?;
            check(old.shape.cooperative == new.shape.cooperative, Difference::Attributes)
        }
        NodeKind::Copy => {
            let (Ok(old), Ok(new)) = (copy_said(old), copy_said(new)) else { return Ok(()) };
            let types = |said: &CUDA_MEMCPY3D| (said.srcMemoryType.0, said.dstMemoryType.0);
            check(types(&old) == types(&new), Difference::Parameters)
        }
        NodeKind::Fill => {
            let (Ok(old), Ok(new)) = (memset_said(old), memset_said(new)) else { return Ok(()) };
            let extent = |said: &CUDA_MEMSET_NODE_PARAMS| (said.width, said.elementSize, said.pitch);
            let kept = old.height == new.height && (old.height <= 1 || extent(&old) == extent(&new));
            check(kept, Difference::Parameters)
        }
        // Memory nodes cannot be updated (from memory).
        NodeKind::Allocate | NodeKind::Free => Err(Difference::Unsupported),
        _ => Ok(()),
    }
}

/// The limits of setting one node of an instantiated graph (`cuGraphExecMemcpyNodeSetParams` and its like).
pub fn check_set(old: &Content, new: &Content) -> Result<()> {
    let mut allowed = old.kind == new.kind && check_update(old, new).is_ok();
    if new.kind == NodeKind::Copy {
        let linear = |content: &Content| match &content.work {
            Work::Copy(copy) => copy.height == 1 && copy.depth == 1,
            _ => false,
        };
        allowed &= linear(old) && linear(new);
    }
    if new.kind == NodeKind::Fill {
        allowed &= matches!(new.work, Work::Fill(_));
    }
    if allowed { Ok(()) } else { Err(CUerror::INVALID_VALUE) }
}
