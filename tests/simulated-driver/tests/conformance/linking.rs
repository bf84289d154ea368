//! `cuLinkCreate` and its kin: several PTX texts become one module; codes, messages and the lengths of logs.
//!
//! CUDA driver API, "Module Management". Codes of conflicts (300) and messages are those that reports of users of
//! the real linker show; which code an undefined name has (999) is from such a report too.

use std::ffi::{CStr, c_void};

use crate::common::{allocate, context, isolated, launch};
use turnus_bindings::types::*;

const PTX: CUjitInputType = CUjitInputType_enum(1);
const ERROR_LOG: CUjit_option = CUjit_option_enum(5);
const ERROR_LOG_BYTES: CUjit_option = CUjit_option_enum(6);

const CALLER: &CStr = c".version 7.0\n.target sm_60\n.address_size 64
.extern .func (.param .b32 r) number(.param .b32 a);
.visible .entry k(.param .u64 p)
{
    .reg .b32 %r<3>; .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [p];
    { .param .b32 param0; st.param.b32 [param0], 40; .param .b32 retval0;
      call.uni (retval0), number, (param0); ld.param.b32 %r1, [retval0]; }
    st.global.u32 [%rd1], %r1;
    ret;
}
";

const NUMBER: &CStr = c".version 7.0\n.target sm_60\n.address_size 64
.visible .func (.param .b32 r) number(.param .b32 a)
{
    .reg .b32 %r<3>;
    ld.param.b32 %r1, [a]; add.s32 %r2, %r1, 2; st.param.b32 [r], %r2;
    ret;
}
";

/// A link whose errors go to a buffer.
struct Link {
    state: CUlinkState,
    log: Box<[u8; 4096]>,
    options: Box<[CUjit_option; 2]>,
    values: Box<[*mut c_void; 2]>,
}

impl Link {
    fn new() -> Self {
        let mut link = Link {
            state: std::ptr::null_mut(),
            log: Box::new([0xff; 4096]),
            options: Box::new([ERROR_LOG, ERROR_LOG_BYTES]),
            values: Box::new([std::ptr::null_mut(); 2]),
        };
        *link.values = [link.log.as_mut_ptr().cast(), 4096 as *mut c_void];
        ok!(cuLinkCreate_v2(2, link.options.as_mut_ptr(), link.values.as_mut_ptr(), &mut link.state));
        link
    }

    fn add(&self, text: &CStr, name: &CStr) -> CUresult {
        let (data, bytes) = (text.as_ptr().cast_mut().cast(), text.count_bytes() + 1);
        let none = std::ptr::null_mut();
        call!(cuLinkAddData_v2(self.state, PTX, data, bytes, name.as_ptr(), 0, none, none.cast()))
    }

    fn complete(&self) -> Result<(*mut c_void, usize), turnus_bindings::CUerror> {
        let (mut image, mut bytes) = (std::ptr::null_mut(), 0);
        call!(cuLinkComplete(self.state, &mut image, &mut bytes)).map(|()| (image, bytes))
    }

    fn message(&self) -> String {
        CStr::from_bytes_until_nul(&self.log[..]).expect("a terminator").to_string_lossy().trim().to_owned()
    }
}

/// Loads an image and runs its kernel; answers the number that it stores.
fn run(image: *const c_void) -> u32 {
    let (mut module, mut function) = (std::ptr::null_mut(), std::ptr::null_mut());
    ok!(cuModuleLoadData(&mut module, image));
    ok!(cuModuleGetFunction(&mut function, module, c"k".as_ptr()));
    let place = allocate(4);
    assert_eq!(launch(function, 1, 1, std::ptr::null_mut(), &[&place]), Ok(()));
    let mut number = 0_u32;
    ok!(cuMemcpyDtoH_v2((&raw mut number).cast(), place, 4));
    number
}

