//! What programs hand over as code: fat binaries, compressed or not, and machine code.
//!
//! The images in `data/` come from NVIDIA's compiler. The simulated device has compute capability 8.0.

#[macro_use]
mod common;

use std::ffi::{CStr, CString, c_void};
use std::path::PathBuf;

use common::{Machine, allocate, context, isolated};
use turnus_bindings::types::*;

const COUNT: usize = 100;

fn data(name: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn load(image: &[u8]) -> CUmodule {
    let mut module = std::ptr::null_mut();
    ok!(cuModuleLoadData(&mut module, image.as_ptr().cast()));
    module
}

/// Runs `scale` of a module; the input is 0, 1, 2, …
fn scale(module: CUmodule) -> Vec<f32> {
    let mut kernel = std::ptr::null_mut();
    ok!(cuModuleGetFunction(&mut kernel, module, c"scale".as_ptr()));
    let (from, to) = (allocate(4 * COUNT), allocate(4 * COUNT));
    let numbers: Vec<f32> = (0..COUNT).map(|number| number as f32).collect();
    ok!(cuMemcpyHtoD_v2(from, numbers.as_ptr().cast(), 4 * COUNT));
    ok!(cuMemsetD8_v2(to, 0, 4 * COUNT));
    let (odd, count) = (1_u8, COUNT as u32);
    let mut arguments: [*mut c_void; 4] = [
        std::ptr::from_ref(&odd).cast_mut().cast(),
        std::ptr::from_ref(&from).cast_mut().cast(),
        std::ptr::from_ref(&to).cast_mut().cast(),
        std::ptr::from_ref(&count).cast_mut().cast(),
    ];
    let (stream, extra) = (std::ptr::null_mut(), std::ptr::null_mut());
    ok!(cuLaunchKernel(kernel, 1, 1, 1, 128, 1, 1, 0, stream, arguments.as_mut_ptr(), extra));
    let mut result = vec![-1.0; COUNT];
    ok!(cuMemcpyDtoH_v2(result.as_mut_ptr().cast(), to, 4 * COUNT));
    result
}

fn expected(counter: f32) -> Vec<f32> {
    (0..COUNT).map(|number| number as f32 * (number % 4 + 1) as f32 + counter).collect()
}

#[test]
fn the_newest_ptx_that_the_device_can_run_is_taken_from_a_fat_binary() {
    isolated("the_newest_ptx_that_the_device_can_run_is_taken_from_a_fat_binary", &[], || {
        context();
        for name in ["scale.plain.fatbin", "scale.lz4.fatbin", "scale.zstd.fatbin"] {
            let image = data(name);
            assert_eq!(scale(load(&image)), expected(7.0), "{name}");
            // As compilers embed it: through a wrapper.
            let wrapper = [0x1_4662_43b1_u64, image.as_ptr().expose_provenance() as u64, 0];
            let mut module = std::ptr::null_mut();
            ok!(cuModuleLoadFatBinary(&mut module, wrapper.as_ptr().cast()));
            assert_eq!(scale(module), expected(7.0), "{name} in its wrapper");
        }
    });
}

#[test]
fn a_damaged_fat_binary_is_an_invalid_image() {
    isolated("a_damaged_fat_binary_is_an_invalid_image", &[], || {
        context();
        let mut module = std::ptr::null_mut();
        for name in ["scale.lz4.fatbin", "scale.zstd.fatbin"] {
            let image = data(name);
            // The last entries are cut off; the others lie where they lay.
            let mut cut = image.clone();
            let shorter = (image.len() - 16 - 200) as u64;
            cut[8..16].copy_from_slice(&shorter.to_le_bytes());
            fails!(INVALID_IMAGE, cuModuleLoadData(&mut module, cut.as_ptr().cast()));
            // A payload that does not become what its header promises.
            let mut scribbled = image.clone();
            let second = 16 + entry_bytes(&image, 16);
            let third = second + entry_bytes(&image, second);
            scribbled[third + 56] ^= 1;
            fails!(INVALID_IMAGE, cuModuleLoadData(&mut module, scribbled.as_ptr().cast()));
        }
    });
}

/// Length of the entry at this place, with its header.
fn entry_bytes(image: &[u8], at: usize) -> usize {
    let word = |at: usize| u32::from_le_bytes(image[at..at + 4].try_into().expect("four bytes")) as usize;
    word(at + 4) + word(at + 8)
}

#[test]
fn machine_code_is_refused_unless_its_kernels_are_known() {
    isolated("machine_code_is_refused_unless_its_kernels_are_known", &[], || {
        context();
        let mut module = std::ptr::null_mut();
        for name in ["scale.sm_80.cubin", "scale.sm_90.cubin", "scale.cubins.fatbin"] {
            let image = data(name);
            fails!(NO_BINARY_FOR_GPU, cuModuleLoadData(&mut module, image.as_ptr().cast()));
            let mut library = std::ptr::null_mut();
            let none: *mut c_void = std::ptr::null_mut();
            fails!(
                NO_BINARY_FOR_GPU,
                cuLibraryLoadData(
                    &mut library,
                    image.as_ptr().cast(),
                    none.cast(),
                    none.cast(),
                    0,
                    none.cast(),
                    none.cast(),
                    0
                )
            );
        }
    });
}

#[test]
fn machine_code_of_a_known_kernel_does_what_its_ptx_says() {
    let test = "machine_code_of_a_known_kernel_does_what_its_ptx_says";
    let folder = Machine::new(&format!("{test}-kernels"), "");
    std::fs::write(folder.directory.join("scale.ptx"), data("scale.compute_80.ptx")).expect("write");
    let folder = folder.directory.to_string_lossy().into_owned();
    isolated(test, &[("SIMULATED_CUDA_KERNELS", &folder)], || {
        context();
        for name in ["scale.sm_80.cubin", "scale.cubins.fatbin"] {
            assert_eq!(scale(load(&data(name))), expected(7.0), "{name}");
        }
        // For another device, whatever is known of its kernels.
        let mut module = std::ptr::null_mut();
        fails!(NO_BINARY_FOR_GPU, cuModuleLoadData(&mut module, data("scale.sm_90.cubin").as_ptr().cast()));
    });
}

#[test]
fn machine_code_may_be_launched_without_effect_and_its_variables_are_there() {
    let test = "machine_code_may_be_launched_without_effect_and_its_variables_are_there";
    isolated(test, &[("SIMULATED_CUDA_MACHINE_CODE", "without-effect")], || {
        context();
        let module = load(&data("scale.sm_80.cubin"));
        assert_eq!(scale(module), vec![0.0; COUNT], "the kernel has changed something");
        let (mut address, mut bytes) = (0, 0);
        for (name, words) in [(c"counter", vec![7_u32]), (c"untouched", vec![0; 5])] {
            ok!(cuModuleGetGlobal_v2(&mut address, &mut bytes, module, name.as_ptr()));
            let mut content = vec![1_u32; words.len()];
            assert_eq!(bytes, 4 * words.len(), "{name:?}");
            ok!(cuMemcpyDtoH_v2(content.as_mut_ptr().cast(), address, bytes));
            assert_eq!(content, words, "{name:?}");
        }
        let mut kernel = std::ptr::null_mut();
        ok!(cuModuleGetFunction(&mut kernel, module, c"scale".as_ptr()));
        let mut value = 0;
        ok!(cuFuncGetAttribute(&mut value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, kernel));
        assert_eq!(value, 256);
        ok!(cuFuncGetAttribute(&mut value, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, kernel));
        assert_eq!(value, 256);
        for (index, place) in [(0, (0, 1)), (1, (8, 8)), (2, (16, 8)), (3, (24, 4))] {
            let (mut offset, mut size) = (0, 0);
            ok!(cuFuncGetParamInfo(kernel, index, &mut offset, &mut size));
            assert_eq!((offset, size), place, "parameter {index}");
        }
        let mut count = 0;
        ok!(cuModuleGetFunctionCount(&mut count, module));
        assert_eq!(count, 2);
    });
}

#[test]
fn an_elf_file_of_another_machine_is_an_invalid_image() {
    isolated("an_elf_file_of_another_machine_is_an_invalid_image", &[], || {
        context();
        let mut module = std::ptr::null_mut();
        let own = std::fs::read("/proc/self/exe").expect("own program");
        fails!(INVALID_IMAGE, cuModuleLoadData(&mut module, own.as_ptr().cast()));
        let mut cubin = data("scale.sm_80.cubin");
        cubin[60..62].copy_from_slice(&[0, 0]);
        fails!(INVALID_IMAGE, cuModuleLoadData(&mut module, cubin.as_ptr().cast()));
    });
}

#[test]
fn code_that_cannot_run_is_refused_with_its_reason() {
    isolated("code_that_cannot_run_is_refused_with_its_reason", &[], || {
        context();
        let mut module = std::ptr::null_mut();
        let unsupported = CString::new(
            ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry k()\n{\n\
             .reg .f32 %f<9>; .reg .b32 %r<9>;\n\
             wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32 {%f1}, {%r1}, {%r2}, {%f1};\nret;\n}\n",
        )
        .expect("no zero in a text");
        let mut log = vec![0_u8; 400];
        let mut options = [CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
        let mut values = [log.as_mut_ptr().cast::<c_void>(), std::ptr::without_provenance_mut(400)];
        fails!(
            INVALID_PTX,
            cuModuleLoadDataEx(
                &mut module,
                unsupported.as_ptr().cast(),
                2,
                options.as_mut_ptr(),
                values.as_mut_ptr()
            )
        );
        let message = CStr::from_bytes_until_nul(&log).expect("a terminated text").to_str().expect("text");
        assert!(message.contains("wmma"), "{message}");
        assert_eq!(values[1] as usize, message.len());
    });
}
