"""What NVIDIA's nvidia-ml-py sees of the devices: one line per device and per process on it.

Calls the library as monitoring tools do. Ends with code 3 at the first error that such a tool would
not expect, so that a silent success cannot hide.
"""

import sys

import pynvml


def expect_refusal(call, *arguments):
    """The call answers that it is not supported."""
    try:
        answer = call(*arguments)
    except pynvml.NVMLError_NotSupported:
        return
    print(f"watch.py: {call.__name__} answers {answer!r}", file=sys.stderr)
    sys.exit(3)


def main():
    pynvml.nvmlInit()
    print(f"driver={pynvml.nvmlSystemGetDriverVersion()} cuda={pynvml.nvmlSystemGetCudaDriverVersion()}")
    for index in range(pynvml.nvmlDeviceGetCount()):
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        uuid = pynvml.nvmlDeviceGetUUID(handle)
        assert pynvml.nvmlDeviceGetIndex(pynvml.nvmlDeviceGetHandleByUUID(uuid)) == index
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
        newer = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
        assert (newer.total, newer.reserved) == (memory.total, 0), newer
        rates = pynvml.nvmlDeviceGetUtilizationRates(handle)
        pci = pynvml.nvmlDeviceGetPciInfo(handle)
        print(
            f"device={index} uuid={uuid} bus={pci.busId} total={memory.total} used={memory.used}"
            f" load={rates.gpu} watts={pynvml.nvmlDeviceGetPowerUsage(handle) // 1000}"
            f" celsius={pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU)}"
            f" ecc={pynvml.nvmlDeviceGetEccMode(handle)[0]} mig={pynvml.nvmlDeviceGetMigMode(handle)[0]}"
            f" name={pynvml.nvmlDeviceGetName(handle)!r}"
        )
        for process in pynvml.nvmlDeviceGetComputeRunningProcesses(handle):
            name = pynvml.nvmlSystemGetProcessName(process.pid)
            print(f"process={process.pid} device={index} used={process.usedGpuMemory} name={name}")
        assert pynvml.nvmlDeviceGetGraphicsRunningProcesses(handle) == []
        expect_refusal(pynvml.nvmlDeviceGetFanSpeed, handle)
        expect_refusal(pynvml.nvmlDeviceSetPowerManagementLimit, handle, 200000)
    pynvml.nvmlShutdown()
    print("result=right")


main()
