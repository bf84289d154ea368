//! Decisions about what reaches beyond the process: graphics, external memory, fabric, checkpoints.
//!
//! Memory of another API cannot be moved by us; that a program uses it has to be seen in `status`.

use super::Class::{Allocates, Context, ExportsMemory, Frees, Inert, ResolvesAddress, Submits, Synchronises};
use super::{Rule, forwarded, not_handled_yet};

const GRAPHICS_SETUP: &str = "asks or prepares the graphics side; takes no device memory";
const BY_A_TOOL: &str = "a tool's call about a process named by its id; moves no memory";

pub(super) const RULES: &[Rule] = &[
    // Graphics.
    not_handled_yet(
        Allocates,
        &[
            "cuGraphicsGLRegister*",
            "cuGraphicsEGLRegister*",
            "cuGraphicsVDPAURegister*",
            "cuGLRegisterBufferObject",
        ],
    ),
    not_handled_yet(Frees, &["cuGraphicsUnregisterResource", "cuGLUnregisterBufferObject"]),
    not_handled_yet(
        Submits,
        &[
            "cuGraphicsMapResources",
            "cuGraphicsUnmapResources",
            "cuGLMapBufferObject*",
            "cuGLUnmapBufferObject*",
        ],
    ),
    not_handled_yet(
        ResolvesAddress,
        &["cuGraphicsResourceGetMapped*", "cuGraphicsSubResourceGetMappedArray"],
    ),
    not_handled_yet(Context, &["cuGLCtxCreate", "cuVDPAUCtxCreate"]),
    not_handled_yet(ExportsMemory, &["cuEGLStream*"]),
    forwarded(
        Inert,
        GRAPHICS_SETUP,
        &[
            "cuEGLApiInit",
            "cuGLInit",
            "cuGLGetDevices",
            "cuGLSetBufferObjectMapFlags",
            "cuGraphicsResourceSetMapFlags",
            "cuVDPAUGetDevice",
        ],
    ),
    // Memory of other APIs, processes and machines.
    not_handled_yet(ExportsMemory, &["cuImportExternalMemory", "cuLogicalEndpoint*"]),
    not_handled_yet(
        ResolvesAddress,
        &["cuExternalMemoryGetMappedBuffer", "cuExternalMemoryGetMappedMipmappedArray"],
    ),
    not_handled_yet(Frees, &["cuDestroyExternalMemory"]),
    // Checkpoints of the driver's own: they take all memory of a process off the device behind our back.
    not_handled_yet(Frees, &["cuCheckpointProcessCheckpoint", "cuCheckpointOperationComplete"]),
    not_handled_yet(Allocates, &["cuCheckpointProcessRestore"]),
    forwarded(
        Synchronises,
        BY_A_TOOL,
        &["cuCheckpointProcessGet*", "cuCheckpointProcessLock", "cuCheckpointProcessUnlock"],
    ),
];
