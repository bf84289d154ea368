"""PyCUDA as its documentation shows it: source modules, GPU arrays and their kernels, reductions, scans, pools,
streams, events, pinned, mapped, pitched and managed memory, variables of modules, errors.

PyCUDA has its kernels compiled to machine code; here nvcc, from NVIDIA's package, is asked for PTX instead, since a
simulated driver cannot execute machine code. PYCUDA_CACHE_DIR keeps what it made.
Prints `result=right` if everything that was computed is what numpy computes. Knows nothing of Turnus.
"""

import functools
import os
import sys

import numpy
import pycuda.compiler
import pycuda.driver as driver

TOOLKIT = next(path for path in (os.path.join(folder, "nvidia/cu13") for folder in sys.path) if os.path.isdir(path))
os.environ["PATH"] += os.pathsep + os.path.join(TOOLKIT, "bin")
pycuda.compiler.compile = functools.partial(pycuda.compiler.compile, target="ptx")

from pycuda import gpuarray, tools  # noqa: E402
from pycuda.elementwise import ElementwiseKernel  # noqa: E402
from pycuda.reduction import ReductionKernel  # noqa: E402
from pycuda.scan import InclusiveScanKernel  # noqa: E402

COUNT = 10_007
SOURCE = """
__constant__ float factors[4];
__device__ int calls;
__global__ void scale(float *out, const float *in, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i == 0) atomicAdd(&calls, 1);
    if (i < count) out[i] = in[i] * factors[i & 3];
}
__global__ void transpose(float *out, const float *in, int width, int height) {
    __shared__ float tile[16][17];
    int x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 16 + threadIdx.y;
    if (x < width && y < height) tile[threadIdx.y][threadIdx.x] = in[y * width + x];
    __syncthreads();
    x = blockIdx.y * 16 + threadIdx.x;
    y = blockIdx.x * 16 + threadIdx.y;
    if (x < height && y < width) out[y * height + x] = tile[threadIdx.x][threadIdx.y];
}
"""


def modules(random, right):
    module = pycuda.compiler.SourceModule(SOURCE)
    scale, transpose = module.get_function("scale"), module.get_function("transpose")
    factors = numpy.array([1, 2, 3, 4], numpy.float32)
    address, size = module.get_global("factors")
    driver.memcpy_htod(address, factors)
    values, out = random.random(COUNT).astype(numpy.float32), numpy.empty(COUNT, numpy.float32)
    blocks = (COUNT + 255) // 256
    scale(driver.Out(out), driver.In(values), numpy.int32(COUNT), block=(256, 1, 1), grid=(blocks, 1))
    expected = values * factors[numpy.arange(COUNT) & 3]
    right["module"] = size == 16 and numpy.array_equal(out, expected)
    scale.prepare("PPi")
    there, back = driver.to_device(values), driver.mem_alloc(out.nbytes)
    ms = scale.prepared_timed_call((blocks, 1), (256, 1, 1), back, there, COUNT)()
    right["prepared"] = ms >= 0 and numpy.array_equal(driver.from_device_like(back, out), expected)
    calls = numpy.zeros(1, numpy.int32)
    driver.memcpy_dtoh(calls, module.get_global("calls")[0])
    right["variable"] = calls[0] == 2
    matrix, turned = random.random((50, 70)).astype(numpy.float32), numpy.empty((70, 50), numpy.float32)
    sizes = numpy.int32(70), numpy.int32(50)
    transpose(driver.Out(turned), driver.In(matrix), *sizes, block=(16, 16, 1), grid=(5, 4))
    right["shared"] = transpose.shared_size_bytes == 16 * 17 * 4 and numpy.array_equal(turned, matrix.T)
    return scale


