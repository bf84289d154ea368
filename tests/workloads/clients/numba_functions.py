"""Functions that numba-cuda turns into kernels itself: ufuncs, gufuncs, reductions, random numbers; and kernels
with atomics, warp functions, local and constant arrays, device functions, mathematics.

Numba hands over machine code. If there is a folder named by SIMULATED_CUDA_KERNELS, the PTX of all kernels, numba's
own ones too, is put there before they are loaded: it is what numba prints with NUMBA_DUMP_ASSEMBLY.
Prints `result=right` if everything that was computed is what numpy computes. Knows nothing of Turnus.
"""

import io
import math
import os
import sys

class Assembly(io.TextIOBase):
    """What numba prints: PTX goes to files, each before its code is loaded, the rest nowhere."""

    def __init__(self, folder):
        self.folder, self.count = folder, 0

    def write(self, text):
        if ".entry" in text:
            self.count += 1
            with open(os.path.join(self.folder, f"numba-{self.count}.ptx"), "w") as file:
                file.write(text)
        return len(text)


OUT = sys.stdout
if "SIMULATED_CUDA_KERNELS" in os.environ:
    os.environ["NUMBA_DUMP_ASSEMBLY"] = "1"
    sys.stdout = Assembly(os.environ["SIMULATED_CUDA_KERNELS"])

import numpy  # noqa: E402
from numba import cuda, float32, float64, guvectorize, int32, types, vectorize
from numba.cuda.random import create_xoroshiro128p_states, xoroshiro128p_uniform_float32

COUNT = 5_003
THREADS = 128
BLOCKS = (COUNT + THREADS - 1) // THREADS
WEIGHTS = numpy.array([0.5, 0.25, 0.125], dtype=numpy.float64)


@vectorize([float32(float32, float32), float64(float64, float64)], target="cuda")
def hypotenuse(a, b):
    return math.sqrt(a * a + b * b)


@guvectorize([(float64[:], float64[:], float64[:])], "(n),(n)->()", target="cuda")
def dot(a, b, out):
    total = 0.0
    for i in range(a.shape[0]):
        total += a[i] * b[i]
    out[0] = total


@cuda.reduce
def largest(a, b):
    return a if a > b else b


@cuda.reduce
def total(a, b):
    return a + b


@cuda.jit(device=True)
def polynomial(x):
    return (x + 2.0) * x + 1.0


@cuda.jit(types.void(float64[::1], float64[::1]))
def mathematics(values, out):
    i = cuda.grid(1)
    if i < values.size:
        x = values[i]
        out[i] = math.exp(-x) + math.log(1.0 + x) + math.sin(x) + math.floor(3.0 * x) + polynomial(x)


@cuda.jit(types.void(int32[::1], int32[::1], int32[::1]))
def counts(values, histogram, extremes):
    local = cuda.shared.array(16, int32)
    if cuda.threadIdx.x < 16:
        local[cuda.threadIdx.x] = 0
    cuda.syncthreads()
    for i in range(cuda.grid(1), values.size, cuda.gridsize(1)):
        cuda.atomic.add(local, values[i] & 15, 1)
        cuda.atomic.min(extremes, 0, values[i])
        cuda.atomic.max(extremes, 1, values[i])
    cuda.syncthreads()
    if cuda.threadIdx.x < 16:
        cuda.atomic.add(histogram, cuda.threadIdx.x, local[cuda.threadIdx.x])


