"""chain in Python: NVIDIA's cuda-bindings and NVRTC, with the options and output of chain.c.

Keeps a large part of the device's memory, changes every byte of it round after round, and at the
end compares all of it with a model. Knows nothing of Turnus.
"""

import argparse
import os
import sys
import time

import numpy
from cuda.bindings import driver, nvrtc

MULTIPLIER = 6364136223846793005
INCREMENT = 1442695040888963407
MASK = 2**64 - 1
THREADS = 256
PIECE_WORDS = 1 << 19
SOURCE = rb"""
extern "C" __global__ void start(unsigned long long *words, unsigned long long count,
                                 unsigned long long first, unsigned long long seed) {
    unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) words[i] = (i + first + 1) * 0x9e3779b97f4a7c15ull ^ seed;
}
extern "C" __global__ void step(unsigned long long *words, unsigned long long count) {
    unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) words[i] = words[i] * 6364136223846793005ull + 1442695040888963407ull;
}
"""


def check(answer):
    """The values of a call, or the end of the program with code 3."""
    status, *values = answer
    if int(status) != 0:
        print(f"chain.py: {status!r}", file=sys.stderr)
        sys.exit(3)
    return values[0] if len(values) == 1 else values


def compile_module():
    """PTX by NVRTC, then a module of the driver."""
    program = check(nvrtc.nvrtcCreateProgram(SOURCE, b"chain.cu", 0, None, None))
    check(nvrtc.nvrtcCompileProgram(program, 1, [b"--gpu-architecture=compute_80"]))
    ptx = b" " * check(nvrtc.nvrtcGetPTXSize(program))
    check(nvrtc.nvrtcGetPTX(program, ptx))
    return check(driver.cuModuleLoadData(numpy.char.array(ptx)))


def launch(function, values, words):
    """Starts a kernel over all words; parameters are 64-bit each."""
    cells = [numpy.array([value], dtype=numpy.uint64) for value in values]
    pointers = numpy.array([cell.ctypes.data for cell in cells], dtype=numpy.uint64)
    grid = (words + THREADS - 1) // THREADS
    check(driver.cuLaunchKernel(function, grid, 1, 1, THREADS, 1, 1, 0, 0, pointers.ctypes.data, 0))


def wrong_words(pointer, words, seed, rounds):
    """How many words differ from the model."""
    multiplier, increment = 1, 0
    for _ in range(rounds):
        multiplier, increment = multiplier * MULTIPLIER & MASK, (increment * MULTIPLIER + INCREMENT) & MASK
    wrong = 0
    for at in range(0, words, PIECE_WORDS):
        piece = numpy.empty(min(PIECE_WORDS, words - at), dtype=numpy.uint64)
        check(driver.cuMemcpyDtoH(piece.ctypes.data, int(pointer) + at * 8, piece.nbytes))
        index = numpy.arange(at + 1, at + 1 + len(piece), dtype=numpy.uint64)
        right = (index * numpy.uint64(0x9E3779B97F4A7C15)) ^ numpy.uint64(seed)
        right = right * numpy.uint64(multiplier) + numpy.uint64(increment)
        wrong += int(numpy.count_nonzero(piece != right))
    return wrong


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bytes", type=int, default=1 << 20)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--stop-file")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", type=int, default=0)
    parser.add_argument("--host-ms", type=int, default=0)
    options = parser.parse_args()

    check(driver.cuInit(0))
    device = check(driver.cuDeviceGet(options.device))
    context = check(driver.cuDevicePrimaryCtxRetain(device))
    check(driver.cuCtxSetCurrent(context))
    module = compile_module()
    start = check(driver.cuModuleGetFunction(module, b"start"))
    step = check(driver.cuModuleGetFunction(module, b"step"))
    words = options.bytes // 8
    pointer = check(driver.cuMemAlloc(words * 8))
    launch(start, [int(pointer), words, 0, options.seed], words)

    rounds = 0
    while (not os.path.exists(options.stop_file)) if options.stop_file else rounds < options.rounds:
        launch(step, [int(pointer), words], words)
        check(driver.cuCtxSynchronize())
        rounds += 1
        print(f"round={rounds}", flush=True)
        time.sleep(options.host_ms / 1000)
    wrong = wrong_words(pointer, words, options.seed, rounds)
    check(driver.cuMemFree(pointer))
    check(driver.cuDevicePrimaryCtxRelease(device))
    print(f"rounds={rounds} bytes={words * 8} result={'wrong' if wrong else 'right'}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