def arrays(random, right):
    a, b = (random.random(COUNT).astype(numpy.float32) for _ in range(2))
    x, y = gpuarray.to_gpu(a), gpuarray.to_gpu(b)
    right["arithmetic"] = numpy.allclose((x * 2 + y - x / (y + 1)).get(), a * 2 + b - a / (b + 1), rtol=1e-5)
    right["slice"] = numpy.array_equal(x[100:200].get(), a[100:200])
    right["range"] = numpy.array_equal(gpuarray.arange(COUNT, dtype=numpy.int32).get(), numpy.arange(COUNT))
    right["fill"] = bool((gpuarray.zeros(COUNT, numpy.float32).fill(2.5).get() == 2.5).all())
    right["sum"] = numpy.allclose(gpuarray.sum(x).get(), a.sum(), rtol=1e-4)
    right["maximum"] = gpuarray.max(y).get() == b.max()
    combine = ElementwiseKernel("float p, float *x, float q, float *y, float *z", "z[i] = p * x[i] + q * y[i]", "combine")
    z = gpuarray.empty_like(x)
    combine(3, x, 5, y, z)
    right["elementwise"] = numpy.allclose(z.get(), 3 * a + 5 * b, rtol=1e-5)
    distance = ReductionKernel(
        numpy.float32, neutral="0", reduce_expr="a + b", map_expr="(x[i] - y[i]) * (x[i] - y[i])",
        arguments="float *x, float *y",
    )
    right["reduction"] = numpy.allclose(distance(x, y).get(), ((a - b) ** 2).sum(), rtol=1e-4)
    numbers = random.integers(0, 100, COUNT).astype(numpy.int32)
    running = gpuarray.to_gpu(numbers)
    InclusiveScanKernel(numpy.int32, "a + b")(running)
    right["scan"] = numpy.array_equal(running.get(), numpy.cumsum(numbers))
    pool = tools.DeviceMemoryPool()
    pooled = [gpuarray.to_gpu(a, allocator=pool.allocate) for _ in range(3)]
    right["pool"] = pool.active_blocks == 3 and numpy.array_equal(pooled[2].get(), a)
    del pooled
    pool.free_held()
    right["pool freed"] = pool.held_blocks == pool.active_blocks == 0


def memory(random, right, scale):
    values = random.random(COUNT).astype(numpy.float32)
    expected = values * numpy.array([1, 2, 3, 4], numpy.float32)[numpy.arange(COUNT) & 3]
    stream, begin, end = driver.Stream(), driver.Event(), driver.Event()
    pinned = driver.pagelocked_empty(COUNT, numpy.float32)
    pinned[:] = values
    there, out = driver.mem_alloc(pinned.nbytes), driver.mem_alloc(pinned.nbytes)
    begin.record(stream)
    driver.memcpy_htod_async(there, pinned, stream)
    launch = ((COUNT + 255) // 256, 1), (256, 1, 1)
    scale.prepared_async_call(*launch, stream, out, there, COUNT)
    driver.memcpy_dtoh_async(pinned, out, stream)
    end.record(stream).synchronize()
    right["stream"] = stream.is_done() and end.time_since(begin) >= 0 and numpy.array_equal(pinned, expected)
    mapped = driver.pagelocked_empty(COUNT, numpy.float32, mem_flags=driver.host_alloc_flags.DEVICEMAP)
    mapped[:] = values
    scale.prepared_call(*launch, out, mapped.base.get_device_pointer(), COUNT)
    right["mapped"] = numpy.array_equal(driver.from_device_like(out, values), expected)
    managed = driver.managed_empty(COUNT, numpy.float32, mem_flags=driver.mem_attach_flags.GLOBAL)
    managed[:] = values
    scale.prepared_call(*launch, managed.base.get_device_pointer(), managed.base.get_device_pointer(), COUNT)
    driver.Context.synchronize()
    right["managed"] = numpy.array_equal(managed, expected)
    matrix = random.random((20, 30)).astype(numpy.float32)
    device, pitch = driver.mem_alloc_pitch(30 * 4, 20, 4)
    copy = driver.Memcpy2D()
    copy.set_src_host(matrix)
    copy.set_dst_device(device)
    copy.src_pitch = copy.width_in_bytes = 30 * 4
    copy.dst_pitch, copy.height = pitch, 20
    copy(aligned=True)
    back = numpy.empty_like(matrix)
    copy = driver.Memcpy2D()
    copy.set_src_device(device)
    copy.set_dst_host(back)
    copy.src_pitch, copy.height = pitch, 20
    copy.dst_pitch = copy.width_in_bytes = 30 * 4
    copy(aligned=True)
    right["pitch"] = pitch >= 30 * 4 and numpy.array_equal(back, matrix)
    driver.memset_d32(int(there), 0x3F800000, COUNT)
    right["memset"] = bool((driver.from_device_like(there, values) == 1).all())
    free, total = driver.mem_get_info()
    right["memory"] = 0 < free < total
    try:
        driver.mem_alloc(1 << 46)
        right["error"] = False
    except driver.MemoryError:
        right["error"] = True


def main():
    driver.init()
    device, right = driver.Device(0), {}
    right["device"] = device.compute_capability() >= (5, 0) and device.total_memory() > 0 and bool(device.name())
    context = device.make_context()
    try:
        random = numpy.random.default_rng(3)
        scale = modules(random, right)
        arrays(random, right)
        memory(random, right, scale)
    finally:
        context.pop()
        tools.clear_context_caches()
    wrong = [what for what, fits in right.items() if not fits]
    print(f"wrong={wrong} of {len(right)}")
    print("result=wrong" if wrong else "result=right")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
