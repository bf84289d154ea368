//! The library as a linker and a resolver see it: names, SONAME, and every answer of cuGetProcAddress that
//! real drivers gave.
//!
//! The recorded answers lie in tests/data/driver-symbols; its README says how they were made. Nothing here
//! needs a device.

#[macro_use]
mod common;

use std::ffi::{CString, c_void};
use std::process::Command;

use common::{address, isolated, library_directory, text};
use turnus_bindings::types::*;

const LISTS: [&str; 3] = [
    include_str!("../../data/driver-symbols/libcuda.so.1.535.261.03-1.txt"),
    include_str!("../../data/driver-symbols/libcuda.so.1.550.163.01-2.txt"),
    include_str!("../../data/driver-symbols/libcuda.so.1.555.58.02-4.txt"),
];
const TABLES: [(&str, &str); 3] = [
    ("12020", include_str!("../../data/driver-symbols/gpa_map.535.261.03-1.tsv")),
    ("12040", include_str!("../../data/driver-symbols/gpa_map.550.163.01-2.tsv")),
    ("12050", include_str!("../../data/driver-symbols/gpa_map.555.58.02-4.tsv")),
];

#[test]
fn every_name_of_every_known_driver_is_exported() {
    let exported = LISTS.iter().flat_map(|list| list.lines()).map(|line| line.trim());
    let missing: Vec<&str> = (turnus_bindings::NAMES.iter().copied())
        .chain(exported.filter(|line| line.starts_with("cu")))
        .filter(|name| address(name).is_none())
        .collect();
    assert!(missing.is_empty(), "not exported: {missing:?}");
    assert!(turnus_bindings::NAMES.len() >= 751, "the list of names is whole");
}

#[test]
fn the_soname_is_that_of_the_driver() {
    let output = Command::new("readelf").arg("-d").arg(library_directory().join("libcuda.so.1")).output();
    let text = String::from_utf8(output.expect("readelf runs").stdout).expect("text");
    assert!(text.contains("Library soname: [libcuda.so.1]"), "{text}");
    assert!(text.contains("SYMBOLIC"), "{text}");
    assert!(text.contains("NODELETE"), "{text}");
}

#[test]
fn the_library_leaves_no_name_of_its_own_in_the_program() {
    let library = library_directory().join("libcuda.so.1");
    let output = Command::new("nm").args(["-D", "--defined-only"]).arg(library).output();
    let text = String::from_utf8(output.expect("nm runs").stdout).expect("text");
    let foreign: Vec<&str> = text
        .lines()
        .filter_map(|line| line.split_whitespace().nth(2))
        .filter(|name| !name.starts_with("cu"))
        .collect();
    assert!(foreign.is_empty(), "exported besides the driver's names: {foreign:?}");
}

/// What cuGetProcAddress_v2 answers: result, address, status.
fn ask(name: &str, version: i32, flag: u64) -> (CUresult, usize, u32) {
    let name = CString::new(name).expect("no zero in a name");
    let mut found: *mut c_void = std::ptr::without_provenance_mut(1);
    let mut status = CUdriverProcAddressQueryResult_enum(77);
    let result = call!(cuGetProcAddress_v2(name.as_ptr(), &mut found, version, flag, &mut status));
    (result, found as usize, status.0)
}

fn check_table(table: &str) {
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split('\t').collect()).collect();
    assert!(rows.len() > 2800, "the table is whole");
    for row in rows {
        let &[name, flag, version, symbol] = row.as_slice() else { panic!("row {row:?}") };
        let expected = match symbol {
            "-r0/s1" => (Ok(()), 0, 1),
            "-r0/s2" => (Ok(()), 0, 2),
            symbol => (Ok(()), address(symbol).expect("an exported symbol") as usize, 0),
        };
        let answer = ask(name, version.parse().expect("version"), flag.parse().expect("flag"));
        assert_eq!(answer, expected, "{name} for {version} with flag {flag}");
    }
}

#[test]
fn driver_535_is_answered_row_by_row() {
    let body = || check_table(TABLES[0].1);
    isolated("driver_535_is_answered_row_by_row", &[("SIMULATED_CUDA_DRIVER_VERSION", "12020")], body);
}

#[test]
fn driver_550_is_answered_row_by_row() {
    let body = || check_table(TABLES[1].1);
    isolated("driver_550_is_answered_row_by_row", &[("SIMULATED_CUDA_DRIVER_VERSION", "12040")], body);
}

