//! The process ends while work runs: no crash, no hang.
//!
//! The test starts its own binary again with a role in the environment, since the end of a
//! process can only be seen from outside.

use std::process::Command;

use super::*;

const ROLE: &str = "TURNUS_TEST_EXECUTION_TEARDOWN";

#[test]
fn a_process_may_exit_while_kernels_copies_and_host_functions_are_under_way() {
    if std::env::var_os(ROLE).is_some() {
        exit_with_work_under_way();
    }
    assert_exits("a_process_may_exit_while_kernels_copies_and_host_functions_are_under_way");
}

#[test]
fn a_forked_child_may_exit_whatever_the_parent_was_doing() {
    if std::env::var_os(ROLE).is_some() {
        fork_while_submitting();
    }
    assert_exits("a_forked_child_may_exit_whatever_the_parent_was_doing");
}

/// Runs the test `name` in its role in a process of its own, which must end with code 42.
fn assert_exits(name: &str) {
    let own = std::env::current_exe().unwrap();
    let mut child = Command::new(own).args([name, "--nocapture"]).env(ROLE, "1").spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(10);
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if Instant::now() > deadline {
            child.kill().unwrap();
            panic!("the process hangs at its end");
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    assert_eq!(status.code(), Some(42), "{status}");
}

/// Forks many times while other threads hold the context's locks most of the time; each child
/// exits, which drops the forking thread's default stream there.
fn fork_while_submitting() -> ! {
    let bench = bench();
    let context = bench.context.clone();
    context.submit(&context.per_thread_stream(), Work::Nothing).unwrap();
    for _ in 0..2 {
        let context = context.clone();
        std::thread::spawn(move || {
            loop {
                drop(context.create_stream(false, 0))
            }
        });
    }
    for _ in 0..100 {
        // SAFETY: the child only calls exit, as programs do; what its handlers may touch is the
        // subject of this test.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: a child that hangs must not outlive the test; then it ends with its handlers
            // and the destructors of this thread.
            unsafe {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                libc::exit(0)
            }
        }
        let mut status = 0;
        // SAFETY: waits for a child of this process; `status` is valid for the write.
        let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!((waited, status), (child, 0));
    }
    std::process::exit(42)
}

/// Everything at once, then `exit`, which runs the handlers and destructors of the process.
fn exit_with_work_under_way() -> ! {
    unsafe extern "C" fn block(_data: *mut c_void) {
        std::thread::sleep(Duration::from_secs(3600));
    }
    let bench = bench();
    let context = &bench.context;
    let streams: Vec<_> = (0..4).map(|_| context.create_stream(true, 0)).collect();
    context.submit(&streams[0], kernel(|| KernelStep::Yielded)).unwrap();
    context.submit(&streams[1], host_function(block, std::ptr::null_mut())).unwrap();
    let wait = Work::WaitValue { address: BASE, value: 1, bytes: 4, condition: WaitCondition::Equal };
    context.submit(&streams[2], wait).unwrap();
    let copy = CopyWork::linear(Memory::Device(BASE), Memory::Staged(vec![0; 1 << 20].into()), 1 << 20);
    for _ in 0..1000 {
        context.submit(&streams[3], Work::Copy(Arc::new(copy.clone()))).unwrap();
    }
    context.submit(&context.per_thread_stream(), Work::Nothing).unwrap();
    // A thread inside a wait when the process ends.
    let (waiting, stream) = (context.clone(), streams[0].clone());
    std::thread::spawn(move || waiting.synchronize_stream(&stream));
    std::thread::sleep(Duration::from_millis(20));
    std::process::exit(42)
}
