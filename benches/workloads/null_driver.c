/* A libcuda.so.1 in which everything succeeds and nothing happens: behind the gate there is then
 * nothing but the gate to measure. One device of 64 MiB; memory exists as addresses only. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
#define SUCCEED(name) EXPORT int name(void) { return 0; }

static __thread void *current;
static uint64_t next_address = 0x700000000000ull;
static uintptr_t next_handle = 16;

static void *new_handle(void) { return (void *)__atomic_add_fetch(&next_handle, 16, __ATOMIC_RELAXED); }

EXPORT int cuInit(unsigned flags) { return flags ? 1 : 0; }
EXPORT int cuDriverGetVersion(int *version) { *version = 12040; return 0; }
EXPORT int cuDeviceGetCount(int *count) { *count = 1; return 0; }
EXPORT int cuDeviceGet(int *device, int ordinal) { if (ordinal) return 101; *device = 0; return 0; }
EXPORT int cuDeviceGetName(char *name, int bytes, int device) {
    (void)device;
    if (bytes < 5) return 1;
    strcpy(name, "null");
    return 0;
}
EXPORT int cuDeviceGetUuid(void *uuid, int device) { (void)device; memcpy(uuid, "null-driver-uuid", 16); return 0; }
EXPORT int cuDeviceGetUuid_v2(void *uuid, int device) { return cuDeviceGetUuid(uuid, device); }
EXPORT int cuDeviceGetAttribute(int *value, int attribute, int device) { (void)attribute, (void)device; *value = 1; return 0; }
EXPORT int cuDeviceTotalMem_v2(size_t *bytes, int device) { (void)device; *bytes = 64 << 20; return 0; }
EXPORT int cuMemGetInfo_v2(size_t *free_bytes, size_t *total) { *free_bytes = 60 << 20, *total = 64 << 20; return 0; }
EXPORT int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) { (void)device; *flags = 0, *active = 0; return 0; }

EXPORT int cuCtxCreate_v2(void **context, unsigned flags, int device) {
    (void)flags, (void)device;
    *context = current = new_handle();
    return 0;
}
EXPORT int cuCtxGetCurrent(void **context) { *context = current; return 0; }
EXPORT int cuCtxSetCurrent(void *context) { current = context; return 0; }
EXPORT int cuCtxPushCurrent_v2(void *context) { current = context; return 0; }
EXPORT int cuCtxPopCurrent_v2(void **context) { if (context) *context = current; current = NULL; return 0; }
EXPORT int cuCtxGetDevice(int *device) { *device = 0; return current ? 0 : 201; }
EXPORT int cuCtxGetFlags(unsigned *flags) { *flags = 0; return 0; }
EXPORT int cuCtxGetApiVersion(void *context, unsigned *version) { (void)context; *version = 3020; return 0; }

EXPORT int cuModuleLoadData(void **module, const void *image) { (void)image; *module = new_handle(); return 0; }
EXPORT int cuModuleGetFunction(void **function, void *module, const char *name) { (void)module, (void)name; *function = new_handle(); return 0; }
EXPORT int cuStreamCreate(void **stream, unsigned flags) { (void)flags; *stream = new_handle(); return 0; }
EXPORT int cuEventCreate(void **event, unsigned flags) { (void)flags; *event = new_handle(); return 0; }

static int reserve(uint64_t *address, size_t bytes) {
    *address = __atomic_fetch_add(&next_address, (bytes + 0x1fffff) & ~(size_t)0x1fffff, __ATOMIC_RELAXED);
    return 0;
}
EXPORT int cuMemAddressReserve(uint64_t *address, size_t bytes, size_t alignment, uint64_t hint, uint64_t flags) {
    (void)alignment, (void)hint, (void)flags;
    return reserve(address, bytes);
}
EXPORT int cuMemAlloc_v2(uint64_t *address, size_t bytes) { return reserve(address, bytes); }
EXPORT int cuMemGetAllocationGranularity(size_t *bytes, const void *properties, int option) { (void)properties, (void)option; *bytes = 2 << 20; return 0; }
EXPORT int cuMemCreate(uint64_t *handle, size_t bytes, const void *properties, uint64_t flags) { (void)bytes, (void)properties, (void)flags; *handle = (uintptr_t)new_handle(); return 0; }
EXPORT int cuMemHostAlloc(void **pointer, size_t bytes, unsigned flags) {
    static char pinned[64 << 20];
    (void)flags;
    if (bytes > sizeof pinned) return 2;
    *pointer = pinned;
    return 0;
}

EXPORT int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                          unsigned shared, void *stream, void **parameters, void **extra) {
    (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)shared, (void)stream, (void)parameters, (void)extra;
    return function ? 0 : 400;
}

SUCCEED(cuCtxDestroy_v2) SUCCEED(cuCtxSynchronize) SUCCEED(cuCtxSetFlags) SUCCEED(cuMemFree_v2) SUCCEED(cuMemFreeHost)
SUCCEED(cuMemcpyHtoD_v2) SUCCEED(cuMemcpyDtoH_v2) SUCCEED(cuMemcpyHtoDAsync_v2) SUCCEED(cuMemcpyDtoHAsync_v2)
SUCCEED(cuMemcpyDtoD_v2) SUCCEED(cuMemsetD32_v2) SUCCEED(cuMemsetD8Async) SUCCEED(cuStreamDestroy_v2)
SUCCEED(cuStreamSynchronize) SUCCEED(cuStreamQuery) SUCCEED(cuStreamWaitEvent) SUCCEED(cuEventRecord)
SUCCEED(cuEventQuery) SUCCEED(cuEventSynchronize) SUCCEED(cuEventDestroy_v2) SUCCEED(cuLaunchHostFunc)
SUCCEED(cuStreamBeginCapture_v2) SUCCEED(cuStreamEndCapture) SUCCEED(cuGraphInstantiateWithFlags) SUCCEED(cuGraphLaunch)
SUCCEED(cuMemAddressFree) SUCCEED(cuMemMap) SUCCEED(cuMemUnmap) SUCCEED(cuMemRelease) SUCCEED(cuMemSetAccess)
SUCCEED(cuMemHostRegister_v2) SUCCEED(cuMemHostUnregister) SUCCEED(cuThreadExchangeStreamCaptureMode)
