//! Peer access: CUDA driver API, "Peer Context Memory Access".
//!
//! All devices of a machine reach each other, or none does (`peer_access` in `devices.toml`). Copies between
//! devices work in any case.

use std::ffi::{c_int, c_uint};

use turnus_bindings::CUerror;
use turnus_bindings::types::*;

use super::{entry, needed, put};
use crate::context::{CONTEXTS, current};
use crate::driver::driver;
use crate::space::{Grant, Result};

entry! {
    fn cuDeviceCanAccessPeer(can_access_peer: *mut c_int, dev: CUdevice, peer_dev: CUdevice) {
        let driver = driver()?;
        let (device, peer) = (driver.index(dev)?, driver.index(peer_dev)?);
        put(can_access_peer, driver.space.can_access_peer(device, peer).into())
    }

    fn cuDeviceGetP2PAttribute(value: *mut c_int, attrib: CUdevice_P2PAttribute, src_device: CUdevice, dst_device: CUdevice) {
        needed(value)?;
        let driver = driver()?;
        let (source, destination) = (driver.index(src_device)?, driver.index(dst_device)?);
        if source == destination {
            return Err(CUerror::INVALID_DEVICE);
        }
        let supported = driver.space.can_access_peer(source, destination).into();
        put(value, match attrib {
            CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED | CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED => supported,
            // All links are alike, arrays are not simulated, and atomics are supported whole.
            CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK
            | CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED
            | CU_DEVICE_P2P_ATTRIBUTE_ONLY_PARTIAL_NATIVE_ATOMIC_SUPPORTED => 0,
            _ => return Err(CUerror::INVALID_VALUE),
        })
    }

    fn cuCtxEnablePeerAccess(peer_context: CUcontext, flags: c_uint) {
        let (grant, peer_device) = grant(peer_context)?;
        if flags != 0 {
            return Err(CUerror::INVALID_VALUE);
        }
        let space = &driver()?.space;
        if !space.can_access_peer(grant.device, peer_device) {
            return Err(CUerror::PEER_ACCESS_UNSUPPORTED);
        }
        space.enable_peer_access(grant)
    }

    fn cuCtxDisablePeerAccess(peer_context: CUcontext) {
        driver()?.space.disable_peer_access(grant(peer_context)?.0)
    }
}

/// What the current context would be given, and the device of the peer.
fn grant(peer: CUcontext) -> Result<(Grant, usize)> {
    let context = current::get_sound()?;
    let peer = CONTEXTS.get(peer).map_err(|_| CUerror::INVALID_CONTEXT)?;
    if peer.id() == context.id() {
        return Err(CUerror::INVALID_CONTEXT);
    }
    let grant = Grant { accessor: context.id(), device: context.device, owner: peer.id() };
    Ok((grant, peer.device))
}
