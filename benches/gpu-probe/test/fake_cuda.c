/*
 * A libcuda.so.1 for the tests of gpu-probe: memory of the host stands for the card's,
 * kernels named add, sum, fill, spin and watch run on the processor at once, the two
 * hash kernels and whatever is not here are missing or answer 801. Not a model of a
 * device: no times, no sharing between processes. Environment, each a function's name:
 * FAKE_HANG, FAKE_CRASH, FAKE_FAIL (999). FAKE_DEVICES, FAKE_CHECKPOINT: numbers.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "../driver.h"

#define CAPACITY ((size_t)2 << 30)
#define API __attribute__((visibility("default"))) CUresult

static size_t taken;
static volatile int locked; /* by a checkpoint of this very process */

static int named(const char *variable, const char *function)
{
	const char *name = getenv(variable);

	return name && strcmp(name, function) == 0;
}

static CUresult enter(const char *function)
{
	while (named("FAKE_HANG", function) || (locked && strncmp(function, "cuCheckpoint", 12) != 0))
		pause();
	if (named("FAKE_CRASH", function))
		abort();
	return named("FAKE_FAIL", function) ? 999 : CUDA_SUCCESS;
}

#define ENTER                                          \
	do {                                           \
		CUresult entered = enter(__func__);    \
		if (entered != CUDA_SUCCESS)           \
			return entered;                \
	} while (0)

static int number(const char *variable, int otherwise)
{
	return getenv(variable) ? atoi(getenv(variable)) : otherwise;
}

static void pause_ns(uint64_t ns)
{
	struct timespec time = {(time_t)(ns / 1000000000), (long)(ns % 1000000000)};

	nanosleep(&time, NULL);
}

/* Blocks of memory with their size, so that free knows it. */
static struct block { void *at; size_t size; } blocks[4096];

static CUresult take(void **at, size_t size)
{
	for (size_t i = 0; i < 4096; i++) {
		if (blocks[i].at)
			continue;
		if (taken + size > CAPACITY)
			return CUDA_ERROR_OUT_OF_MEMORY;
		*at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		blocks[i] = (struct block){*at, size};
		taken += size;
		return *at == MAP_FAILED ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
	}
	return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult give(void *at)
{
	for (size_t i = 0; i < 4096; i++) {
		if (!at || blocks[i].at != at)
			continue;
		munmap(at, blocks[i].size);
		taken -= blocks[i].size;
		blocks[i].at = NULL;
		return CUDA_SUCCESS;
	}
	return 1;
}

API cuInit(unsigned int flags) { ENTER; return flags ? 1 : 0; }
API cuDriverGetVersion(int *version) { ENTER; *version = 12090; return 0; }
API cuDeviceGetCount(int *count) { ENTER; *count = number("FAKE_DEVICES", 1); return 0; }
API cuDeviceGet(CUdevice *device, int index) { ENTER; *device = index; return 0; }
API cuDeviceGetName(char *name, int bytes, CUdevice device)
{
	ENTER;
	(void)device;
	strncpy(name, "Fake \"Card\" 1", (size_t)bytes);
	return 0;
}
API cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device) { ENTER; memset(uuid, 0xab + device, sizeof *uuid); return 0; }
API cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) { ENTER; (void)device; *bytes = CAPACITY; return 0; }
API cuDeviceGetAttribute(int *value, int attribute, CUdevice device)
{
	ENTER;
	(void)device;
	*value = 1;
	return attribute > 150 ? 1 : 0;
}
API cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device)
{
	ENTER;
	(void)flags;
	(void)device;
	return take((void **)context, 4096);
}
API cuCtxDestroy_v2(CUcontext context) { ENTER; return give(context); }
API cuCtxSetCurrent(CUcontext context) { ENTER; (void)context; return 0; }
API cuCtxSynchronize(void) { ENTER; return 0; }
API cuMemGetInfo_v2(size_t *unused, size_t *total) { ENTER; *unused = CAPACITY - taken; *total = CAPACITY; return 0; }
API cuMemAlloc_v2(CUdeviceptr *at, size_t size) { ENTER; return take((void **)at, size); }
API cuMemFree_v2(CUdeviceptr at) { ENTER; return give((void *)at); }
API cuMemAllocManaged(CUdeviceptr *at, size_t size, unsigned int flags) { ENTER; (void)flags; return take((void **)at, size); }
API cuMemPrefetchAsync(CUdeviceptr at, size_t size, CUdevice to, CUstream stream) { ENTER; (void)at, (void)size, (void)to, (void)stream; return 0; }
API cuMemHostAlloc(void **at, size_t size, unsigned int flags) { ENTER; (void)flags; return take(at, size); }
API cuMemFreeHost(void *at) { ENTER; return give(at); }
API cuMemHostRegister_v2(void *at, size_t size, unsigned int flags) { ENTER; (void)size, (void)flags; return at ? 0 : 1; }
API cuMemHostUnregister(void *at) { ENTER; return at ? 0 : 1; }