#[test]
fn texts_are_linked_and_the_image_can_be_kept() {
    isolated("texts_are_linked_and_the_image_can_be_kept", &[], || {
        context();
        let link = Link::new();
        assert_eq!(link.add(CALLER, c"caller"), Ok(()));
        assert_eq!(link.add(NUMBER, c"number"), Ok(()));
        let (image, bytes) = link.complete().expect("links");
        assert_eq!(run(image), 42);
        // SAFETY: the image has that many bytes while the link lives.
        let kept = unsafe { std::slice::from_raw_parts(image.cast::<u8>(), bytes) }.to_vec();
        assert_eq!(&kept[..4], b"\x7fELF", "machine code, to the eye");
        ok!(cuLinkDestroy(link.state));
        assert_eq!(run(kept.as_ptr().cast()), 42, "a copy lives on");
        fails!(INVALID_HANDLE, cuLinkDestroy(link.state));
    });
}

#[test]
fn a_file_is_as_good_as_data() {
    isolated("a_file_is_as_good_as_data", &[], || {
        context();
        let link = Link::new();
        let none = std::ptr::null_mut();
        let path = std::env::temp_dir().join(format!("linked-{}.ptx", std::process::id()));
        std::fs::write(&path, NUMBER.to_bytes()).expect("a file");
        let name = std::ffi::CString::new(path.to_str().expect("text")).expect("text");
        assert_eq!(link.add(CALLER, c"caller"), Ok(()));
        ok!(cuLinkAddFile_v2(link.state, PTX, name.as_ptr(), 0, none, none.cast()));
        std::fs::remove_file(&path).expect("the file");
        fails!(FILE_NOT_FOUND, cuLinkAddFile_v2(link.state, PTX, name.as_ptr(), 0, none, none.cast()));
        assert_eq!(run(link.complete().expect("links").0), 42);
    });
}

#[test]
fn a_name_that_nobody_defines_is_in_the_log() {
    isolated("a_name_that_nobody_defines_is_in_the_log", &[], || {
        context();
        let link = Link::new();
        assert_eq!(link.add(CALLER, c"caller"), Ok(()));
        assert!(link.complete().is_err());
        assert_eq!(link.message(), "error   : Undefined reference to 'number' in 'caller'");
        let length = link.values[1] as usize & 0xffff_ffff;
        assert!((50..60).contains(&length), "the length comes back: {length}");
    });
}

#[test]
fn a_second_definition_is_refused_when_it_is_added() {
    isolated("a_second_definition_is_refused_when_it_is_added", &[], || {
        context();
        let link = Link::new();
        assert_eq!(link.add(NUMBER, c"first"), Ok(()));
        assert_eq!(link.add(NUMBER, c"second"), Err(turnus_bindings::CUerror::INVALID_SOURCE));
        let message = link.message();
        assert!(message.contains("Multiple definition of 'number' in 'second"), "{message}");
    });
}

#[test]
fn arguments_of_a_link_are_checked() {
    isolated("arguments_of_a_link_are_checked", &[], || {
        let (none, mut state) = (std::ptr::null_mut(), std::ptr::null_mut());
        ok!(cuInit(0));
        fails!(INVALID_CONTEXT, cuLinkCreate_v2(0, none, none.cast(), &mut state));
        context();
        fails!(INVALID_VALUE, cuLinkCreate_v2(0, none, none.cast(), std::ptr::null_mut()));
        let link = Link::new();
        let data: *mut c_void = CALLER.as_ptr().cast_mut().cast();
        let size = CALLER.count_bytes() + 1;
        let name = c"name".as_ptr();
        fails!(
            INVALID_VALUE,
            cuLinkAddData_v2(link.state, PTX, none.cast(), size, name, 0, none, none.cast())
        );
        fails!(
            INVALID_VALUE,
            cuLinkAddData_v2(link.state, CUjitInputType_enum(99), data, size, name, 0, none, none.cast())
        );
        let mut option = ERROR_LOG;
        let mut value = std::ptr::null_mut();
        fails!(
            INVALID_VALUE,
            cuLinkAddData_v2(link.state, PTX, data, size, name, 1, &mut option, &mut value)
        );
        assert_eq!(link.add(c"this is no PTX", c"nonsense"), Err(turnus_bindings::CUerror::INVALID_PTX));
        let (mut image, mut bytes) = (std::ptr::null_mut(), 0);
        fails!(INVALID_HANDLE, cuLinkComplete(std::ptr::null_mut(), &mut image, &mut bytes));
        fails!(INVALID_VALUE, cuLinkComplete(link.state, std::ptr::null_mut(), &mut bytes));
    });
}
