/*
 * The part of the CUDA driver API that the probe calls, declared here so that no
 * CUDA header is needed to build it. Layouts and numbers were compared with cuda.h
 * of CUDA 13.5 (nvidia-cuda-runtime 13.5.37); the _Static_asserts below hold what
 * was compared. All calls go through CU(), which answers CU_MISSING when the driver
 * at hand lacks the function. Read driver.c for how the functions are found.
 */
#ifndef PROBE_DRIVER_H
#define PROBE_DRIVER_H

#include <stddef.h>
#include <stdint.h>

typedef int CUresult; /* an enum in cuda.h, of the same size */
typedef int CUdevice;
typedef uint64_t CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphExec_st *CUgraphExec;
typedef unsigned long long CUmemHandle; /* CUmemGenericAllocationHandle */

enum { CU_MISSING = -1 }; /* ours: the driver has no such function */
enum { CUDA_SUCCESS = 0, CUDA_ERROR_OUT_OF_MEMORY = 2, CUDA_ERROR_NOT_READY = 600 };
enum { LOCATION_DEVICE = 1 };
enum { ALLOCATION_PINNED = 1 };
enum { HANDLE_NONE = 0, HANDLE_POSIX_FD = 1 };
enum { ACCESS_READ_WRITE = 3 };
enum { GRANULARITY_MINIMUM = 0, GRANULARITY_RECOMMENDED = 1 };
enum { STREAM_NON_BLOCKING = 1 };
enum { EVENT_DEFAULT = 0 };
enum { CAPTURE_THREAD_LOCAL = 1 };
enum { ATTACH_GLOBAL = 1 };
enum { HOST_ALLOC_PORTABLE = 1, HOST_REGISTER_PORTABLE = 1 };
enum { RANGE_HANDLE_DMA_BUF = 1, RANGE_FLAG_PCIE = 1 };
enum { DEVICE_CPU = -1 }; /* CU_DEVICE_CPU, for the first version of cuMemPrefetchAsync */
enum {
	ATTRIBUTE_MULTIPROCESSORS = 16,
	ATTRIBUTE_ASYNC_ENGINES = 40,
	ATTRIBUTE_CC_MAJOR = 75,
	ATTRIBUTE_CC_MINOR = 76,
	ATTRIBUTE_CONCURRENT_MANAGED = 89,
	ATTRIBUTE_VMM = 102,
	ATTRIBUTE_RDMA_WITH_VMM = 110,
	ATTRIBUTE_RDMA = 116,
	ATTRIBUTE_DMA_BUF = 124,
	ATTRIBUTE_HOST_NUMA_ID = 134,
	ATTRIBUTE_HOST_NUMA_VMM = 141,
	ATTRIBUTE_HOST_VMM = 145
};

typedef struct { unsigned char bytes[16]; } CUuuid;
typedef struct { char reserved[64]; } CUipcMemHandle;

typedef struct {
	int type; /* CUmemLocationType */
	int id;
} CUmemLocation;

typedef struct {
	int type; /* CUmemAllocationType */
	int requestedHandleTypes;
	CUmemLocation location;
	void *win32HandleMetaData;
	struct {
		unsigned char compressionType;
		unsigned char gpuDirectRDMACapable;
		unsigned short usage;
		unsigned char reserved[4];
	} allocFlags;
} CUmemAllocationProp;

typedef struct {
	CUmemLocation location;
	int flags; /* CUmemAccess_flags */
} CUmemAccessDesc;

typedef struct {
	unsigned int timeoutMs;
	unsigned int reserved0;
	uint64_t reserved1[7];
} CUcheckpointLockArgs;

typedef struct {
	void *customStorageInfo_out; /* in the reserved bytes before CUDA 13.4 */
	char reserved[64 - sizeof(void *)];
} CUcheckpointCheckpointArgs;

typedef struct {
	void *gpuPairs;
	unsigned int gpuPairsCount;
	unsigned int padding0;
	void *customStorageInfo_out;
	char reserved[64 - sizeof(void *) - 2 * sizeof(unsigned int) - sizeof(void *)];
} CUcheckpointRestoreArgs;