/* Frames: a memfd a handle; a mapping without access cannot be touched, as on a card. */
API cuMemGetAllocationGranularity(size_t *bytes, const CUmemAllocationProp *p, int option) { ENTER; (void)p, (void)option; *bytes = 2 << 20; return 0; }
API cuMemAddressReserve(CUdeviceptr *at, size_t size, size_t alignment, CUdeviceptr wish, unsigned long long flags)
{
	ENTER;
	(void)alignment, (void)wish, (void)flags;
	*at = (CUdeviceptr)mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	return 0;
}
API cuMemAddressFree(CUdeviceptr at, size_t size) { ENTER; return munmap((void *)at, size) ? 1 : 0; }
API cuMemCreate(CUmemHandle *handle, size_t size, const CUmemAllocationProp *properties, unsigned long long flags)
{
	ENTER;
	if (properties->type != ALLOCATION_PINNED || properties->location.type != LOCATION_DEVICE || flags ||
	    size % (2 << 20))
		return 1;
	int fd = taken + size > CAPACITY ? -1 : memfd_create("frames", MFD_CLOEXEC);
	if (fd < 0 || ftruncate(fd, (off_t)size) != 0)
		return CUDA_ERROR_OUT_OF_MEMORY;
	taken += size;
	*handle = (CUmemHandle)fd << 40 | size;
	return 0;
}
API cuMemRelease(CUmemHandle handle) { ENTER; taken -= handle & ((1ull << 40) - 1); return close((int)(handle >> 40)) ? 1 : 0; }
API cuMemMap(CUdeviceptr at, size_t size, size_t offset, CUmemHandle handle, unsigned long long flags)
{
	ENTER;
	if (offset || flags)
		return 1;
	return mmap((void *)at, size, PROT_NONE, MAP_SHARED | MAP_FIXED, (int)(handle >> 40), 0) == MAP_FAILED;
}
API cuMemUnmap(CUdeviceptr at, size_t size)
{
	ENTER;
	return mmap((void *)at, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED;
}
API cuMemSetAccess(CUdeviceptr at, size_t size, const CUmemAccessDesc *access, size_t count)
{
	ENTER;
	return count != 1 || access->flags != ACCESS_READ_WRITE ||
	       mprotect((void *)at, size, PROT_READ | PROT_WRITE) != 0;
}
API cuPointerGetAttribute(void *value, int attribute, CUdeviceptr at)
{
	ENTER;
	memcpy(value, &at, attribute == 3 ? 8 : 4);
	return attribute > 20 ? 1 : 0;
}

/* Work is done at once, or kept for the graph while a capture is open. */
struct work { char kernel[16]; uint64_t p[3]; };
static struct work captured[8];
static int capturing, captured_count;

static CUresult perform(const struct work *w)
{
	uint64_t *words = (uint64_t *)w->p[0], *out = (uint64_t *)w->p[2];

	if (capturing) {
		captured[captured_count++] = *w;
		return 0;
	}
	if (strcmp(w->kernel, "copy") == 0)
		memcpy((void *)w->p[0], (void *)w->p[1], w->p[2]);
	else if (strcmp(w->kernel, "set") == 0)
		for (uint64_t i = 0; i < w->p[1]; i++)
			((uint32_t *)words)[i] = (uint32_t)w->p[2];
	else if (strcmp(w->kernel, "add") == 0)
		for (uint64_t i = 0; i < w->p[1]; i++)
			((uint32_t *)words)[i] += (uint32_t)w->p[2];
	else if (strcmp(w->kernel, "fill") == 0)
		for (uint64_t i = 0; i < w->p[1]; i++)
			words[i] = i * 0x9e3779b97f4a7c15ull + w->p[2];
	else if (strcmp(w->kernel, "sum") == 0)
		for (uint64_t i = 0; i < w->p[1]; i++)
			*out += words[i];
	else if (strcmp(w->kernel, "spin") == 0)
		pause_ns(w->p[0]);
	else if (strcmp(w->kernel, "watch") == 0)
		pause_ns(w->p[1]);
	else
		return 801;
	return 0;
}
static CUresult copy(uint64_t to, uint64_t from, size_t bytes)
{
	struct work w = {"copy", {to, from, bytes}};

	return perform(&w);
}
API cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes) { ENTER; return copy(to, (uint64_t)from, bytes); }
API cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes) { ENTER; return copy((uint64_t)to, from, bytes); }
API cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream s) { ENTER; (void)s; return copy(to, (uint64_t)from, bytes); }
API cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream s) { ENTER; (void)s; return copy((uint64_t)to, from, bytes); }
API cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream s) { ENTER; (void)s; return copy(to, from, bytes); }
API cuMemsetD32Async(CUdeviceptr at, unsigned int value, size_t words, CUstream s)
{
	struct work w = {"set", {at, words, value}};

	ENTER;
	(void)s;
	return perform(&w);
}
API cuModuleLoadData(CUmodule *module, const void *image) { ENTER; *module = (CUmodule)1; return strstr(image, ".entry fill") ? 0 : 218; }
API cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) { ENTER; (void)module; *function = (CUfunction)strdup(name); return 0; }
API cuLaunchKernel(CUfunction f, unsigned int x, unsigned int y, unsigned int z, unsigned int a, unsigned int b,
		   unsigned int c, unsigned int shared, CUstream stream, void **p, void **extra)
{
	struct work w = {"", {0}};
	int spin = strcmp((char *)f, "spin") == 0, watch = strcmp((char *)f, "watch") == 0;

	ENTER;
	(void)x, (void)y, (void)z, (void)a, (void)b, (void)c, (void)shared, (void)stream, (void)extra;
	strncpy(w.kernel, (char *)f, sizeof w.kernel - 1);
	for (int i = 0; i < (spin ? 1 : watch ? 2 : 3); i++)
		w.p[i] = *(uint64_t *)p[i];
	return perform(&w);
}
API cuStreamCreate(CUstream *stream, unsigned int flags) { ENTER; (void)flags; *stream = (CUstream)1; return 0; }
API cuStreamSynchronize(CUstream stream) { ENTER; (void)stream; return 0; }
API cuStreamQuery(CUstream stream) { ENTER; (void)stream; return 0; }
API cuStreamBeginCapture_v2(CUstream stream, int mode) { ENTER; (void)stream, (void)mode; capturing = 1; return 0; }
API cuStreamEndCapture(CUstream stream, CUgraph *graph) { ENTER; (void)stream; capturing = 0; *graph = (CUgraph)1; return 0; }
API cuGraphInstantiateWithFlags(CUgraphExec *e, CUgraph graph, unsigned long long flags) { ENTER; (void)flags; *e = (CUgraphExec)graph; return 0; }
API cuGraphLaunch(CUgraphExec e, CUstream stream)
{
	CUresult result = 0;

	ENTER;
	(void)e, (void)stream;
	for (int i = 0; i < captured_count && !result; i++)
		result = perform(&captured[i]);
	return result;
}
API cuEventCreate(CUevent *event, unsigned int flags) { ENTER; (void)flags; *event = (CUevent)calloc(1, sizeof(struct timespec)); return 0; }
API cuEventRecord(CUevent event, CUstream stream) { ENTER; (void)stream; return clock_gettime(CLOCK_MONOTONIC, (struct timespec *)event); }
API cuEventQuery(CUevent event) { ENTER; (void)event; return 0; }
API cuEventSynchronize(CUevent event) { ENTER; (void)event; return 0; }
API cuEventElapsedTime(float *ms, CUevent begin, CUevent end)
{
	struct timespec *b = (struct timespec *)begin, *e = (struct timespec *)end;

	ENTER;
	*ms = (float)(e->tv_sec - b->tv_sec) * 1e3f + (float)(e->tv_nsec - b->tv_nsec) / 1e6f;
	return 0;
}
API cuGetProcAddress_v2(const char *name, void **pointer, int version, uint64_t flags, int *status)
{
	ENTER;
	(void)version, (void)flags;
	*pointer = strcmp(name, "cuInit") == 0 ? (char *)cuInit + 1 : dlsym(RTLD_DEFAULT, name);
	*status = !*pointer;
	return *pointer ? 0 : 500;
}
static CUresult checkpoint(int pid) { return pid > 0 && number("FAKE_CHECKPOINT", 0) ? 0 : 801; }
API cuCheckpointProcessGetState(int pid, int *state) { ENTER; *state = 0; return checkpoint(pid); }
API cuCheckpointProcessLock(int pid, CUcheckpointLockArgs *a) { ENTER; locked = pid == getpid() && checkpoint(pid) == 0; return a->timeoutMs ? checkpoint(pid) : 1; }
API cuCheckpointProcessCheckpoint(int pid, CUcheckpointCheckpointArgs *a) { ENTER; return a->customStorageInfo_out ? 1 : checkpoint(pid); }
API cuCheckpointProcessRestore(int pid, CUcheckpointRestoreArgs *a) { ENTER; return a->gpuPairs ? 1 : checkpoint(pid); }
API cuCheckpointProcessUnlock(int pid, CUcheckpointUnlockArgs *a) { ENTER; locked = 0; return a->reserved[0] ? 1 : checkpoint(pid); }