@cuda.jit(types.void(int32[::1], int32[::1], int32[::1]))
def warps(values, sums, odd):
    i = cuda.grid(1)
    value = values[i]
    step = 16
    while step > 0:
        value += cuda.shfl_down_sync(0xFFFFFFFF, value, step)
        step //= 2
    ballot = cuda.ballot_sync(0xFFFFFFFF, values[i] & 1)
    if cuda.laneid == 0:
        sums[i // 32] = value
        odd[i // 32] = cuda.popc(ballot)


@cuda.jit(types.void(float64[::1], float64[::1]))
def smooth(values, out):
    weights = cuda.const.array_like(WEIGHTS)
    window = cuda.local.array(3, float64)
    i = cuda.grid(1)
    if i + 2 < values.size:
        for k in range(3):
            window[k] = values[i + k] * weights[k]
        out[i] = window[0] + window[1] + window[2]


@cuda.jit
def darts(states, out):
    i = cuda.grid(1)
    if i < out.size:
        inside = 0
        for _ in range(20):
            x = xoroshiro128p_uniform_float32(states, i)
            y = xoroshiro128p_uniform_float32(states, i)
            if x * x + y * y <= 1.0:
                inside += 1
        out[i] = inside


def functions(random, right):
    a, b = random.random(COUNT).astype(numpy.float32), random.random(COUNT).astype(numpy.float32)
    right["ufunc"] = numpy.allclose(hypotenuse(a, b), numpy.sqrt(a * a + b * b), rtol=1e-6)
    on_device = hypotenuse(cuda.to_device(a.astype(numpy.float64)), cuda.to_device(b.astype(numpy.float64)))
    right["ufunc on the device"] = numpy.allclose(on_device.copy_to_host(), numpy.hypot(a, b), rtol=1e-6)
    rows, columns = random.random((50, 9)), random.random((50, 9))
    right["gufunc"] = numpy.allclose(dot(rows, columns), (rows * columns).sum(axis=1))
    values = random.integers(-(10**6), 10**6, COUNT)
    right["sum"] = total(values) == values.sum()
    right["maximum"] = largest(cuda.to_device(values), init=-(10**7)) == values.max()


def kernels(random, right):
    x = random.random(COUNT)
    out = numpy.zeros(COUNT)
    mathematics[BLOCKS, THREADS](x, out)
    expected = numpy.exp(-x) + numpy.log(1 + x) + numpy.sin(x) + numpy.floor(3 * x) + (x + 2) * x + 1
    right["mathematics"] = numpy.allclose(out, expected, rtol=1e-12)
    values = random.integers(-5000, 5000, COUNT).astype(numpy.int32)
    histogram, extremes = numpy.zeros(16, numpy.int32), numpy.array([10**6, -(10**6)], numpy.int32)
    counts[8, THREADS](values, histogram, extremes)
    right["atomics"] = numpy.array_equal(histogram, numpy.bincount(values & 15, minlength=16))
    right["extremes"] = extremes.tolist() == [values.min(), values.max()]
    values = values[: 32 * 40].copy()
    sums, odd = numpy.zeros(40, numpy.int32), numpy.zeros(40, numpy.int32)
    warps[10, THREADS](values, sums, odd)
    right["warps"] = numpy.array_equal(sums, values.reshape(40, 32).sum(axis=1))
    right["votes"] = numpy.array_equal(odd, (values & 1).reshape(40, 32).sum(axis=1))
    smoothed = numpy.zeros(COUNT)
    smooth[BLOCKS, THREADS](x, smoothed)
    right["constants"] = numpy.allclose(smoothed[:-2], x[:-2] / 2 + x[1:-1] / 4 + x[2:] / 8)
    states = create_xoroshiro128p_states(THREADS * 16, seed=5)
    inside = cuda.device_array(THREADS * 16, numpy.int32)
    darts[16, THREADS](states, inside)
    pi = 4 * inside.copy_to_host().mean() / 20
    right["random"] = abs(pi - math.pi) < 0.05


def memory(random, right):
    matrix = random.random((40, 60))
    device = cuda.to_device(matrix)
    right["slices"] = numpy.array_equal(device[5:9].copy_to_host(), matrix[5:9])
    device[2, 3] = 7.5
    right["elements"] = device[2, 3] == 7.5
    managed = cuda.managed_array(COUNT, numpy.float64)
    managed[:] = 0
    mathematics[BLOCKS, THREADS](cuda.to_device(numpy.zeros(COUNT)), managed)
    cuda.synchronize()
    right["managed"] = bool((managed == 2.0).all())
    stream, begin, end = cuda.stream(), cuda.event(timing=True), cuda.event(timing=True)
    begin.record(stream)
    with cuda.pinned(matrix):
        copy = cuda.to_device(matrix, stream=stream)
        end.record(stream)
        stream.synchronize()
    end.synchronize()
    right["time"] = cuda.event_elapsed_time(begin, end) >= 0
    right["stream"] = numpy.array_equal(copy.copy_to_host(), matrix)


def main():
    right = {}
    for part in (functions, kernels, memory):
        part(numpy.random.default_rng(23), right)
    sys.stdout = OUT
    wrong = [what for what, fits in right.items() if not fits]
    print(f"wrong={wrong} of {len(right)}")
    print("result=wrong" if wrong else "result=right")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