typedef struct { uint64_t reserved[8]; } CUcheckpointUnlockArgs;

_Static_assert(sizeof(void *) == 8, "the probe is for 64-bit hosts");
_Static_assert(sizeof(CUmemLocation) == 8, "CUmemLocation_v1");
_Static_assert(sizeof(CUmemAllocationProp) == 32, "CUmemAllocationProp_v1");
_Static_assert(offsetof(CUmemAllocationProp, location) == 8, "location");
_Static_assert(offsetof(CUmemAllocationProp, win32HandleMetaData) == 16, "metadata");
_Static_assert(offsetof(CUmemAllocationProp, allocFlags) == 24, "flags");
_Static_assert(offsetof(CUmemAllocationProp, allocFlags.gpuDirectRDMACapable) == 25, "rdma");
_Static_assert(sizeof(CUmemAccessDesc) == 12, "CUmemAccessDesc_v1");
_Static_assert(sizeof(CUcheckpointLockArgs) == 64, "CUcheckpointLockArgs");
_Static_assert(sizeof(CUcheckpointCheckpointArgs) == 64, "CUcheckpointCheckpointArgs");
_Static_assert(offsetof(CUcheckpointRestoreArgs, customStorageInfo_out) == 16, "storage");
/* The reserved bytes are what two pointers and two words leave of 64. */
_Static_assert(sizeof(CUcheckpointRestoreArgs) == 64, "CUcheckpointRestoreArgs");
_Static_assert(sizeof(CUcheckpointUnlockArgs) == 64, "CUcheckpointUnlockArgs");
_Static_assert(sizeof(CUuuid) == 16 && sizeof(CUipcMemHandle) == 64, "CUuuid, CUipcMemHandle");

/*
 * X(field, exported symbol, parameters). The symbol is the ABI that the parameters
 * describe: cuMemPrefetchAsync without a suffix takes a CUdevice in every driver,
 * whatever the current header calls by that name.
 */