#[test]
fn driver_555_is_answered_row_by_row() {
    let body = || check_table(TABLES[2].1);
    isolated("driver_555_is_answered_row_by_row", &[("SIMULATED_CUDA_DRIVER_VERSION", "12050")], body);
}

#[test]
fn the_newest_driver_knows_newer_names_from_their_version_on() {
    isolated("the_newest_driver_knows_newer_names_from_their_version_on", &[], || {
        let at = |symbol: &str| address(symbol).expect("an exported symbol") as usize;
        assert_eq!(ask("cuEventElapsedTime", 12070, 0), (Ok(()), at("cuEventElapsedTime"), 0));
        assert_eq!(ask("cuEventElapsedTime", 12080, 0), (Ok(()), at("cuEventElapsedTime_v2"), 0));
        assert_eq!(ask("cuMemcpyBatchAsync", 12070, 0), (Ok(()), 0, 2));
        assert_eq!(ask("cuMemcpyBatchAsync", 13000, 2), (Ok(()), at("cuMemcpyBatchAsync_v2_ptsz"), 0));
        assert_eq!(ask("cuLaunchHostFunc", 13050, 1), (Ok(()), at("cuLaunchHostFunc_v2"), 0));
        let mut version = 0;
        ok!(cuDriverGetVersion(&mut version));
        assert_eq!(version, 13050);
    });
}

#[test]
fn odd_questions_are_answered_as_driver_550_does() {
    isolated(
        "odd_questions_are_answered_as_driver_550_does",
        &[("SIMULATED_CUDA_DRIVER_VERSION", "12040")],
        || {
            let at = |symbol: &str| address(symbol).expect("an exported symbol") as usize;
            assert_eq!(ask("", 12040, 0), (Ok(()), 0, 1));
            assert_eq!(ask("cuMemAlloc_v2", 12040, 0), (Ok(()), 0, 1), "only base names are searched");
            assert_eq!(ask("cuInit", 0, 0), (Ok(()), 0, 2));
            assert_eq!(ask("cuInit", -1, 0).1, at("cuInit"));
            assert_eq!(ask("cuMemAlloc", 99999, 0).1, at("cuMemAlloc_v2"), "newer than the driver");
            assert_eq!(ask("cuLaunchKernel", 12040, 3).1, at("cuLaunchKernel_ptsz"));
            assert_eq!(ask("cuInit", 12040, 4), (Err(turnus_bindings::CUerror::INVALID_VALUE), 1, 77));
            // The first version has no status: what is not found is an error and leaves the pointer alone.
            let mut found: *mut c_void = std::ptr::without_provenance_mut(1);
            fails!(NOT_FOUND, cuGetProcAddress(c"cuNope".as_ptr(), &mut found, 12040, 0));
            fails!(NOT_FOUND, cuGetProcAddress(c"cuInit".as_ptr(), &mut found, 1000, 0));
            assert_eq!(found as usize, 1);
        },
    );
}

#[test]
fn before_initialisation_only_questions_about_the_driver_are_answered() {
    isolated("before_initialisation_only_questions_about_the_driver_are_answered", &[], || {
        let (mut count, mut address) = (0, 0);
        fails!(NOT_INITIALIZED, cuDeviceGetCount(&mut count));
        fails!(NOT_INITIALIZED, cuMemAlloc_v2(&mut address, 100));
        fails!(NOT_INITIALIZED, cuCtxSynchronize());
        fails!(NOT_INITIALIZED, cuProfilerStart());
        fails!(INVALID_VALUE, cuInit(1));
        let mut name = std::ptr::null();
        ok!(cuGetErrorName(Err(turnus_bindings::CUerror::OUT_OF_MEMORY), &mut name));
        assert_eq!(text(name), "CUDA_ERROR_OUT_OF_MEMORY");
        ok!(cuGetErrorString(Ok(()), &mut name));
        assert_eq!(text(name), "no error");
        let unknown = turnus_bindings::CUerror::new(12345).expect("not zero");
        fails!(INVALID_VALUE, cuGetErrorName(Err(unknown), &mut name));
        assert!(name.is_null());
    });
}

#[test]
fn what_is_not_simulated_says_so() {
    isolated("what_is_not_simulated_says_so", &[], || {
        common::context();
        let mut multicast = 0;
        fails!(NOT_SUPPORTED, cuMulticastCreate(&mut multicast, std::ptr::null()));
        let mut table = std::ptr::null();
        let id = CUuuid { bytes: [7; 16] };
        fails!(INVALID_VALUE, cuGetExportTable(&mut table, &id));
        assert!(table.is_null());
    });
}
