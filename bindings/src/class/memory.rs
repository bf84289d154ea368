//! Decisions about memory: allocating, freeing, copying, asking, sharing.
//!
//! What the shim does not replace itself stays where the driver put it and counts as resident.

use super::Class::{Allocates, Copies, ExportsMemory, Frees, QueriesMemory, ResolvesAddress};
use super::{Rule, forwarded, hooked, not_handled_yet};

const HOST: &str = "page-locked host memory takes no device memory and is never moved";
const DEVICE_FACT: &str = "a property of the device, not of what is allocated on it";
const MANAGED: &str = "answers for managed memory only, which the driver itself places";
const ARRAY: &str = "describes an array, which the driver placed and which is never moved";

pub(super) const RULES: &[Rule] = &[
    hooked(Allocates, &["cuMemAlloc", "cuMemAllocPitch"]),
    hooked(Frees, &["cuMemFree"]),
    hooked(
        Copies,
        &[
            "cuMemcpy",
            "cuMemcpyAsync",
            "cuMemcpyHtoD",
            "cuMemcpyHtoDAsync",
            "cuMemcpyDtoH",
            "cuMemcpyDtoHAsync",
            "cuMemcpyDtoD",
            "cuMemcpyDtoDAsync",
            "cuMemcpyPeer",
            "cuMemcpyPeerAsync",
            "cuMemsetD8",
            "cuMemsetD8Async",
            "cuMemsetD16",
            "cuMemsetD16Async",
            "cuMemsetD32",
            "cuMemsetD32Async",
            "cuMemsetD2D8",
            "cuMemsetD2D8Async",
            "cuMemsetD2D16",
            "cuMemsetD2D16Async",
            "cuMemsetD2D32",
            "cuMemsetD2D32Async",
        ],
    ),
    hooked(
        QueriesMemory,
        &[
            "cuMemGetInfo",
            "cuDeviceTotalMem",
            "cuMemGetAddressRange",
            "cuPointerGetAttribute",
            "cuPointerGetAttributes",
            "cuPointerSetAttribute",
        ],
    ),
    // Refused for memory that moves.
    hooked(
        ExportsMemory,
        &["cuIpcGetMemHandle", "cuMemGetHandleForAddressRange", "cuMemRetainAllocationHandle"],
    ),
    // Copies of more than one dimension, of arrays, in batches; migration.
    hooked(
        Copies,
        &[
            "cuMemcpy2D",
            "cuMemcpy2DAsync",
            "cuMemcpy2DUnaligned",
            "cuMemcpy3D",
            "cuMemcpy3DAsync",
            "cuMemcpy3DBatchAsync",
            "cuMemcpy3DPeer",
            "cuMemcpy3DPeerAsync",
            "cuMemcpy3DWithAttributesAsync",
            "cuMemcpyAtoA",
            "cuMemcpyAtoD",
            "cuMemcpyAtoH",
            "cuMemcpyAtoHAsync",
            "cuMemcpyBatchAsync",
            "cuMemcpyDtoA",
            "cuMemcpyHtoA",
            "cuMemcpyHtoAAsync",
            "cuMemcpyWithAttributesAsync",
            "cuMemPrefetchAsync",
            "cuMemPrefetchBatchAsync",
            "cuMemDiscardBatchAsync",
            "cuMemDiscardAndPrefetchBatchAsync",
            "cuMemBatchDecompressAsync",
            "cuFabricCpyBatchAsync",
            "cuStreamAttachMemAsync",
        ],
    ),
    not_handled_yet(Copies, &["cuMemcpy*", "cuMemset*", "cuMemPrefetch*", "cuMemDiscard*", "cuMemAdvise"]),
    // Stream-ordered and managed memory, pools.
    not_handled_yet(Allocates, &["cuMemAlloc*", "cuMemPoolCreate"]),
    not_handled_yet(
        Frees,
        &["cuMemFreeAsync", "cuMemPoolDestroy", "cuMemPoolTrimTo", "cuDeviceGraphMemTrim"],
    ),
    not_handled_yet(
        QueriesMemory,
        &[
            "cuMemPoolGetAccess",
            "cuMemPoolSetAccess",
            "cuMemPoolGetAttribute",
            "cuMemPoolSetAttribute",
            "cuDeviceGetDefaultMemPool",
            "cuDeviceGetMemPool",
            "cuDeviceSetMemPool",
            "cuMemGetDefaultMemPool",
            "cuMemGetMemPool",
            "cuMemSetMemPool",
            "cuDeviceGetGraphMemAttribute",
            "cuDeviceSetGraphMemAttribute",
        ],
    ),
    // The program's own use of the virtual memory calls.
    not_handled_yet(
        Allocates,
        &["cuMemAddressReserve", "cuMemCreate", "cuMemMap", "cuMemMapArrayAsync", "cuMemSetAccess"],
    ),
    not_handled_yet(Frees, &["cuMemAddressFree", "cuMemUnmap", "cuMemRelease"]),
    not_handled_yet(QueriesMemory, &["cuMemGetAccess", "cuMemGetAllocationPropertiesFromHandle"]),
    not_handled_yet(
        ExportsMemory,
        &[
            "cuMemExportToShareableHandle",
            "cuMemImportFromShareableHandle",
            "cuMemPoolExport*",
            "cuMemPoolImport*",
            "cuIpcOpenMemHandle",
            "cuIpcCloseMemHandle",
        ],
    ),
    // A multicast object maps memory of several devices at one address.
    not_handled_yet(
        Allocates,
        &["cuMulticastCreate", "cuMulticastAddDevice", "cuMulticastBindMem", "cuMulticastBindAddr"],
    ),
    not_handled_yet(Frees, &["cuMulticastUnbind"]),
    forwarded(QueriesMemory, DEVICE_FACT, &["cuMulticastGetGranularity", "cuMemGetAllocationGranularity"]),
    // Exported by drivers, declared nowhere: without a signature there is nothing to hook.
    not_handled_yet(QueriesMemory, &["cuMemGetAttribute"]),
    forwarded(QueriesMemory, MANAGED, &["cuMemRangeGetAttribute", "cuMemRangeGetAttributes"]),
    forwarded(QueriesMemory, DEVICE_FACT, &["cuMemGetLocationInfo"]),
    // Host memory.
    forwarded(Allocates, HOST, &["cuMemAllocHost", "cuMemHostAlloc", "cuMemHostRegister"]),
    forwarded(Frees, HOST, &["cuMemFreeHost", "cuMemHostUnregister"]),
    forwarded(ResolvesAddress, HOST, &["cuMemHostGetDevicePointer"]),
    forwarded(QueriesMemory, HOST, &["cuMemHostGetFlags"]),
    // Arrays.
    not_handled_yet(Allocates, &["cuArrayCreate", "cuArray3DCreate", "cuMipmappedArrayCreate"]),
    not_handled_yet(Frees, &["cuArrayDestroy", "cuMipmappedArrayDestroy"]),
    forwarded(QueriesMemory, ARRAY, &["cuArrayGet*", "cuArray3DGet*", "cuMipmappedArrayGet*"]),
];
