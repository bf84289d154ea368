//! Peer access: which device's kernels reach which memory, and what the driver says about it.
//!
//! Two devices on one machine. Expected values are those that the driver's documentation states.

use crate::common::{
    access_of, allocate_in, contexts, function, launch, location, on_two_devices, properties, unit, word_at,
};
use turnus_bindings::CUerror;
use turnus_bindings::types::*;

const NULL: CUstream = std::ptr::null_mut();

/// What becomes of a kernel of the current context that stores at `address`.
fn store(kernel: CUfunction, address: CUdeviceptr) -> CUresult {
    launch(kernel, 1, 1, NULL, &[&address])?;
    call!(cuCtxSynchronize())
}

#[test]
fn kernels_reach_the_memory_of_a_peer_while_it_is_enabled() {
    on_two_devices("kernels_reach_the_memory_of_a_peer_while_it_is_enabled", || {
        let [owner, current] = contexts();
        let kernel = function(crate::common::STORE_ONE, c"store_one");
        let (mut can, mut value) = (0, 0);
        ok!(cuDeviceCanAccessPeer(&mut can, 1, 0));
        ok!(cuDeviceGetP2PAttribute(&mut value, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 1, 0));
        assert_eq!((can, value), (1, 1));
        ok!(cuDeviceCanAccessPeer(&mut can, 1, 1));
        assert_eq!(can, 0, "no peer of itself");
        fails!(
            INVALID_DEVICE,
            cuDeviceGetP2PAttribute(&mut value, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 1, 1)
        );
        let (large, small) = (allocate_in(owner, 3 * unit()), allocate_in(owner, 100));
        ok!(cuCtxEnablePeerAccess(owner, 0));
        fails!(PEER_ACCESS_ALREADY_ENABLED, cuCtxEnablePeerAccess(owner, 0));
        let later =
            [allocate_in(owner, 2 * unit()), allocate_in(owner, unit() / 2), allocate_in(owner, unit() / 2)];
        for address in [large, large + 2 * unit() as u64, small].into_iter().chain(later) {
            assert_eq!(store(kernel, address), Ok(()));
            assert_eq!(word_at(address), 1);
        }
        let mut flags = 9_u32;
        let kind = CU_POINTER_ATTRIBUTE_ACCESS_FLAGS;
        ok!(cuPointerGetAttribute((&raw mut flags).cast(), kind, large));
        assert_eq!(flags, 3);
        ok!(cuCtxDisablePeerAccess(owner));
        fails!(PEER_ACCESS_NOT_ENABLED, cuCtxDisablePeerAccess(owner));
        ok!(cuPointerGetAttribute((&raw mut flags).cast(), kind, large));
        assert_eq!(flags, 0);
        // The other direction was never enabled.
        ok!(cuCtxPushCurrent_v2(owner));
        fails!(PEER_ACCESS_NOT_ENABLED, cuCtxDisablePeerAccess(current));
        ok!(cuCtxPopCurrent_v2(&mut std::ptr::null_mut()));
        assert_eq!(store(kernel, later[0]), Err(CUerror::ILLEGAL_ADDRESS));
        fails!(ILLEGAL_ADDRESS, cuCtxEnablePeerAccess(owner, 0));
    });
}

#[test]
fn wrong_peers_are_refused_and_a_destroyed_one_is_forgotten() {
    on_two_devices("wrong_peers_are_refused_and_a_destroyed_one_is_forgotten", || {
        let [owner, current] = contexts();
        let mut twin = std::ptr::null_mut();
        ok!(cuCtxCreate_v2(&mut twin, 0, 1));
        ok!(cuCtxSetCurrent(current));
        fails!(INVALID_CONTEXT, cuCtxEnablePeerAccess(std::ptr::null_mut(), 0));
        fails!(INVALID_CONTEXT, cuCtxEnablePeerAccess(current, 0));
        fails!(INVALID_CONTEXT, cuCtxDisablePeerAccess(std::ptr::without_provenance_mut(16)));
        fails!(INVALID_VALUE, cuCtxEnablePeerAccess(owner, 1));
        fails!(PEER_ACCESS_UNSUPPORTED, cuCtxEnablePeerAccess(twin, 0));
        ok!(cuCtxEnablePeerAccess(owner, 0));
        ok!(cuCtxDestroy_v2(owner));
        fails!(INVALID_CONTEXT, cuCtxDisablePeerAccess(owner));
        ok!(cuCtxSynchronize());
    });
}

#[test]
fn mappings_and_pools_are_opened_to_a_peer() {
    on_two_devices("mappings_and_pools_are_opened_to_a_peer", || {
        contexts();
        let kernel = function(crate::common::STORE_ONE, c"store_one");
        let (mut mapped, mut handle) = (0, 0);
        ok!(cuMemAddressReserve(&mut mapped, unit(), 0, 0, 0));
        ok!(cuMemCreate(&mut handle, unit(), &properties(0), 0));
        ok!(cuMemMap(mapped, unit(), 0, handle, 0));
        ok!(cuMemSetAccess(mapped, unit(), [access_of(0, 3), access_of(1, 3)].as_ptr(), 2));
        assert_eq!(store(kernel, mapped), Ok(()));
        let mut flags = 0_u64;
        ok!(cuMemSetAccess(mapped, unit(), &access_of(0, 0), 1));
        ok!(cuMemGetAccess(&mut flags, &location(0), mapped));
        assert_eq!(flags, 0);
        ok!(cuMemGetAccess(&mut flags, &location(1), mapped));
        assert_eq!(flags, 3);
        assert_eq!(store(kernel, mapped), Ok(()), "the peer keeps its access");

        let (mut pool, mut pooled, mut later) = (std::ptr::null_mut(), 0, 0);
        ok!(cuDeviceGetDefaultMemPool(&mut pool, 0));
        ok!(cuMemAllocFromPoolAsync(&mut pooled, 100, pool, NULL));
        fails!(INVALID_VALUE, cuMemPoolSetAccess(pool, &access_of(1, 1), 1));
        ok!(cuMemPoolSetAccess(pool, &access_of(1, 3), 1));
        ok!(cuMemAllocFromPoolAsync(&mut later, 40 * unit(), pool, NULL));
        assert_eq!((store(kernel, pooled), store(kernel, later)), (Ok(()), Ok(())));
        let mut pool_flags = CUmemAccess_flags_enum(9);
        ok!(cuMemPoolGetAccess(&mut pool_flags, pool, &mut location(1)));
        assert_eq!(pool_flags.0, 3);
        ok!(cuMemPoolSetAccess(pool, &access_of(1, 0), 1));
        ok!(cuMemPoolGetAccess(&mut pool_flags, pool, &mut location(1)));
        assert_eq!(pool_flags.0, 0);
        assert_eq!(store(kernel, pooled), Err(CUerror::ILLEGAL_ADDRESS));
    });
}
