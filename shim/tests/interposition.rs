//! How a program gets a hook, by each road, and what must stay untouched.
//!
//! Each test runs a small C program under the shim against a fake driver; the program checks what
//! it was given. Rows B01 to B05 and B08 of the known faults of others are named where they close.

mod support;

use support::{Bench, shim, succeed};

const TYPES: &str = "typedef int (*Get)(const char *, void **, int, uint64_t);
typedef int (*Get2)(const char *, void **, int, uint64_t, int *);";

#[test]
fn interposition_all_three_roads_give_the_hook_and_new_functions_stay_the_drivers() {
    let bench = Bench::with_driver(&[]);
    let before =
        format!("{TYPES}\nextern int cuMemAlloc_v2(uint64_t *, size_t); extern int cuNewThing(int);");
    let main = r#"
        CHECK(lies_in(cuMemAlloc_v2, "libturnus"));
        void *driver = dlopen("libcuda.so.1", RTLD_NOW);
        CHECK(lies_in(dlsym(driver, "cuMemAlloc_v2"), "libturnus"));
        CHECK(lies_in(dlsym(RTLD_DEFAULT, "cuMemAlloc_v2"), "libturnus"));
        CHECK(lies_in(dlvsym(driver, "cuMemAlloc_v2", "none") ?: dlsym(driver, "cuMemAlloc_v2"), "libturnus"));
        Get2 get = (Get2)dlsym(driver, "cuGetProcAddress_v2");
        CHECK(lies_in(get, "libturnus"));
        void *p = 0; int status = 9;
        CHECK(get("cuMemAlloc", &p, 12010, 0, &status) == 0 && status == 0 && p == (void *)cuMemAlloc_v2);
        uint64_t address = 0;
        CHECK(((int (*)(uint64_t *, size_t))p)(&address, 4096) == 0 && address == 0x10000);
        CHECK(get("cuLaunchKernel", &p, 12010, 2, &status) == 0 && p == dlsym(driver, "cuLaunchKernel_ptsz"));
        CHECK(cuNewThing(41) == 42 && lies_in(cuNewThing, "libcuda"));
        CHECK(lies_in(dlsym(driver, "cuNewThing"), "libcuda"));
        CHECK(get("cuNewThing", &p, 12010, 0, &status) == 0 && lies_in(p, "libcuda"));
    "#;
    bench.run(&bench.program(&before, main, &["-lcuda"]));
}

/// B01, B03.
#[test]
fn interposition_asking_for_the_asker_gives_the_hook_of_the_symbol_that_the_driver_chose() {
    let bench = Bench::with_driver(&[]);
    let main = r#"
        void *driver = dlopen("libcuda.so.1", RTLD_NOW);
        Get get = (Get)dlsym(driver, "cuGetProcAddress");
        void *p = 0, *old = 0;
        CHECK(get("cuGetProcAddress", &p, 12000, 0) == 0 && p == dlsym(driver, "cuGetProcAddress_v2"));
        CHECK(get("cuGetProcAddress", &old, 11040, 0) == 0 && old == (void *)get);
        void *q = 0; int status = 9;
        CHECK(((Get2)p)("cuLaunchKernel", &q, 12000, 0, &status) == 0 && lies_in(q, "libturnus"));
    "#;
    bench.run(&bench.program(TYPES, main, &[]));
}

/// B01, B03.
#[test]
fn interposition_a_driver_without_the_second_version_is_not_given_one() {
    let bench = Bench::with_driver(&["-DONLY_V1"]);
    let main = r#"
        void *driver = dlopen("libcuda.so.1", RTLD_NOW);
        CHECK(dlsym(driver, "cuGetProcAddress_v2") == 0);
        CHECK(dlerror() != 0);
        CHECK(dlsym(RTLD_DEFAULT, "cuGetProcAddress_v2") == 0);
        CHECK(dlerror() != 0);
        CHECK(dlsym(driver, "cuGraphLaunch") == 0);
        Get get = (Get)dlsym(driver, "cuGetProcAddress");
        CHECK(lies_in(get, "libturnus"));
        void *p = 0;
        CHECK(get("cuGetProcAddress", &p, 12010, 0) == 0 && p == (void *)get);
        CHECK(get("cuMemAlloc", &p, 12010, 0) == 0 && p == dlsym(driver, "cuMemAlloc_v2") && lies_in(p, "libturnus"));
        p = (void *)1;
        CHECK(get("cuNoSuchThing", &p, 12010, 0) == 500 && p == 0);
    "#;
    bench.run(&bench.program(TYPES, main, &[]));
}

