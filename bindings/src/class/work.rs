//! Decisions about work: launches, streams, events, captures and graphs.
//!
//! What waits for work, or lets other work finish, is never gated; see `Class::Synchronises`.

use super::Class::{Allocates, Frees, Inert, ResolvesAddress, Submits, Synchronises};
use super::{Rule, forwarded, hooked, not_handled_yet};

const NEVER_GATED: &str = "waiting for work and ordering it must always be possible, or nothing would finish";
const HOST_FUNCTION: &str =
    "a host function touches no device memory and may be what a running kernel waits for";
const SMALL: &str = "makes, ends or describes a small object of the driver; touches no memory of the program";
const CAPTURE_STATE: &str = "asks or changes the state of a capture; gives the device nothing to do";
const NODE_WITHOUT_ADDRESS: &str =
    "describes work that names no device address; nothing runs before a launch";
const GRAPH_TALK: &str = "asks or edits the description of a graph on the host";
const DESTROYS_GRAPH: &str = "never gated; gives back only what the driver holds for the graph";
const LAUNCH_STATE: &str = "sets what the next launch will use; the launch itself is hooked";

pub(super) const RULES: &[Rule] = &[
    hooked(
        Submits,
        &[
            "cuLaunch",
            "cuLaunchGrid",
            "cuLaunchGridAsync",
            "cuLaunchKernel",
            "cuLaunchKernelEx",
            "cuLaunchCooperativeKernel",
            "cuLaunchCooperativeKernelMultiDevice",
            "cuGraphLaunch",
            "cuGraphUpload",
            "cuStreamBeginCapture",
            "cuStreamBeginCaptureToGraph",
            "cuStreamBeginRecaptureToGraph",
            "cuStreamEndCapture",
        ],
    ),
    not_handled_yet(Submits, &["cuLaunch*"]),
    forwarded(Submits, HOST_FUNCTION, &["cuLaunchHostFunc", "cuStreamAddCallback"]),
    // Written and awaited by the device itself, at an address that may be ours.
    hooked(
        Submits,
        &[
            "cuStreamBatchMemOp",
            "cuStreamWaitValue32",
            "cuStreamWaitValue64",
            "cuStreamWriteValue32",
            "cuStreamWriteValue64",
        ],
    ),
    not_handled_yet(Submits, &["cuStreamWaitValue*", "cuStreamWriteValue*"]),
    forwarded(
        Inert,
        LAUNCH_STATE,
        &["cuParamSet*", "cuFuncSetBlockShape", "cuFuncSetSharedSize", "cuFuncSetSharedMemConfig"],
    ),
    // Streams and events.
    forwarded(
        Inert,
        SMALL,
        &[
            "cuStreamCreate",
            "cuStreamCreateWithPriority",
            "cuStreamDestroy",
            "cuStreamGet*",
            "cuStreamSetAttribute",
            "cuStreamCopyAttributes",
        ],
    ),
    forwarded(Synchronises, NEVER_GATED, &["cuStreamSynchronize", "cuStreamQuery", "cuStreamWaitEvent"]),
    forwarded(
        Synchronises,
        NEVER_GATED,
        &[
            "cuEvent*",
            "cuIpcGetEventHandle",
            "cuIpcOpenEventHandle",
            "cuCtxSynchronize",
            "cuCtxRecordEvent",
            "cuCtxWaitEvent",
            "cuGreenCtxRecordEvent",
            "cuGreenCtxWaitEvent",
            "cuSignalExternalSemaphoresAsync",
            "cuWaitExternalSemaphoresAsync",
            "cuImportExternalSemaphore",
            "cuDestroyExternalSemaphore",
            "cuFlushGPUDirectRDMAWrites",
        ],
    ),
    // Captures.
    forwarded(
        Inert,
        CAPTURE_STATE,
        &[
            "cuStreamIsCapturing",
            "cuStreamGetCaptureInfo",
            "cuStreamUpdateCaptureDependencies",
            "cuThreadExchangeStreamCaptureMode",
        ],
    ),
    // Capture into a command list of a graphics API, which submits it out of our sight.
    not_handled_yet(Submits, &["cuStreamBeginCaptureToCig", "cuStreamEndCaptureToCig"]),
    // Graphs. Instantiating also needs head-room; being mapped is the stricter demand.
    not_handled_yet(ResolvesAddress, &["cuGraphInstantiate*"]),
    hooked(
        ResolvesAddress,
        &[
            "cuGraphInstantiate",
            "cuGraphInstantiateWithFlags",
            "cuGraphInstantiateWithParams",
            "cuGraphExecUpdate",
            "cuGraphAddNode",
            "cuGraphAddKernelNode",
            "cuGraphAddMemcpyNode",
            "cuGraphAddMemsetNode",
            "cuGraphAddBatchMemOpNode",
            "cuGraphNodeSetParams",
            "cuGraphKernelNodeSetParams",
            "cuGraphMemcpyNodeSetParams",
            "cuGraphMemsetNodeSetParams",
            "cuGraphBatchMemOpNodeSetParams",
            "cuGraphExecNodeSetParams",
            "cuGraphExecKernelNodeSetParams",
            "cuGraphExecMemcpyNodeSetParams",
            "cuGraphExecMemsetNodeSetParams",
            "cuGraphExecBatchMemOpNodeSetParams",
            "cuGraphExecChildGraphNodeSetParams",
        ],
    ),
    not_handled_yet(Allocates, &["cuGraphAddMemAllocNode"]),
    not_handled_yet(Frees, &["cuGraphAddMemFreeNode"]),
    forwarded(
        Inert,
        NODE_WITHOUT_ADDRESS,
        &[
            "cuGraphAddChildGraphNode",
            "cuGraphAddDependencies",
            "cuGraphAddEmptyNode",
            "cuGraphAddEventRecordNode",
            "cuGraphAddEventWaitNode",
            "cuGraphAddExternalSemaphores*",
            "cuGraphAddHostNode",
            "cuGraphConditionalHandleCreate",
            "cuGraphEvent*",
            "cuGraphExternalSemaphores*",
            "cuGraphExecEvent*",
            "cuGraphExecExternalSemaphores*",
            "cuGraphExecHostNodeSetParams",
            "cuGraphHostNode*",
        ],
    ),
    forwarded(
        Inert,
        GRAPH_TALK,
        &[
            "cuGraphBatchMemOpNodeGetParams",
            "cuGraphChildGraphNodeGetGraph",
            "cuGraphClone",
            "cuGraphCreate",
            "cuGraphDebugDotPrint",
            "cuGraphExecGet*",
            "cuGraphGet*",
            "cuGraphKernelNodeCopyAttributes",
            "cuGraphKernelNodeGet*",
            "cuGraphKernelNodeSetAttribute",
            "cuGraphMemAllocNodeGetParams",
            "cuGraphMemFreeNodeGetParams",
            "cuGraphMemcpyNodeGetParams",
            "cuGraphMemsetNodeGetParams",
            "cuGraphNodeFindInClone",
            "cuGraphNodeGet*",
            "cuGraphNodeSetEnabled",
            "cuGraphReleaseUserObject",
            "cuGraphRemoveDependencies",
            "cuGraphRetainUserObject",
            "cuUserObject*",
        ],
    ),
    forwarded(Frees, DESTROYS_GRAPH, &["cuGraphDestroy", "cuGraphDestroyNode", "cuGraphExecDestroy"]),
];