#define DRIVER_FUNCTIONS(X) \
	X(cuInit, "cuInit", (unsigned int)) \
	X(cuDriverGetVersion, "cuDriverGetVersion", (int *)) \
	X(cuGetErrorName, "cuGetErrorName", (CUresult, const char **)) \
	X(cuDeviceGetCount, "cuDeviceGetCount", (int *)) \
	X(cuDeviceGet, "cuDeviceGet", (CUdevice *, int)) \
	X(cuDeviceGetName, "cuDeviceGetName", (char *, int, CUdevice)) \
	X(cuDeviceGetUuid, "cuDeviceGetUuid", (CUuuid *, CUdevice)) \
	X(cuDeviceGetUuid_v2, "cuDeviceGetUuid_v2", (CUuuid *, CUdevice)) \
	X(cuDeviceTotalMem, "cuDeviceTotalMem_v2", (size_t *, CUdevice)) \
	X(cuDeviceGetAttribute, "cuDeviceGetAttribute", (int *, int, CUdevice)) \
	X(cuDeviceGetPCIBusId, "cuDeviceGetPCIBusId", (char *, int, CUdevice)) \
	X(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", (CUcontext *, CUdevice)) \
	X(cuDevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2", (CUdevice)) \
	X(cuCtxCreate, "cuCtxCreate_v2", (CUcontext *, unsigned int, CUdevice)) \
	X(cuCtxDestroy, "cuCtxDestroy_v2", (CUcontext)) \
	X(cuCtxSetCurrent, "cuCtxSetCurrent", (CUcontext)) \
	X(cuCtxSynchronize, "cuCtxSynchronize", (void)) \
	X(cuModuleLoadData, "cuModuleLoadData", (CUmodule *, const void *)) \
	X(cuModuleGetFunction, "cuModuleGetFunction", (CUfunction *, CUmodule, const char *)) \
	X(cuModuleUnload, "cuModuleUnload", (CUmodule)) \
	X(cuLaunchKernel, "cuLaunchKernel", (CUfunction, unsigned int, unsigned int, unsigned int, \
		unsigned int, unsigned int, unsigned int, unsigned int, CUstream, void **, void **)) \
	X(cuMemGetInfo, "cuMemGetInfo_v2", (size_t *, size_t *)) \
	X(cuMemAlloc, "cuMemAlloc_v2", (CUdeviceptr *, size_t)) \
	X(cuMemFree, "cuMemFree_v2", (CUdeviceptr)) \
	X(cuMemAllocAsync, "cuMemAllocAsync", (CUdeviceptr *, size_t, CUstream)) \
	X(cuMemFreeAsync, "cuMemFreeAsync", (CUdeviceptr, CUstream)) \
	X(cuMemAllocManaged, "cuMemAllocManaged", (CUdeviceptr *, size_t, unsigned int)) \
	X(cuMemPrefetchAsync, "cuMemPrefetchAsync", (CUdeviceptr, size_t, CUdevice, CUstream)) \
	X(cuMemHostAlloc, "cuMemHostAlloc", (void **, size_t, unsigned int)) \
	X(cuMemFreeHost, "cuMemFreeHost", (void *)) \
	X(cuMemHostRegister, "cuMemHostRegister_v2", (void *, size_t, unsigned int)) \
	X(cuMemHostUnregister, "cuMemHostUnregister", (void *)) \
	X(cuMemHostGetDevicePointer, "cuMemHostGetDevicePointer_v2", (CUdeviceptr *, void *, unsigned int)) \
	X(cuMemcpyHtoD, "cuMemcpyHtoD_v2", (CUdeviceptr, const void *, size_t)) \
	X(cuMemcpyDtoH, "cuMemcpyDtoH_v2", (void *, CUdeviceptr, size_t)) \
	X(cuMemcpyHtoDAsync, "cuMemcpyHtoDAsync_v2", (CUdeviceptr, const void *, size_t, CUstream)) \
	X(cuMemcpyDtoHAsync, "cuMemcpyDtoHAsync_v2", (void *, CUdeviceptr, size_t, CUstream)) \
	X(cuMemcpyDtoDAsync, "cuMemcpyDtoDAsync_v2", (CUdeviceptr, CUdeviceptr, size_t, CUstream)) \
	X(cuMemsetD32Async, "cuMemsetD32Async", (CUdeviceptr, unsigned int, size_t, CUstream)) \
	X(cuMemGetAllocationGranularity, "cuMemGetAllocationGranularity", \
		(size_t *, const CUmemAllocationProp *, int)) \
	X(cuMemAddressReserve, "cuMemAddressReserve", \
		(CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long)) \
	X(cuMemAddressFree, "cuMemAddressFree", (CUdeviceptr, size_t)) \
	X(cuMemCreate, "cuMemCreate", \
		(CUmemHandle *, size_t, const CUmemAllocationProp *, unsigned long long)) \
	X(cuMemRelease, "cuMemRelease", (CUmemHandle)) \
	X(cuMemMap, "cuMemMap", (CUdeviceptr, size_t, size_t, CUmemHandle, unsigned long long)) \
	X(cuMemUnmap, "cuMemUnmap", (CUdeviceptr, size_t)) \
	X(cuMemSetAccess, "cuMemSetAccess", (CUdeviceptr, size_t, const CUmemAccessDesc *, size_t)) \
	X(cuMemRetainAllocationHandle, "cuMemRetainAllocationHandle", (CUmemHandle *, void *)) \
	X(cuMemExportToShareableHandle, "cuMemExportToShareableHandle", \
		(void *, CUmemHandle, int, unsigned long long)) \
	X(cuMemGetHandleForAddressRange, "cuMemGetHandleForAddressRange", \
		(void *, CUdeviceptr, size_t, int, unsigned long long)) \
	X(cuMemGetAddressRange, "cuMemGetAddressRange_v2", (CUdeviceptr *, size_t *, CUdeviceptr)) \
	X(cuPointerGetAttribute, "cuPointerGetAttribute", (void *, int, CUdeviceptr)) \
	X(cuIpcGetMemHandle, "cuIpcGetMemHandle", (CUipcMemHandle *, CUdeviceptr)) \
	X(cuStreamCreate, "cuStreamCreate", (CUstream *, unsigned int)) \
	X(cuStreamDestroy, "cuStreamDestroy_v2", (CUstream)) \
	X(cuStreamSynchronize, "cuStreamSynchronize", (CUstream)) \
	X(cuStreamQuery, "cuStreamQuery", (CUstream)) \
	X(cuStreamBeginCapture, "cuStreamBeginCapture_v2", (CUstream, int)) \
	X(cuStreamEndCapture, "cuStreamEndCapture", (CUstream, CUgraph *)) \
	X(cuGraphInstantiate, "cuGraphInstantiateWithFlags", (CUgraphExec *, CUgraph, unsigned long long)) \
	X(cuGraphLaunch, "cuGraphLaunch", (CUgraphExec, CUstream)) \
	X(cuGraphExecDestroy, "cuGraphExecDestroy", (CUgraphExec)) \
	X(cuGraphDestroy, "cuGraphDestroy", (CUgraph)) \
	X(cuEventCreate, "cuEventCreate", (CUevent *, unsigned int)) \
	X(cuEventRecord, "cuEventRecord", (CUevent, CUstream)) \
	X(cuEventQuery, "cuEventQuery", (CUevent)) \
	X(cuEventSynchronize, "cuEventSynchronize", (CUevent)) \
	X(cuEventElapsedTime, "cuEventElapsedTime", (float *, CUevent, CUevent)) \
	X(cuEventDestroy, "cuEventDestroy_v2", (CUevent)) \
	X(cuGetProcAddress, "cuGetProcAddress", (const char *, void **, int, uint64_t)) \
	X(cuGetProcAddress_v2, "cuGetProcAddress_v2", (const char *, void **, int, uint64_t, int *)) \
	X(cuCheckpointProcessGetState, "cuCheckpointProcessGetState", (int, int *)) \
	X(cuCheckpointProcessGetRestoreThreadId, "cuCheckpointProcessGetRestoreThreadId", (int, int *)) \
	X(cuCheckpointProcessLock, "cuCheckpointProcessLock", (int, CUcheckpointLockArgs *)) \
	X(cuCheckpointProcessCheckpoint, "cuCheckpointProcessCheckpoint", \
		(int, CUcheckpointCheckpointArgs *)) \
	X(cuCheckpointProcessRestore, "cuCheckpointProcessRestore", (int, CUcheckpointRestoreArgs *)) \
	X(cuCheckpointProcessUnlock, "cuCheckpointProcessUnlock", (int, CUcheckpointUnlockArgs *))

struct driver {
#define DRIVER_FIELD(field, symbol, parameters) CUresult(*field) parameters;
	DRIVER_FUNCTIONS(DRIVER_FIELD)
#undef DRIVER_FIELD
	void *library;
};

extern struct driver driver;

/* Calls a driver function, or answers CU_MISSING. */
#define CU(function, ...) (driver.function ? driver.function(__VA_ARGS__) : CU_MISSING)

/* Calls a driver function; if it fails, records the call and the result. True on success. */
#define TRY(where, function, ...) driver_check(CU(function, __VA_ARGS__), #function, where)

/* Opens libcuda.so.1 (LD_LIBRARY_PATH counts); the reason of a failure, or NULL. */
const char *driver_open(void);

/* The name of a result, from the driver where it has one. Never NULL. */
const char *driver_result_name(CUresult result);

/* Records a failed call as an "error" record; true if the result is success. */
int driver_check(CUresult result, const char *call, const char *where);

/* An attribute of a device, or -1. */
int driver_attribute(int attribute, CUdevice device);

#endif
