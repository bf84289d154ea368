"""The CUDA runtime, called as a program would that was built with it: what it answers, line by line.

Knows nothing of Turnus.
"""

import ctypes
import glob
import os
import sys


def runtime():
    for folder in sys.path:
        for path in glob.glob(os.path.join(folder, "nvidia", "cu*", "lib", "libcudart.so.*")):
            return ctypes.CDLL(path)
    sys.exit("no libcudart.so in this environment")


def main():
    cudart = runtime()
    number, address = ctypes.c_int(-1), ctypes.c_void_p()
    for name, arguments in (
        ("cudaDriverGetVersion", (ctypes.byref(number),)),
        ("cudaGetDeviceCount", (ctypes.byref(number),)),
        ("cudaSetDevice", (0,)),
        ("cudaMalloc", (ctypes.byref(address), ctypes.c_size_t(4096))),
        ("cudaDeviceSynchronize", ()),
        ("cudaGetLastError", ()),
    ):
        print(name, getattr(cudart, name)(*arguments), number.value, bool(address.value))


if __name__ == "__main__":
    main()
