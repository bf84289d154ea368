/* A libcuda.so.1 of a few functions, for tests of the shim's front: who gets which pointer, who
 * waits when. Work is a counter; a kernel's "function" says how it behaves. It checks nothing and
 * runs nothing; the simulated driver in tests/simulated-driver does. Build with -Wl,-Bsymbolic,
 * since the real one cannot be interposed from inside either.
 *
 * -DONLY_V1: without cuGetProcAddress_v2.   -DASKS_ITSELF: asks dlsym about itself when loaded. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int CUresult;
typedef void *CUcontext;
enum { SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_FOUND = 500 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int unfinished; /* kernels that wait for a signal kernel */
static int broken;     /* the error that sticks */
static int launches;   /* all launches, ever */
static _Thread_local CUcontext stack[8];
static _Thread_local int depth;
static int primary, destroyed;

int fake_launches(void) { return __atomic_load_n(&launches, __ATOMIC_SEQ_CST); }

CUresult cuInit(unsigned flags) { return flags ? INVALID_VALUE : SUCCESS; }
CUresult cuDriverGetVersion(int *version) { *version = 12040; return SUCCESS; }
CUresult cuDeviceGetCount(int *count) { *count = 1; return SUCCESS; }
CUresult cuDeviceGet(int *device, int ordinal) { *device = ordinal; return ordinal ? 101 : SUCCESS; }
CUresult cuDeviceGetName(char *name, int length, int device) { strncpy(name, "Fake", length); return SUCCESS; }
CUresult cuDeviceGetUuid_v2(char *uuid, int device) { memset(uuid, 7, 16); return SUCCESS; }
CUresult cuDeviceGetAttribute(int *value, int attribute, int device) { *value = 512; return SUCCESS; }
CUresult cuDeviceTotalMem_v2(size_t *bytes, int device) { *bytes = 1 << 30; return SUCCESS; }
CUresult cuMemGetInfo_v2(size_t *free, size_t *total) { *free = 1 << 29; *total = 1 << 30; return SUCCESS; }
CUresult cuMemGetAllocationGranularity(size_t *bytes, const void *properties, int option) { *bytes = 2 << 20; return SUCCESS; }
CUresult cuThreadExchangeStreamCaptureMode(int *mode) { return SUCCESS; }

CUresult cuCtxPushCurrent_v2(CUcontext context) { stack[++depth] = context; return SUCCESS; }
CUresult cuCtxPopCurrent_v2(CUcontext *context) { *context = stack[depth]; stack[depth--] = 0; return SUCCESS; }
CUresult cuCtxGetCurrent(CUcontext *context) { *context = stack[depth]; return SUCCESS; }
CUresult cuCtxGetDevice(int *device) { *device = 0; return stack[depth] ? SUCCESS : 201; }
CUresult cuCtxCreate_v2(CUcontext *context, unsigned flags, int device) { *context = malloc(1); return cuCtxPushCurrent_v2(*context); }
CUresult cuCtxDestroy_v2(CUcontext context) { destroyed++; stack[depth] = 0; return SUCCESS; }
CUresult cuDevicePrimaryCtxRetain(CUcontext *context, int device) { primary++; *context = (CUcontext)&primary; return SUCCESS; }
CUresult cuDevicePrimaryCtxRelease_v2(int device) { primary--; return SUCCESS; }
CUresult cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) { *flags = 0; *active = primary > 0; return SUCCESS; }

CUresult cuCtxSynchronize(void) {
    pthread_mutex_lock(&lock);
    while (unfinished) pthread_cond_wait(&changed, &lock);
    int result = broken;
    pthread_mutex_unlock(&lock);
    return result;
}

/* Kernel 0 is not even counted. Kernel 1 ends at once. Kernel 2 ends when a kernel 3 is launched after it.
 * Kernel 4 touches what it may not: everything ends, with an error that sticks. */
static CUresult launch(uintptr_t kernel) {
    if (!kernel) return SUCCESS;
    pthread_mutex_lock(&lock);
    launches++;
    if (kernel == 2) unfinished++;
    int result = broken;
    if (kernel == 3 || kernel == 4) unfinished = 0;
    if (kernel == 4) broken = 700;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    return result;
}

