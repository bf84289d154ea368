//! Attributes of streams: CUDA driver API, `cuStreamSetAttribute`, `cuStreamGetAttribute`, `cuStreamCopyAttributes`.
//!
//! The window of the cache policy, the way to wait, and the domains of memory synchronisation are kept and read
//! back; none of them changes what the simulated device does. The priority is that of the stream's creation.

use turnus_bindings::CUerror;
use turnus_bindings::types::*;

use super::{needed, put, stream_entry};
use crate::execution::Stream;
use crate::space::Result;
use crate::stream::resolve;

/// Kept as bytes: what they mean depends on the attribute.
const KEPT: [CUstreamAttrID; 4] = [
    CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW,
    CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY,
    CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP,
    CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN,
];

stream_entry! {
    fn cuStreamGetAttribute | cuStreamGetAttribute_ptsz [default] (
        h_stream: CUstream,
        attr: CUstreamAttrID,
        value_out: *mut CUstreamAttrValue,
    ) {
        let entry = resolve(h_stream, default)?;
        put(value_out, value(&entry.stream, attr)?)
    }

    fn cuStreamSetAttribute | cuStreamSetAttribute_ptsz [default] (
        h_stream: CUstream,
        attr: CUstreamAttrID,
        value: *const CUstreamAttrValue,
    ) {
        let entry = resolve(h_stream, default)?;
        needed(value)?;
        set(&entry.stream, attr, &value.read())
    }

    fn cuStreamCopyAttributes | cuStreamCopyAttributes_ptsz [default] (dst: CUstream, src: CUstream) {
        let (destination, source) = (resolve(dst, default)?, resolve(src, default)?);
        for attribute in KEPT {
            set(&destination.stream, attribute, &value(&source.stream, attribute)?)?;
        }
        Ok(())
    }
}

fn value(stream: &Stream, attribute: CUstreamAttrID) -> Result<CUstreamAttrValue> {
    let mut value = CUlaunchAttributeValue_union { pad: [0; 64] };
    if attribute == CU_LAUNCH_ATTRIBUTE_PRIORITY {
        value.priority = stream.priority();
    } else if !KEPT.contains(&attribute) {
        return Err(CUerror::INVALID_VALUE);
    } else if let Some(pad) = stream.attribute(attribute.0) {
        value.pad = pad;
    } else if attribute == CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY {
        value.syncPolicy = CU_SYNC_POLICY_AUTO;
    } else if attribute == CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP {
        value.memSyncDomainMap = CUlaunchMemSyncDomainMap_st { default_: 0, remote: 1 };
    }
    Ok(value)
}

fn set(stream: &Stream, attribute: CUstreamAttrID, value: &CUstreamAttrValue) -> CUresult {
    // SAFETY: the attribute says which variant it is; all are numbers, of which any bytes are valid values.
    let sound = unsafe {
        match attribute {
            CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY => (1..=4).contains(&value.syncPolicy.0),
            CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW => {
                (0.0..=1.0).contains(&value.accessPolicyWindow.hitRatio)
            }
            // One of the two domains that applications name; devices have four.
            CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN => value.pad[0] <= 1,
            CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP => {
                value.memSyncDomainMap.default_ < 4 && value.memSyncDomainMap.remote < 4
            }
            // Work that is queued already would have to change its place.
            CU_LAUNCH_ATTRIBUTE_PRIORITY => return Err(CUerror::NOT_SUPPORTED),
            _ => false,
        }
    };
    if !sound {
        return Err(CUerror::INVALID_VALUE);
    }
    // SAFETY: as above.
    stream.set_attribute(attribute.0, unsafe { value.pad });
    Ok(())
}
