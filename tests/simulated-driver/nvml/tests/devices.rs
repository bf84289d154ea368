//! Devices: how they are found, and what they say of themselves.

#[macro_use]
mod common;

use common::*;

#[test]
fn a_device_is_found_by_everything_that_names_it() {
    isolated("a_device_is_found_by_everything_that_names_it", &[], || {
        ok!(nvmlInit_v2());
        let second = device(1);
        let uuid = text(|place, size| call!(nvmlDeviceGetUUID(second, place, size)));
        assert!(uuid.starts_with("GPU-") && uuid.len() == 40, "{uuid}");
        let mut found: Handle = std::ptr::null_mut();
        let by = |name: &str, key: &str, found: &mut Handle| {
            let key = std::ffi::CString::new(key).expect("no zero");
            call(name, (key.as_ptr(), std::ptr::from_mut(found)))
        };
        assert_eq!((by("nvmlDeviceGetHandleByUUID", &uuid, &mut found), found), (SUCCESS, second));
        for bus_id in ["00000000:02:00.0", "0000:02:00.0", "02:00.0"] {
            found = std::ptr::null_mut();
            let code = by("nvmlDeviceGetHandleByPciBusId_v2", bus_id, &mut found);
            assert_eq!((code, found), (SUCCESS, second), "{bus_id}");
        }
        assert_eq!(by("nvmlDeviceGetHandleByPciBusId_v2", "09:00.0", &mut found), NOT_FOUND);
        assert_eq!(by("nvmlDeviceGetHandleByPciBusId_v2", "nonsense", &mut found), INVALID_ARGUMENT);
        assert_eq!(by("nvmlDeviceGetHandleByUUID", "GPU-0", &mut found), NOT_FOUND);
        assert_eq!(by("nvmlDeviceGetHandleBySerial", "1", &mut found), NOT_FOUND);
        assert_eq!(call!(nvmlDeviceGetHandleByIndex_v2(2_u32, &raw mut found)), INVALID_ARGUMENT);
        assert_eq!(number("nvmlDeviceGetIndex", second), 1);
    });
}

#[test]
fn cuda_and_nvml_speak_of_the_same_devices() {
    isolated("cuda_and_nvml_speak_of_the_same_devices", &[("CUDA_VISIBLE_DEVICES", "1")], || {
        ok!(nvmlInit_v2());
        assert_eq!(call!(cuInit(0_u32)), 0);
        let mut count = 0_u32;
        ok!(nvmlDeviceGetCount_v2(&raw mut count));
        assert_eq!(count, 2, "CUDA_VISIBLE_DEVICES does not concern NVML");
        let mut uuid = [0_u8; 16];
        assert_eq!(call!(cuDeviceGetUuid_v2(uuid.as_mut_ptr(), 0_i32)), 0);
        let hex: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
        let second = text(|place, size| call!(nvmlDeviceGetUUID(device(1), place, size)));
        assert_eq!(second.replace("GPU-", "").replace('-', ""), hex);
        let mut bus_id = [0_u8; 32];
        assert_eq!(call!(cuDeviceGetPCIBusId(bus_id.as_mut_ptr(), 32_i32, 0_i32)), 0);
        let mut info = [0_u8; 68];
        ok!(nvmlDeviceGetPciInfo_v3(device(1), info.as_mut_ptr()));
        assert_eq!(info[..16], bus_id[..16], "the legacy form");
        assert_eq!(&info[36..53], b"00000000:02:00.0\0");
        let (mut major, mut minor) = (0_i32, 0_i32);
        ok!(nvmlDeviceGetCudaComputeCapability(device(1), &raw mut major, &raw mut minor));
        assert_eq!((major, minor), (8, 0));
        assert_eq!(number("nvmlDeviceGetNumGpuCores", device(0)), 6912, "108 multiprocessors of 64");
    });
}

#[test]
fn what_data_centre_cards_lack_is_refused() {
    isolated("what_data_centre_cards_lack_is_refused", &[], || {
        ok!(nvmlInit_v2());
        let mut value = 7_u32;
        assert_eq!(call!(nvmlDeviceGetFanSpeed(device(0), &raw mut value)), NOT_SUPPORTED);
        assert_eq!(call!(nvmlDeviceGetClockInfo(device(0), 3_u32, &raw mut value)), NOT_SUPPORTED, "video");
        assert_eq!(call!(nvmlDeviceGetClockInfo(device(0), 4_u32, &raw mut value)), INVALID_ARGUMENT);
        assert_eq!(value, 7, "a refused call writes nothing");
        let (mut current, mut pending) = (7_u32, 7_u32);
        ok!(nvmlDeviceGetMigMode(device(0), &raw mut current, &raw mut pending));
        assert_eq!((current, pending), (0, 0));
        let mut errors = 7_u64;
        ok!(nvmlDeviceGetTotalEccErrors(device(0), 1_u32, 0_u32, &raw mut errors));
        assert_eq!(errors, 0);
        assert_eq!(
            call!(nvmlDeviceGetTotalEccErrors(device(0), 2_u32, 0_u32, &raw mut errors)),
            INVALID_ARGUMENT
        );
    });
}

#[test]
fn fields_have_a_status_each() {
    isolated("fields_have_a_status_each", &[], || {
        ok!(nvmlInit_v2());
        #[repr(C)]
        #[derive(Clone, Copy, Default)]
        struct Field {
            field: u32,
            scope: u32,
            times: [i64; 2],
            value_type: u32,
            result: u32,
            value: u64,
        }
        let mut fields = [Field { field: 83, ..Field::default() }, Field { field: 9999, ..Field::default() }];
        ok!(nvmlDeviceGetFieldValues(device(0), 2_i32, fields.as_mut_ptr()));
        assert_eq!(fields.map(|field| field.result), [SUCCESS, NOT_SUPPORTED]);
        let mut energy = 0_u64;
        ok!(nvmlDeviceGetTotalEnergyConsumption(device(0), &raw mut energy));
        assert!(
            energy >= fields[0].value && energy < fields[0].value + 6_000_000,
            "energy grows, 50 W in two minutes"
        );
    });
}

#[test]
fn peer_access_is_as_cuda_has_it() {
    isolated("peer_access_is_as_cuda_has_it", &[], || {
        ok!(nvmlInit_v2());
        assert_eq!(call!(cuInit(0_u32)), 0);
        let mut can = 9_i32;
        assert_eq!(call!(cuDeviceCanAccessPeer(&raw mut can, 0_i32, 1_i32)), 0);
        let status = |second: u32, capability: u32| {
            let mut status = 99_u32;
            ok!(nvmlDeviceGetP2PStatus(device(0), device(second), capability, &raw mut status));
            status
        };
        // Reading, writing, over NVLink; 5 is "not supported".
        assert_eq!((can, status(1, 0), status(1, 1), status(1, 2)), (1, 0, 0, 5));
        assert_eq!(status(0, 0), 5, "no peer of itself");
    });
}
