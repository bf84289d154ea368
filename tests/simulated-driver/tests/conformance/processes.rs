//! Several processes on one machine: one capacity for all, memory handed over by descriptor, death, and fork.
//!
//! Each process is this test program again with the test's name; parent and children talk over pipes. What the
//! machine itself guarantees is tested in the arena; here it is seen through the driver.

use std::io::BufReader;
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;

use crate::common::talk::{go_on, line, wait_for_word};
use crate::common::{
    FAST, Machine, access, allocate, context, free_bytes, is_child, isolated, properties, role, start, unit,
};
use turnus_bindings::types::*;

/// More than half of the device, so that two cannot have it.
fn most_of_the_device() -> usize {
    let mut total = 0;
    ok!(cuMemGetInfo_v2(&mut 0, &mut total));
    (total / 8 * 5).next_multiple_of(unit())
}

#[test]
fn processes_share_the_capacity_and_death_gives_it_back() {
    if is_child() {
        context();
        println!("before={}", free_bytes());
        wait_for_word();
        let mut address = 0;
        let outcome = call!(cuMemAlloc_v2(&mut address, most_of_the_device()));
        println!("after={}", free_bytes());
        println!("outcome={outcome:?}");
        wait_for_word();
        return;
    }
    let machine = Machine::new("capacity", FAST);
    let test = "processes_share_the_capacity_and_death_gives_it_back";
    let mut first = start(&machine, test, "");
    let mut first_out = BufReader::new(first.stdout.take().expect("a pipe"));
    let number = |text: String| text.parse::<usize>().expect("a number");
    let fresh = number(line(&mut first_out, "before="));
    go_on(&mut first);
    let rest = number(line(&mut first_out, "after="));
    assert!(rest < fresh / 2, "{rest} of {fresh} bytes");
    assert_eq!(line(&mut first_out, "outcome="), "Ok(())");

    let mut second = start(&machine, test, "");
    let mut second_out = BufReader::new(second.stdout.take().expect("a pipe"));
    let beside = number(line(&mut second_out, "before="));
    assert!(beside < rest, "the second context takes its memory from the same device");
    // The first one dies without a word: its memory and its context are free again.
    first.kill().expect("killed");
    first.wait().expect("gone");
    go_on(&mut second);
    assert_eq!(number(line(&mut second_out, "after=")), rest);
    assert_eq!(line(&mut second_out, "outcome="), "Ok(())");
    let mut third = start(&machine, test, "");
    let mut third_out = BufReader::new(third.stdout.take().expect("a pipe"));
    assert_eq!(number(line(&mut third_out, "before=")), beside);
    go_on(&mut third);
    assert_eq!(line(&mut third_out, "outcome="), "Err(CUDA_ERROR_OUT_OF_MEMORY (2))");
    for child in [&mut second, &mut third] {
        go_on(child);
        assert!(child.wait().expect("gone").success());
    }
}

/// Sends or receives one descriptor over a socket.
fn pass_descriptor(socket: &UnixStream, descriptor: Option<i32>) -> i32 {
    let mut byte = [0_u8; 1];
    let mut control = [0_u64; 8];
    let mut part = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
    // SAFETY: all-zero is a valid message header; its pointers lead to the arrays above, which outlive it.
    unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = libc::CMSG_SPACE(4) as usize;
        if let Some(descriptor) = descriptor {
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(4) as usize;
            libc::CMSG_DATA(header).cast::<i32>().write(descriptor);
            assert_eq!(libc::sendmsg(socket.as_raw_fd(), &raw const message, 0), 1);
            return descriptor;
        }
        assert_eq!(libc::recvmsg(socket.as_raw_fd(), &raw mut message, 0), 1);
        libc::CMSG_DATA(libc::CMSG_FIRSTHDR(&raw const message)).cast::<i32>().read()
    }
}

fn map(handle: CUmemGenericAllocationHandle) -> CUdeviceptr {
    let mut address = 0;
    ok!(cuMemAddressReserve(&mut address, unit(), 0, 0, 0));
    ok!(cuMemMap(address, unit(), 0, handle, 0));
    ok!(cuMemSetAccess(address, unit(), &access(3), 1));
    address
}

