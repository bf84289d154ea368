//! Decisions about the driver itself, devices, contexts, modules, functions, textures.

use super::Class::{Context, Frees, Inert, NeedsHeadRoom, ResolvesAddress};
use super::{Rule, forwarded, hooked, not_handled_yet};

const ASKS_DRIVER: &str = "asks about the driver or a device; the answer does not depend on who shares it";
const SELECTS_CONTEXT: &str = "selects or describes a context; makes and ends none";
const CHECKED_TABLE: &str =
    "a table of addresses that runtime libraries check; whoever swaps one breaks the program";
const LAZY_CODE: &str = "code that is loaded lazily comes out of the head-room kept for modules";
const MODULE_VARIABLE: &str =
    "the address of a variable in a module, which the driver placed and nobody moves";
const UNLOADS: &str = "never gated; gives back only what the driver holds for the code";
const HOST_ONLY: &str = "computes on the host; touches nothing on the device";
const FUNCTION_TALK: &str = "asks about or configures a function; touches no memory of the program";
const ARRAY_TEXTURE: &str = "describes or binds an array, which is never moved";
const ENCODES: &str = "writes an address into a descriptor on the host; addresses stay what they are";
const TOOLING: &str = "for debuggers and profilers; touches no memory of the program";

pub(super) const RULES: &[Rule] = &[
    // The driver.
    hooked(Context, &["cuInit"]),
    hooked(Inert, &["cuGetProcAddress"]),
    forwarded(Inert, CHECKED_TABLE, &["cuGetExportTable"]),
    forwarded(Inert, ASKS_DRIVER, &["cuDriverGetVersion", "cuGetErrorName", "cuGetErrorString"]),
    // Devices.
    forwarded(
        Inert,
        ASKS_DRIVER,
        &[
            "cuDeviceGet*",
            "cuDeviceCanAccessPeer",
            "cuDeviceComputeCapability",
            "cuDeviceRegisterAsyncNotification",
            "cuDeviceUnregisterAsyncNotification",
            "cuDevResourceGenerateDesc",
            "cuDevSmResourceSplit*",
        ],
    ),
    // Contexts.
    hooked(
        Context,
        &[
            "cuCtxCreate",
            "cuCtxDestroy",
            "cuDevicePrimaryCtxRetain",
            "cuDevicePrimaryCtxRelease",
            "cuDevicePrimaryCtxReset",
        ],
    ),
    // May end a context; peers must be added to what is mapped later; stacks and heaps take memory.
    not_handled_yet(
        Context,
        &["cuCtxAttach", "cuCtxDetach", "cuCtxEnablePeerAccess", "cuCtxDisablePeerAccess"],
    ),
    hooked(NeedsHeadRoom, &["cuCtxSetLimit"]),
    not_handled_yet(NeedsHeadRoom, &["cuGreenCtxCreate"]),
    not_handled_yet(Context, &["cuGreenCtxDestroy"]),
    forwarded(
        Context,
        SELECTS_CONTEXT,
        &[
            "cuCtxFromGreenCtx",
            "cuCtxGet*",
            "cuCtxPopCurrent",
            "cuCtxPushCurrent",
            "cuCtxResetPersistingL2Cache",
            "cuCtxSetCacheConfig",
            "cuCtxSetCurrent",
            "cuCtxSetFlags",
            "cuCtxSetSharedMemConfig",
            "cuDevicePrimaryCtxGetState",
            "cuDevicePrimaryCtxSetFlags",
            "cuGreenCtxGet*",
            "cuGreenCtxStreamCreate",
        ],
    ),
    // Modules and libraries.
    hooked(
        NeedsHeadRoom,
        &[
            "cuModuleLoad",
            "cuModuleLoadData",
            "cuModuleLoadDataEx",
            "cuModuleLoadFatBinary",
            "cuLibraryLoadData",
            "cuLibraryLoadFromFile",
        ],
    ),
    not_handled_yet(NeedsHeadRoom, &["cuModuleLoad*", "cuLibraryLoad*"]),
    forwarded(Frees, UNLOADS, &["cuModuleUnload", "cuLibraryUnload"]),
    forwarded(
        NeedsHeadRoom,
        LAZY_CODE,
        &["cuFuncLoad", "cuKernelGetFunction", "cuLibraryGetModule", "cuModuleGetFunction"],
    ),
    forwarded(
        ResolvesAddress,
        MODULE_VARIABLE,
        &["cuModuleGetGlobal", "cuLibraryGetGlobal", "cuLibraryGetManaged", "cuLibraryGetUnifiedFunction"],
    ),
    forwarded(
        Inert,
        FUNCTION_TALK,
        &[
            "cuFuncGet*",
            "cuFuncIsLoaded",
            "cuFuncSetAttribute",
            "cuFuncSetCacheConfig",
            "cuKernelGet*",
            "cuKernelSet*",
            "cuLibraryEnumerateKernels",
            "cuLibraryGetKernel",
            "cuLibraryGetKernelCount",
            "cuModuleEnumerateFunctions",
            "cuModuleGetFunctionCount",
            "cuModuleGetLoadingMode",
            "cuModuleGetSurfRef",
            "cuModuleGetTexRef",
        ],
    ),
    forwarded(Inert, HOST_ONLY, &["cuLink*", "cuOccupancy*"]),
    // Textures and surfaces: of arrays, or of linear memory that may be ours.
    hooked(
        ResolvesAddress,
        &["cuTexRefSetAddress", "cuTexRefSetAddress2D", "cuTexObjectCreate", "cuSurfObjectCreate"],
    ),
    forwarded(
        Inert,
        ARRAY_TEXTURE,
        &[
            "cuSurfObjectDestroy",
            "cuSurfObjectGetResourceDesc",
            "cuSurfRefGetArray",
            "cuSurfRefSetArray",
            "cuTexObjectDestroy",
            "cuTexObjectGet*",
            "cuTexRefCreate",
            "cuTexRefDestroy",
            "cuTexRefGet*",
            "cuTexRefSetAddressMode",
            "cuTexRefSetArray",
            "cuTexRefSetBorderColor",
            "cuTexRefSetFilterMode",
            "cuTexRefSetFlags",
            "cuTexRefSetFormat",
            "cuTexRefSetMaxAnisotropy",
            "cuTexRefSetMipmap*",
        ],
    ),
    forwarded(Inert, ENCODES, &["cuTensorMap*"]),
    // Tools.
    forwarded(Inert, TOOLING, &["cuCoredump*", "cuLogs*", "cuProfiler*", "cudbg*"]),
];
