//! The kernels of `tests/data/ptx`, compiled by NVRTC, against the same computation in Rust over whole arrays.
//!
//! Read next: `opcodes.rs` for single instructions.

mod common;

use common::{Flat, Parameters, finish, launch, run, text};
use turnus_simulated_ptx::{Module, Progress};

/// Numbers that differ from each other and from zero, in [-64, 64).
fn numbers(count: usize, seed: u64) -> Vec<f32> {
    let mut state = seed | 1;
    let next = move |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u32 << 17) as f32 - 64.0
    };
    (0..count).map(next).collect()
}

fn bytes(numbers: &[f32]) -> impl Iterator<Item = [u8; 4]> + '_ {
    numbers.iter().map(|number| number.to_le_bytes())
}

#[test]
fn every_file_of_the_subset_is_loaded() {
    for name in
        ["expf", "fill", "hash_i64", "matmul", "reduce_shared", "reduce_warp", "saxpy", "spin", "vadd"]
    {
        let module = Module::parse(&text(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(module.entries().collect::<Vec<_>>(), ["k"], "{name}");
    }
}

#[test]
fn vadd_adds_every_element_and_nothing_behind() {
    let n = 1000;
    let (a, b) = (numbers(n, 1), numbers(n, 2));
    let guard = [f32::MAX; 24];
    let mut memory = Flat::of(bytes(&a).chain(bytes(&b)).chain(bytes(&[0.0; 1000])).chain(bytes(&guard)));
    let parameters =
        Parameters::default().pointer(0).pointer(4 * n).pointer(8 * n).push((n as u32).to_le_bytes());
    run(&text("vadd"), 8, 128, &parameters, &mut memory);
    let expected: Vec<f32> = a.iter().zip(&b).map(|(a, b)| a + b).collect();
    assert_eq!(memory.f32s(8 * n, n), expected);
    assert_eq!(memory.f32s(12 * n, 24), guard);
}

#[test]
fn fill_strides_over_the_grid() {
    let n = 5003;
    let mut memory = Flat::new(4 * n + 64);
    let parameters =
        Parameters::default().pointer(0).push(2.5f32.to_le_bytes()).push((n as u64).to_le_bytes());
    run(&text("fill"), 3, 96, &parameters, &mut memory);
    assert_eq!(memory.f32s(0, n), vec![2.5; n]);
    assert_eq!(memory.f32s(4 * n, 16), [0.0; 16]);
}

#[test]
fn saxpy_fuses_its_rounding() {
    let n = 4096;
    let (x, y) = (numbers(n, 3), numbers(n, 4));
    let mut memory = Flat::of(bytes(&x).chain(bytes(&y)));
    let a = 1.000_000_1f32;
    let parameters =
        Parameters::default().push(a.to_le_bytes()).pointer(0).pointer(4 * n).push((n as u32).to_le_bytes());
    run(&text("saxpy"), 16, 256, &parameters, &mut memory);
    let expected: Vec<f32> = x.iter().zip(&y).map(|(x, y)| x.mul_add(a, *y)).collect();
    assert_eq!(memory.f32s(4 * n, n), expected);
}

#[test]
fn reduce_shared_adds_in_a_tree() {
    let (n, block, grid) = (900, 256, 4);
    let values: Vec<f32> = (0..n).map(|i| (i % 17) as f32).collect();
    let mut memory = Flat::of(bytes(&values).chain([[0; 4]]));
    let parameters = Parameters::default().pointer(0).pointer(4 * n).push((n as u32).to_le_bytes());
    run(&text("reduce_shared"), grid, block, &parameters, &mut memory);
    assert_eq!(memory.f32s(4 * n, 1), [values.iter().sum::<f32>()]);
}

#[test]
fn reduce_warp_shuffles_down() {
    let n = 3000;
    let values: Vec<f32> = (0..n).map(|i| (i % 13) as f32).collect();
    let mut memory = Flat::of(bytes(&values).chain([[0; 4]]));
    let parameters = Parameters::default().pointer(0).pointer(4 * n).push((n as u32).to_le_bytes());
    run(&text("reduce_warp"), 5, 96, &parameters, &mut memory);
    assert_eq!(memory.f32s(4 * n, 1), [values.iter().sum::<f32>()]);
}

#[test]
fn matmul_multiplies_tiles() {
    let n = 48usize;
    let (a, b) = (numbers(n * n, 5), numbers(n * n, 6));
    let mut memory = Flat::of(bytes(&a).chain(bytes(&b)).chain(bytes(&vec![0.0; n * n])));
    let size = 4 * n * n;
    let parameters =
        Parameters::default().pointer(0).pointer(size).pointer(2 * size).push((n as u32).to_le_bytes());
    let module = Module::parse(&text("matmul")).expect("loads");
    assert_eq!(module.entry("k").expect("k").static_shared_bytes(), 2048);
    let grid = (n / 16) as u32;
    let mut started = launch(&module, [grid, grid, 1], [16, 16, 1], 0, &parameters);
    finish(&mut started, &mut memory, u64::MAX).expect("no trap");
    let mut expected = vec![0f32; n * n];
    for (index, value) in expected.iter_mut().enumerate() {
        let (row, column) = (index / n, index % n);
        *value = (0..n).fold(0.0, |sum, k| a[row * n + k].mul_add(b[k * n + column], sum));
    }
    assert_eq!(memory.f32s(2 * size, n * n), expected);
}

#[test]
fn hash_runs_a_hundred_rounds() {
    let n = 777usize;
    let values: Vec<u64> = (0..n as u64).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x1234).collect();
    let mut memory = Flat::of(values.iter().map(|value| value.to_le_bytes()));
    let parameters = Parameters::default().pointer(0).push((n as u32).to_le_bytes());
    run(&text("hash_i64"), 7, 128, &parameters, &mut memory);
    let hash = |mut x: u64| {
        for _ in 0..100 {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
        }
        x % 1_000_003
    };
    assert_eq!(memory.u64s(0, n), values.iter().map(|value| hash(*value)).collect::<Vec<_>>());
}

#[test]
fn expf_computes_double_exp_and_float_sine() {
    let n = 256usize;
    let doubles: Vec<f64> = (0..n).map(|i| 0.01 + i as f64 * 0.37).collect();
    // Small, large and huge arguments: the last ones take the slow way of sinf through local memory.
    let floats: Vec<f32> =
        (0..n).map(|i| (i as f32 - 128.0) * if i % 5 == 0 { -1e4 } else { 0.25 }).collect();
    let mut memory = Flat::of(doubles.iter().map(|value| value.to_le_bytes()));
    memory.bytes.extend(bytes(&floats).flatten());
    let parameters = Parameters::default().pointer(0).pointer(8 * n).push((n as u32).to_le_bytes());
    run(&text("expf"), 1, n as u32, &parameters, &mut memory);
    for (found, x) in memory.u64s(0, n).into_iter().map(f64::from_bits).zip(&doubles) {
        let expected = x.exp() / x.sqrt();
        assert!((found - expected).abs() <= expected.abs() * 1e-15, "exp({x})/sqrt: {found} {expected}");
    }
    for (found, x) in memory.f32s(8 * n, n).into_iter().zip(&floats) {
        let wide = f64::from(*x);
        let expected = (wide.exp() * wide.sin()) as f32;
        let close = (found - expected).abs() <= expected.abs() * 1e-5 + 1e-37;
        assert!(close || found == expected || wide.exp() > 3e38, "exp*sin({x}): {found} {expected}");
    }
}

#[test]
fn a_float_sine_of_a_huge_argument_is_reduced_exactly() {
    // Only arguments above 105615 take that way; exp of a negative one would hide the sine, so look at few near
    // the threshold where the product is not zero: exp overflows to infinity there, and its sign is the sine's.
    let arguments = [2e5f32, 3e6, 1e7, 1.5e8, 9e12, 3.4e30];
    let mut memory = Flat::of([1.0f64.to_le_bytes(); 6]);
    memory.bytes.extend(bytes(&arguments).flatten());
    let parameters = Parameters::default().pointer(0).pointer(48).push(6u32.to_le_bytes());
    run(&text("expf"), 1, 32, &parameters, &mut memory);
    for (found, x) in memory.f32s(48, 6).into_iter().zip(&arguments) {
        assert_eq!(found, f32::INFINITY.copysign(f64::from(*x).sin() as f32), "sign of sin({x})");
    }
}

#[test]
fn spin_waits_for_the_clock() {
    let module = Module::parse(&text("spin")).expect("loads");
    let parameters = Parameters::default().push(1000u64.to_le_bytes());
    let mut started = launch(&module, [2, 1, 1], [64, 1, 1], 0, &parameters);
    let mut memory = Flat::new(0);
    let now = std::cell::Cell::new(5);
    let clock = || now.get();
    for _ in 0..50 {
        assert_eq!(started.run(&mut memory, 1000, &clock), Ok(Progress::Yielded));
    }
    now.set(1004);
    assert_eq!(started.run(&mut memory, 10_000, &clock), Ok(Progress::Yielded), "one short");
    now.set(1005);
    assert_eq!(started.run(&mut memory, 10_000, &clock), Ok(Progress::Finished));
    assert_eq!(started.run(&mut memory, 10_000, &clock), Ok(Progress::Finished), "finished stays finished");
}

/// Text as numba's compiler writes it for `c[i] = a[i] + b[i]`: array descriptors and 64-bit index arithmetic.
#[test]
fn a_kernel_in_the_style_of_numba_runs() {
    let body = "
        ld.param.u64 %rd2, [p];
        mov.u32 %r1, %tid.x;
        cvt.s64.s32 %rd3, %r1;
        setp.ge.s64 %p1, %rd3, 20;
        @%p1 bra $L__end;
        shr.s64 %rd4, %rd3, 63;
        and.b64 %rd5, %rd4, 20;
        add.s64 %rd6, %rd5, %rd3;
        shl.b64 %rd7, %rd6, 2;
        cvta.to.global.u64 %rd8, %rd2;
        add.s64 %rd9, %rd8, %rd7;
        ld.global.f32 %f1, [%rd9];
        ld.global.f32 %f2, [%rd9+128];
        add.f32 %f3, %f1, %f2;
        st.global.f32 [%rd9+256], %f3;
        $L__end:";
    let (a, b) = (numbers(32, 7), numbers(32, 8));
    let mut memory = Flat::of(bytes(&a).chain(bytes(&b)).chain(bytes(&[0.0; 32])));
    run(&common::kernel(body), 1, 32, &Parameters::default().pointer(0), &mut memory);
    let expected: Vec<f32> = (0..32).map(|i| if i < 20 { a[i] + b[i] } else { 0.0 }).collect();
    assert_eq!(memory.f32s(256, 32), expected);
}