#[test]
fn interposition_what_is_absent_and_what_is_null_is_answered_as_the_driver_does() {
    let bench = Bench::with_driver(&[]);
    let main = r#"
        void *driver = dlopen("libcuda.so.1", RTLD_NOW);
        Get2 get = (Get2)dlsym(driver, "cuGetProcAddress_v2");
        void *p = (void *)1; int status = 9;
        CHECK(get("cuGraphLaunch", &p, 12010, 0, &status) == 0 && p == 0 && status == 1);
        CHECK(get("cuMemAlloc", &p, 12010, 0, 0) == 0 && lies_in(p, "libturnus"));
        CHECK(get("cuMemAlloc", 0, 12010, 0, &status) == 1);
        CHECK(get(0, &p, 12010, 0, &status) == 1);
    "#;
    bench.run(&bench.program(TYPES, main, &[]));
}

/// A program that tests for the driver by a weak reference, where there is none.
#[test]
fn interposition_without_a_driver_there_are_no_hooks_to_be_found() {
    let bench = Bench::without_driver();
    let main = r#"
        CHECK(dlopen("libcuda.so.1", RTLD_NOW) == 0);
        CHECK(dlsym(RTLD_DEFAULT, "cuInit") == 0);
        CHECK(dlsym(RTLD_NEXT, "cuInit") == 0);
    "#;
    bench.run(&bench.program("", main, &[]));
}

/// B04: another preloaded library that wraps a function and asks for the next one.
#[test]
fn interposition_the_next_library_is_counted_from_who_asks() {
    let bench = Bench::with_driver(&[]);
    let wrapper = r#"
        #define _GNU_SOURCE
        #include <dlfcn.h>
        #include <unistd.h>
        int (*next)(void);
        int getppid(void) {
            next = (int (*)(void))dlsym(RTLD_NEXT, "getppid");
            return next == (int (*)(void))getppid ? -1 : -next();
        }
        int (*next_version)(void);
        int getpgrp(void) {
            next_version = (int (*)(void))dlvsym(RTLD_NEXT, "getpgrp", "GLIBC_2.2.5");
            return next_version == (int (*)(void))getpgrp ? -1 : next_version ? -next_version() : -2;
        }
    "#;
    bench.library_of("wrapper.so", wrapper, &[]);
    let main = "CHECK(getppid() < -1); CHECK(getpgrp() < -1);";
    let program = bench.program("", main, &[]);
    let preloads = [
        format!("{}:{}", bench.path("wrapper.so").display(), shim().display()),
        format!("{}:{}", shim().display(), bench.path("wrapper.so").display()),
    ];
    for preload in preloads {
        let mut command = bench.command(&program);
        command.env("LD_PRELOAD", preload);
        succeed(command);
    }
}

/// B04.
#[test]
fn interposition_the_driver_that_asks_for_itself_gets_itself() {
    let bench = Bench::with_driver(&["-DASKS_ITSELF"]);
    let main = r#"
        void *driver = dlopen("libcuda.so.1", RTLD_NOW);
        CHECK(driver && *(int *)dlsym(driver, "fake_saw_itself"));
        CHECK(lies_in(dlsym(driver, "cuInit"), "libturnus"));
    "#;
    bench.run(&bench.program("", main, &[]));
}

