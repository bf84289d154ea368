//! Peer access, which simulated devices do not have: CUDA driver API, "Peer Context Memory Access".
//!
//! Copies between devices work without it, as on cards that lack it.

use std::ffi::{c_int, c_uint};

use turnus_bindings::CUerror;
use turnus_bindings::types::*;

use super::{entry, needed, put};
use crate::context::{CONTEXTS, current};
use crate::driver::driver;

entry! {
    fn cuDeviceCanAccessPeer(can_access_peer: *mut c_int, dev: CUdevice, peer_dev: CUdevice) {
        let driver = driver()?;
        driver.index(dev)?;
        driver.index(peer_dev)?;
        put(can_access_peer, 0)
    }

    fn cuDeviceGetP2PAttribute(value: *mut c_int, attrib: CUdevice_P2PAttribute, src_device: CUdevice, dst_device: CUdevice) {
        needed(value)?;
        let driver = driver()?;
        driver.index(src_device)?;
        driver.index(dst_device)?;
        if src_device == dst_device {
            return Err(CUerror::INVALID_DEVICE);
        }
        match attrib.0 {
            1..=5 => put(value, 0),
            _ => Err(CUerror::INVALID_VALUE),
        }
    }

    fn cuCtxEnablePeerAccess(peer_context: CUcontext, flags: c_uint) {
        current::get_sound()?;
        CONTEXTS.get(peer_context).map_err(|_| CUerror::INVALID_CONTEXT)?;
        if flags != 0 {
            return Err(CUerror::INVALID_VALUE);
        }
        Err(CUerror::PEER_ACCESS_UNSUPPORTED)
    }

    fn cuCtxDisablePeerAccess(peer_context: CUcontext) {
        current::get_sound()?;
        CONTEXTS.get(peer_context).map_err(|_| CUerror::INVALID_CONTEXT)?;
        Err(CUerror::PEER_ACCESS_NOT_ENABLED)
    }
}
