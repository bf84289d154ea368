"""cuda-core as its guide shows it: a program, a kernel, memory resources, streams, events.

The argument says how kernels reach the driver: `ptx` or `cubin`. With `cubin` their PTX is put into the folder
that SIMULATED_CUDA_KERNELS names, if it names one: a simulated driver cannot execute machine code.
Prints `result=right` if everything that was computed is what numpy computes. Knows nothing of Turnus.
"""

import os
import sys

import numpy
from cuda.core import (
    Buffer,
    Device,
    DeviceMemoryResource,
    DeviceMemoryResourceOptions,
    EventOptions,
    LaunchConfig,
    LegacyPinnedMemoryResource,
    Program,
    ProgramOptions,
    launch,
)

COUNT = 100_003
SOURCE = r"""
template <typename T> __global__ void saxpy(T factor, const T *x, const T *y, T *out, size_t count) {
    const size_t stride = (size_t)gridDim.x * blockDim.x;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride)
        out[i] = factor * x[i] + y[i];
}
"""


def main(code_type):
    device = Device()
    device.set_current()
    stream = device.create_stream()
    major, minor = device.compute_capability
    options = ProgramOptions(std="c++17", arch=f"sm_{major}{minor}")
    names = ("saxpy<float>", "saxpy<double>")
    program = Program(SOURCE, code_type="c++", options=options)
    folder = os.environ.get("SIMULATED_CUDA_KERNELS")
    if code_type == "cubin" and folder:
        ptx = Program(SOURCE, code_type="c++", options=options).compile("ptx", name_expressions=names)
        with open(os.path.join(folder, "saxpy.ptx"), "wb") as file:
            file.write(ptx.code.rstrip(b"\0"))
    module = program.compile(code_type, name_expressions=names)
    pool = DeviceMemoryResource(device, DeviceMemoryResourceOptions(max_size=64 << 20))
    pinned = LegacyPinnedMemoryResource()
    wrong = 0
    for name, kind in zip(names, (numpy.float32, numpy.float64)):
        kernel = module.get_kernel(name)
        size = COUNT * numpy.dtype(kind).itemsize
        host = [numpy.from_dlpack(pinned.allocate(size)).view(kind) for _ in range(3)]
        random = numpy.random.default_rng(7)
        host[0][:], host[1][:], host[2][:] = random.random(COUNT), random.random(COUNT), 0
        for resource in (device.memory_resource, pool):
            x, y, out = (resource.allocate(size, stream=stream) for _ in range(3))
            assert isinstance(x, Buffer) and x.is_device_accessible and not x.is_host_accessible
            before = stream.record(options=EventOptions(timing_enabled=True))
            for buffer, values in ((x, host[0]), (y, host[1])):
                buffer.copy_from(pinned_buffer(pinned, values), stream=stream)
            launch(stream, LaunchConfig(grid=40, block=256), kernel, kind(1.5), x, y, out, numpy.uint64(COUNT))
            result = pinned.allocate(size)
            out.copy_to(result, stream=stream)
            after = stream.record(options=EventOptions(timing_enabled=True))
            stream.sync()
            assert after - before >= 0
            values = numpy.from_dlpack(result).view(kind)
            expected = kind(1.5) * host[0] + host[1]
            # A fused multiply-add rounds once, numpy twice.
            wrong += int((numpy.abs(values - expected) > 4 * numpy.finfo(kind).eps).sum())
            for buffer in (x, y, out):
                buffer.close(stream)
    stream.close()
    print(f"wrong={wrong}")
    print("result=right" if wrong == 0 else "result=wrong")
    return int(wrong != 0)


def pinned_buffer(pinned, values):
    """The values in a buffer of their own that a copy can be queued from."""
    buffer = pinned.allocate(values.nbytes)
    numpy.from_dlpack(buffer).view(values.dtype)[:] = values
    return buffer


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "ptx"))