/// B05: names that only begin like the driver's, and a foreign library with a name of ours.
#[test]
fn interposition_foreign_libraries_are_left_alone() {
    let bench = Bench::with_driver(&[]);
    bench.library_of("libsub.so", "int cudnnCreate(void) { return 7; }", &[]);
    let facade = r#"
        #define _GNU_SOURCE
        #include <dlfcn.h>
        int cudnnCreate(void) {
            void *sub = dlopen("libsub.so", RTLD_NOW);
            int (*create)(void) = (int (*)(void))dlsym(sub, "cudnnCreate");
            return create == (int (*)(void))cudnnCreate ? -1 : create();
        }
    "#;
    bench.library_of("libcudnn.so", facade, &[]);
    bench.library_of(
        "libstranger.so",
        "int cuInit(unsigned f) { return 77; } int cuMyThing(void) { return 5; }",
        &[],
    );
    let main = r#"
        void *driver = dlopen("libcuda.so.1", RTLD_NOW);
        void *cudnn = dlopen("libcudnn.so", RTLD_NOW), *stranger = dlopen("libstranger.so", RTLD_NOW);
        CHECK(driver && ((int (*)(void))dlsym(cudnn, "cudnnCreate"))() == 7);
        CHECK(((int (*)(unsigned))dlsym(stranger, "cuInit"))(0) == 77);
        CHECK(((int (*)(void))dlsym(stranger, "cuMyThing"))() == 5);
        CHECK(dlsym(stranger, "cuMemAlloc_v2") == 0);
    "#;
    bench.run(&bench.program("", main, &[]));
}

/// B02: also where the known version tags do not exist (`resolve/elf.rs` has the unit test).
#[test]
fn interposition_a_program_without_cuda_is_not_touched() {
    let bench = Bench::with_driver(&[]);
    let main = r#"
        int descriptors = entries_of("/proc/self/fd"), threads = entries_of("/proc/self/task");
        void *driver = dlopen("libcuda.so.1", RTLD_NOW);
        CHECK(dlsym(driver, "cuInit") && dlsym(RTLD_DEFAULT, "malloc") && !dlsym(RTLD_DEFAULT, "no_such_name"));
        CHECK(entries_of("/proc/self/fd") == descriptors);
        CHECK(entries_of("/proc/self/task") == threads && threads == 3);
        puts("untouched");
    "#;
    let daemon = support::daemon::Daemon::listen(bench.path("daemon.sock"));
    let mut command = bench.command(&bench.program("", main, &[]));
    command.env("TURNUS_SOCKET", &daemon.path);
    let (out, err) = succeed(command);
    assert_eq!((out.as_str(), err.as_str()), ("untouched\n", ""));
    assert!(daemon.nobody_connects(std::time::Duration::ZERO));
    succeed(bench.command(std::path::Path::new("/bin/true")));
}

/// The program may unload the driver; a hook that it still holds must not jump into nothing.
#[test]
fn interposition_the_driver_outlives_the_programs_own_handle() {
    let bench = Bench::with_driver(&[]);
    let main = r#"
        void *driver = dlopen("libcuda.so.1", RTLD_NOW);
        int (*init)(unsigned) = (int (*)(unsigned))dlsym(driver, "cuInit");
        CHECK(dlclose(driver) == 0);
        CHECK(init(0) == 0);
        driver = dlopen("libcuda.so.1", RTLD_NOW);
        CHECK(dlsym(driver, "cuInit") == (void *)init);
    "#;
    bench.run(&bench.program("", main, &[]));
}

/// What a preload needs must be in every image: the C library and its linker, nothing else.
#[test]
fn interposition_the_library_needs_only_libc() {
    let output = std::process::Command::new("readelf").arg("-dW").arg(shim()).output().expect("readelf");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let needed: Vec<_> = text.lines().filter(|line| line.contains("(NEEDED)")).collect();
    assert!(!needed.is_empty());
    for line in needed {
        assert!(["[libc.so.6]", "[ld-linux"].iter().any(|known| line.contains(known)), "{line}");
    }
    assert!(!text.contains("TEXTREL"));
}