#define LAUNCH_ARGUMENTS void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, \
                         unsigned shared, void *stream, void **parameters, void **extra
/* The sum proves that every argument, also those on the stack, came through. */
CUresult cuLaunchKernel(LAUNCH_ARGUMENTS) {
    if (extra && gx + gy + gz + bx + by + bz + shared != 28) return INVALID_VALUE;
    return launch((uintptr_t)f);
}
CUresult cuLaunchKernel_ptsz(LAUNCH_ARGUMENTS) { return launch((uintptr_t)f); }
CUresult cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t bytes) { return launch(1); }
CUresult cuMemsetD8_v2(uint64_t to, unsigned char value, size_t count) { return launch(1); }
CUresult cuStreamSynchronize(void *stream) { return cuCtxSynchronize(); }
CUresult cuStreamQuery(void *stream) { return unfinished ? 600 : SUCCESS; }
CUresult cuEventRecord(void *event, void *stream) { return SUCCESS; }
CUresult cuStreamBeginCapture_v2(void *stream, int mode) { return SUCCESS; }
CUresult cuStreamEndCapture(void *stream, void **graph) { *graph = &primary; return SUCCESS; }
CUresult cuMemAlloc_v2(uint64_t *address, size_t bytes) { *address = 0x10000; return SUCCESS; }
CUresult cuMemFree_v2(uint64_t address) { return SUCCESS; }
/* Not handled by the shim yet. Answers only if its arguments came through. */
CUresult cuMemAllocAsync(uint64_t *address, size_t bytes, void *stream) {
    if (bytes != 4096 || stream != (void *)2) return INVALID_VALUE;
    *address = 0x20000;
    return SUCCESS;
}
/* Younger than the shim. */
CUresult cuNewThing(int value) { return value + 1; }
/* Fails until the third call, to see room being made. */
CUresult cuModuleLoadData(void **module, const void *image) {
    static int calls;
    *module = &primary;
    return ++calls < 3 ? OUT_OF_MEMORY : SUCCESS;
}

CUresult cuGetProcAddress(const char *symbol, void **pointer, int version, uint64_t flags);
#ifndef ONLY_V1
CUresult cuGetProcAddress_v2(const char *symbol, void **pointer, int version, uint64_t flags, int *status);
#endif

static void *find(const char *symbol, int version, uint64_t flags) {
    static const struct { const char *name; int from; uint64_t flags; void *pointer; } table[] = {
        {"cuInit", 2000, 0, cuInit},
        {"cuMemAlloc", 3020, 0, cuMemAlloc_v2},
        {"cuMemAllocAsync", 11020, 0, cuMemAllocAsync},
        {"cuLaunchKernel", 7000, 2, cuLaunchKernel_ptsz},
        {"cuLaunchKernel", 4000, 0, cuLaunchKernel},
        {"cuNewThing", 12000, 0, cuNewThing},
#ifndef ONLY_V1
        {"cuGetProcAddress", 12000, 0, cuGetProcAddress_v2},
#endif
        {"cuGetProcAddress", 11030, 0, cuGetProcAddress},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (!strcmp(table[i].name, symbol) && version >= table[i].from && (!table[i].flags || flags == table[i].flags))
            return table[i].pointer;
    return NULL;
}

CUresult cuGetProcAddress(const char *symbol, void **pointer, int version, uint64_t flags) {
    if (!symbol || !pointer) return INVALID_VALUE;
    *pointer = find(symbol, version, flags);
    return *pointer ? SUCCESS : NOT_FOUND;
}
#ifndef ONLY_V1
CUresult cuGetProcAddress_v2(const char *symbol, void **pointer, int version, uint64_t flags, int *status) {
    if (!symbol || !pointer) return INVALID_VALUE;
    *pointer = find(symbol, version, flags);
    if (status) *status = *pointer ? 0 : 1;
    return SUCCESS;
}
#endif

#ifdef ASKS_ITSELF
int fake_saw_itself;
__attribute__((constructor)) static void ask(void) {
    Dl_info own;
    dladdr((void *)ask, &own);
    void *self = dlopen(own.dli_fname, RTLD_NOLOAD | RTLD_LAZY);
    fake_saw_itself = self && dlsym(self, "cuInit") == (void *)cuInit;
}
#endif
