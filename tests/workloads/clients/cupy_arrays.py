"""CuPy as its guide shows it: arrays, universal functions, reductions, sorting, raw and elementwise kernels, memory
pools, streams, events, managed memory, errors.

Wants CUPY_ACCELERATORS to be empty where the PTX of CUB's kernels cannot be loaded as a whole.
Prints `result=right` if everything that was computed is what numpy computes. Knows nothing of Turnus.
"""

import sys

import cupy
import numpy

COUNT = 10_007
RAW = """
extern "C" __global__ void running(const float *in, float *out, int count) {
    __shared__ float part[128];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    part[threadIdx.x] = i < count ? in[i] : 0;
    for (int step = 1; step < 128; step *= 2) {
        __syncthreads();
        float other = threadIdx.x >= step ? part[threadIdx.x - step] : 0;
        __syncthreads();
        part[threadIdx.x] += other;
    }
    if (i < count) out[i] = part[threadIdx.x];
}
"""


def arrays(random, right):
    a, b = (random.random(COUNT).astype(numpy.float32) for _ in range(2))
    x, y = cupy.asarray(a), cupy.asarray(b)
    right["arithmetic"] = numpy.allclose((x * 2 + cupy.sqrt(y) - x / (y + 1)).get(), a * 2 + numpy.sqrt(b) - a / (b + 1))
    right["where"] = numpy.array_equal(cupy.where(x > 0.5, x, -y).get(), numpy.where(a > 0.5, a, -b))
    right["sum"] = numpy.allclose(x.sum().get(), a.sum(), rtol=1e-4)
    right["extremes"] = (x.max().get(), int(y.argmin())) == (a.max(), b.argmin())
    square, model = x[:10_000].reshape(100, 100), a[:10_000].reshape(100, 100)
    right["axis"] = numpy.allclose(square.mean(axis=0).get(), model.mean(axis=0), rtol=1e-4)
    right["slice"] = numpy.array_equal(square[5:50:3, ::-2].T.get(), model[5:50:3, ::-2].T)
    right["mask"] = numpy.array_equal(x[x > 0.5].get(), a[a > 0.5])
    right["sort"] = numpy.array_equal(cupy.sort(x).get(), numpy.sort(a))
    right["cumulated"] = numpy.allclose(cupy.cumsum(y).get(), numpy.cumsum(b, dtype=numpy.float64), rtol=1e-3)
    right["complex"] = numpy.allclose((x * 1j + y).get(), a * 1j + b)


def kernels(random, right):
    a = random.random(COUNT).astype(numpy.float32)
    x = cupy.asarray(a)
    out = cupy.empty_like(x)
    cupy.RawKernel(RAW, "running")(((COUNT + 127) // 128,), (128,), (x, out, numpy.int32(COUNT)))
    model = numpy.concatenate([numpy.cumsum(a[at : at + 128]) for at in range(0, COUNT, 128)])
    right["raw"] = numpy.allclose(out.get(), model, rtol=1e-4)
    square = cupy.ElementwiseKernel("T x, T y", "T z", "z = x * x + y", "square")
    right["elementwise"] = numpy.allclose(square(x, x).get(), a * a + a)
    length = cupy.ReductionKernel("T x", "T y", "x * x", "a + b", "y = sqrt(a)", "0", "length")
    right["reduction"] = numpy.allclose(length(x).get(), numpy.sqrt((a * a).sum()), rtol=1e-4)


def memory(random, right):
    a = random.random(COUNT).astype(numpy.float32)
    pool = cupy.get_default_memory_pool()
    stream, begin, end = cupy.cuda.Stream(non_blocking=True), cupy.cuda.Event(), cupy.cuda.Event()
    with stream:
        begin.record()
        y = cupy.asarray(a) * 3
        end.record()
    stream.synchronize()
    right["stream"] = cupy.cuda.get_elapsed_time(begin, end) >= 0 and numpy.array_equal(y.get(), a * 3)
    right["pool"] = pool.total_bytes() >= pool.used_bytes() >= y.nbytes
    del y
    pool.free_all_blocks()
    right["pool freed"] = pool.used_bytes() == pool.total_bytes()
    with cupy.cuda.using_allocator(cupy.cuda.MemoryPool(cupy.cuda.malloc_managed).malloc):
        right["managed"] = numpy.array_equal((cupy.asarray(a) + 1).get(), a + 1)
    try:
        cupy.empty(1 << 44)
        right["error"] = False
    except cupy.cuda.memory.OutOfMemoryError:
        right["error"] = True


def main():
    right = {"runtime": cupy.cuda.runtime.runtimeGetVersion() == 10020}
    for part in (arrays, kernels, memory):
        part(numpy.random.default_rng(17), right)
    wrong = [what for what, fits in right.items() if not fits]
    print(f"wrong={wrong} of {len(right)}")
    print("result=wrong" if wrong else "result=right")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
