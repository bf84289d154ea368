//! cudarc's safe API as its guide shows it: slices, a module, launches, streams, events, a captured graph.
//!
//! Prints `result=right` if everything that was computed is what this program computes itself. Knows nothing
//! of Turnus or of the simulated driver.

use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaFunction, CudaStream, DriverError, LaunchConfig, PushKernelArg, sys};
use cudarc::nvrtc::Ptx;

const COUNT: usize = 12_345;
const SOURCE: &str = "
.version 7.0
.target sm_60
.address_size 64
.visible .entry add_scaled(.param .u64 x, .param .u64 y, .param .f32 factor, .param .u64 count)
{
    .reg .pred %p;
    .reg .u32 %r<4>;
    .reg .u64 %i, %n, %x, %y;
    .reg .f32 %a, %b, %f;
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.u32 %r1, %r1, %r2, %r3;
    cvt.u64.u32 %i, %r1;
    ld.param.u64 %n, [count];
    setp.ge.u64 %p, %i, %n;
    @%p ret;
    ld.param.u64 %x, [x];
    ld.param.u64 %y, [y];
    ld.param.f32 %f, [factor];
    shl.b64 %i, %i, 2;
    add.u64 %x, %x, %i;
    add.u64 %y, %y, %i;
    ld.global.f32 %a, [%x];
    ld.global.f32 %b, [%y];
    fma.rn.f32 %b, %a, %f, %b;
    st.global.f32 [%y], %b;
    ret;
}
";

fn main() -> Result<(), DriverError> {
    let context = CudaContext::new(0)?;
    let module = context.load_module(Ptx::from_src(SOURCE))?;
    let function = module.load_function("add_scaled")?;
    let (free, total) = context.mem_get_info()?;
    let mut right = vec![free > 0 && free <= total, CudaContext::device_count()? > 0];

    let stream = context.new_stream()?;
    let other = stream.fork()?;
    let x: Vec<f32> = (0..COUNT).map(|index| index as f32).collect();
    let on_device = stream.clone_htod(&x)?;
    let mut sum = stream.alloc_zeros::<f32>(COUNT)?;
    for factor in [1.0, 2.0] {
        add_scaled(&stream, &function, &on_device, &mut sum, factor)?;
    }
    other.join(&stream)?;
    let mut copy = other.clone_dtod(&sum)?;
    right.push(is_multiple(&other.clone_dtoh(&copy)?, 3.0));

    // A part of it, and memory set to zero.
    other.memset_zeros(&mut copy.slice_mut(100..200))?;
    let part = other.clone_dtoh(&copy.slice(50..250))?;
    right.push(part[50..150].iter().all(|value| *value == 0.0) && part[0] == 150.0 && part[199] == 747.0);

    // Recorded once, run three times. Events of slices do not belong in a graph.
    // SAFETY: only this thread uses the slices, on streams that it orders itself.
    unsafe { context.disable_event_tracking() };
    let mut replayed = stream.alloc_zeros::<f32>(COUNT)?;
    let again = stream.clone_htod(&x)?;
    stream.synchronize()?;
    stream.begin_capture(sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)?;
    add_scaled(&stream, &function, &again, &mut replayed, 2.0)?;
    let flags = sys::CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
    let graph = stream.end_capture(flags)?.expect("a capture gives a graph");
    for _ in 0..3 {
        graph.launch()?;
    }
    right.push(is_multiple(&stream.clone_dtoh(&replayed)?, 6.0));

    let start = stream.record_event(Some(sys::CUevent_flags::CU_EVENT_DEFAULT))?;
    add_scaled(&stream, &function, &again, &mut replayed, 1.0)?;
    let end = stream.record_event(Some(sys::CUevent_flags::CU_EVENT_DEFAULT))?;
    end.synchronize()?;
    right.push(start.elapsed_ms(&end)? >= 0.0);

    println!("right={right:?}");
    println!("result={}", if right.iter().all(|part| *part) { "right" } else { "wrong" });
    Ok(())
}

/// `y += factor * x`.
fn add_scaled(
    stream: &Arc<CudaStream>,
    function: &CudaFunction,
    x: &cudarc::driver::CudaSlice<f32>,
    y: &mut cudarc::driver::CudaSlice<f32>,
    factor: f32,
) -> Result<(), DriverError> {
    let mut launch = stream.launch_builder(function);
    launch.arg(x).arg(y).arg(&factor).arg(&COUNT);
    // SAFETY: the arguments are those of the entry, and both slices have COUNT elements.
    unsafe { launch.launch(LaunchConfig::for_num_elems(COUNT as u32)) }?;
    Ok(())
}

fn is_multiple(values: &[f32], factor: f32) -> bool {
    values.len() == COUNT && values.iter().enumerate().all(|(index, value)| *value == factor * index as f32)
}
