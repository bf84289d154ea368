"""numba-cuda as its guide shows it: compiled functions, arrays, shared memory, atomics, streams, pinned arrays.

Numba hands over machine code. With the argument `save` it only writes the PTX of the same kernels into the folder
that SIMULATED_CUDA_KERNELS names; run so once before, under a simulated driver that does not refuse machine code.
Prints `result=right` if everything that was computed is what numpy computes. Knows nothing of Turnus.
"""

import os
import sys

import numpy
from numba import cuda, float32, float64, types

COUNT = 10_007
THREADS = 128


@cuda.jit
def add(a, b, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = a[i] + b[i]


@cuda.jit
def square_sum(values, out):
    partial = cuda.shared.array(THREADS, types.float64)
    thread, i = cuda.threadIdx.x, cuda.grid(1)
    partial[thread] = values[i] * values[i] if i < values.size else 0.0
    cuda.syncthreads()
    step = THREADS // 2
    while step > 0:
        if thread < step:
            partial[thread] += partial[thread + step]
        cuda.syncthreads()
        step //= 2
    if thread == 0:
        cuda.atomic.add(out, 0, partial[0])


@cuda.jit
def transpose(matrix, out):
    x, y = cuda.grid(2)
    if x < matrix.shape[0] and y < matrix.shape[1]:
        out[y, x] = matrix[x, y]


SIGNATURES = {
    add: (float32[::1], float32[::1], float32[::1]),
    square_sum: (float64[::1], float64[::1]),
    transpose: (float32[:, ::1], float32[:, ::1]),
}


def save(folder):
    for kernel, signature in SIGNATURES.items():
        kernel.compile(signature)
        for ptx in kernel.inspect_asm().values():
            with open(os.path.join(folder, kernel.py_func.__name__ + ".ptx"), "w") as file:
                file.write(ptx)


def main():
    for kernel, signature in SIGNATURES.items():
        kernel.compile(signature)
    blocks = (COUNT + THREADS - 1) // THREADS
    random = numpy.random.default_rng(11)
    a, b = (random.random(COUNT).astype(numpy.float32) for _ in range(2))
    right = []
    # Arrays of the device, on a stream of our own, with an event.
    stream, event = cuda.stream(), cuda.event()
    on_device = [cuda.to_device(values, stream=stream) for values in (a, b)]
    out = cuda.device_array(COUNT, numpy.float32, stream=stream)
    add[blocks, THREADS, stream](*on_device, out)
    event.record(stream)
    event.synchronize()
    right.append(numpy.array_equal(out.copy_to_host(), a + b))
    # Arrays of the host, which numba brings over and back.
    total = numpy.zeros(1)
    values = a.astype(numpy.float64)
    square_sum[blocks, THREADS](values, total)
    right.append(numpy.allclose(total[0], (values * values).sum(), rtol=1e-12))
    # Two dimensions, pinned memory, a pitchless copy.
    matrix = cuda.pinned_array((60, 33), numpy.float32)
    matrix[:] = random.random(matrix.shape)
    turned = cuda.device_array((33, 60), numpy.float32)
    transpose[(8, 5), (8, 8)](cuda.to_device(matrix), turned)
    right.append(numpy.array_equal(turned.copy_to_host(), matrix.T))
    # Mapped memory, which both sides see.
    mapped = cuda.mapped_array(COUNT, numpy.float32)
    mapped[:] = 0
    add[blocks, THREADS](*on_device, mapped)
    cuda.synchronize()
    right.append(numpy.array_equal(mapped, a + b))
    free, there = cuda.current_context().get_memory_info()
    right.append(0 < free <= there)
    print(f"right={right}")
    print("result=right" if all(right) else "result=wrong")
    return int(not all(right))


if __name__ == "__main__":
    if sys.argv[1:2] == ["save"]:
        save(os.environ["SIMULATED_CUDA_KERNELS"])
    else:
        sys.exit(main())
