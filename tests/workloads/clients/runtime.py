"""The CUDA runtime, called as a program would that was built with it: what it answers, line by line.

The argument is the path of its library. Knows nothing of Turnus.
"""

import ctypes
import sys


def main():
    cudart = ctypes.CDLL(sys.argv[1])
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