#[test]
fn memory_is_handed_over_by_descriptor_and_outlives_its_maker() {
    let test = "memory_is_handed_over_by_descriptor_and_outlives_its_maker";
    if is_child() {
        context();
        let path = std::env::var("SIMULATED_CUDA_DIR").expect("set by the parent") + "/socket";
        if role() == "exporter" {
            let mut handle = 0;
            ok!(cuMemCreate(&mut handle, unit(), &properties(1), 0));
            let address = map(handle);
            ok!(cuMemsetD32_v2(address, 0x1234_5678, unit() / 4));
            ok!(cuCtxSynchronize());
            let mut descriptor = -1;
            ok!(cuMemExportToShareableHandle(
                (&raw mut descriptor).cast(),
                handle,
                CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                0
            ));
            pass_descriptor(&UnixStream::connect(path).expect("the importer listens"), Some(descriptor));
            // Gone at once: only the descriptor under way keeps the memory.
            std::process::exit(0);
        }
        let listener = std::os::unix::net::UnixListener::bind(path).expect("socket");
        println!("listening=1");
        let descriptor = pass_descriptor(&listener.accept().expect("the exporter").0, None);
        wait_for_word();
        let os_handle = descriptor as usize as *mut libc::c_void;
        let mut handle = 0;
        ok!(cuMemImportFromShareableHandle(&mut handle, os_handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
        // SAFETY: the descriptor is ours; the import keeps its own reference.
        unsafe { libc::close(descriptor) };
        let address = map(handle);
        let mut back = vec![0_u32; unit() / 4];
        ok!(cuMemcpyDtoH_v2(back.as_mut_ptr().cast(), address, unit()));
        assert!(back.iter().all(|value| *value == 0x1234_5678));
        let before = free_bytes();
        ok!(cuMemUnmap(address, unit()));
        ok!(cuMemRelease(handle));
        assert_eq!(free_bytes(), before + unit());
        // A descriptor of something else is no memory.
        let standard_output = std::ptr::without_provenance_mut(1);
        fails!(
            INVALID_VALUE,
            cuMemImportFromShareableHandle(
                &mut handle,
                standard_output,
                CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
            )
        );
        println!("imported=1");
        return;
    }
    let machine = Machine::new("handover", FAST);
    let mut importer = start(&machine, test, "importer");
    let mut importer_out = BufReader::new(importer.stdout.take().expect("a pipe"));
    line(&mut importer_out, "listening=");
    let mut exporter = start(&machine, test, "exporter");
    assert!(exporter.wait().expect("gone").success());
    go_on(&mut importer);
    line(&mut importer_out, "imported=");
    assert!(importer.wait().expect("gone").success());
}

#[test]
fn a_forked_child_has_no_driver_and_its_parent_keeps_one() {
    isolated("a_forked_child_has_no_driver_and_its_parent_keeps_one", &[], || {
        context();
        let place = allocate(4096);
        ok!(cuMemsetD32_v2(place, 5, 1));
        ok!(cuCtxSynchronize());
        // SAFETY: the child only calls the driver, which must answer without locks or threads, and leaves.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let (mut count, mut address) = (0, 0);
            let dead = Err(turnus_bindings::CUerror::NOT_INITIALIZED);
            let right = call!(cuInit(0)) == dead
                && call!(cuDeviceGetCount(&mut count)) == dead
                && call!(cuMemAlloc_v2(&mut address, 4096)) == dead
                && call!(cuCtxSynchronize()) == dead
                && call!(cuDriverGetVersion(&mut count)) == Ok(());
            // SAFETY: ends the child without running the parent's handlers.
            unsafe { libc::_exit(if right { 0 } else { 1 }) };
        }
        let mut status = 0;
        // SAFETY: our own child.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0, "the child's answers");
        let mut value = 0_u32;
        ok!(cuMemcpyDtoH_v2((&raw mut value).cast(), place, 4));
        assert_eq!(value, 5);
    });
}

#[test]
fn a_child_forked_before_initialisation_has_a_driver_of_its_own() {
    isolated("a_child_forked_before_initialisation_has_a_driver_of_its_own", &[], || {
        let mut version = 0;
        ok!(cuDriverGetVersion(&mut version));
        // SAFETY: the test has one thread that matters; the child uses only the driver.
        let child = unsafe { libc::fork() };
        if child == 0 {
            context();
            allocate(most_of_the_device());
            // SAFETY: ends the child without running the parent's handlers.
            unsafe { libc::_exit(0) };
        }
        let mut status = 0;
        // SAFETY: our own child.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
        context();
        let fresh = free_bytes();
        let (mut total, mut place) = (0, 0);
        ok!(cuMemGetInfo_v2(&mut 0, &mut total));
        assert!(fresh > total - total / 4, "the child's memory went with it");
        ok!(cuMemAlloc_v2(&mut place, most_of_the_device()));
    });
}

#[test]
fn leaving_while_a_kernel_runs_is_quick_and_clean() {
    let test = "leaving_while_a_kernel_runs_is_quick_and_clean";
    if is_child() {
        context();
        let kernel = crate::common::function(crate::common::WAIT_FOR_FLAG, c"wait_for_flag");
        let flag = allocate(4);
        ok!(cuMemsetD32_v2(flag, 0, 1));
        assert_eq!(crate::common::launch(kernel, 1, 1, std::ptr::null_mut(), &[&flag]), Ok(()));
        std::thread::sleep(std::time::Duration::from_millis(100));
        std::process::exit(0);
    }
    let machine = Machine::new("leaving", FAST);
    let begun = std::time::Instant::now();
    let status = machine.command(test).status().expect("the child runs");
    assert!(status.success(), "{status}");
    assert!(begun.elapsed() < std::time::Duration::from_secs(10), "it hung for {:?}", begun.elapsed());
}
