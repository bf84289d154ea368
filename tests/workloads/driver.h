/* The part of the CUDA driver API that the workloads use, reached by one of three roads:
 *   -DROAD_LINKED    the program is linked with libcuda.so.1
 *   -DROAD_ADDRESS   dlopen, then every function through cuGetProcAddress (as the CUDA runtime does)
 *   otherwise        dlopen, then dlsym of every function
 * Declared here in our own words so that nothing but gcc is needed. */
#ifndef TURNUS_WORKLOADS_DRIVER_H
#define TURNUS_WORKLOADS_DRIVER_H

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int Result;
typedef int Device;
typedef unsigned long long DevicePointer;
typedef struct Context_ *Context;
typedef struct Module_ *Module;
typedef struct Function_ *Function;
typedef struct Stream_ *Stream;
typedef struct Event_ *Event;
typedef struct Graph_ *Graph;
typedef struct GraphExec_ *GraphExec;
typedef void (*HostFunction)(void *data);

/* name used here, exported symbol, base name and version for cuGetProcAddress, parameters */
#define DRIVER_FUNCTIONS(F) \
    F(init, cuInit, "cuInit", 2000, (unsigned flags)) \
    F(device_count, cuDeviceGetCount, "cuDeviceGetCount", 2000, (int *count)) \
    F(device_get, cuDeviceGet, "cuDeviceGet", 2000, (Device *device, int ordinal)) \
    F(device_total, cuDeviceTotalMem_v2, "cuDeviceTotalMem", 3020, (size_t *bytes, Device device)) \
    F(context_create, cuCtxCreate_v2, "cuCtxCreate", 3020, (Context *context, unsigned flags, Device device)) \
    F(context_destroy, cuCtxDestroy_v2, "cuCtxDestroy", 4000, (Context context)) \
    F(context_set, cuCtxSetCurrent, "cuCtxSetCurrent", 4000, (Context context)) \
    F(context_synchronize, cuCtxSynchronize, "cuCtxSynchronize", 2000, (void)) \
    F(module_load, cuModuleLoadData, "cuModuleLoadData", 2000, (Module *module, const void *image)) \
    F(module_function, cuModuleGetFunction, "cuModuleGetFunction", 2000, (Function *function, Module module, const char *name)) \
    F(memory_info, cuMemGetInfo_v2, "cuMemGetInfo", 3020, (size_t *free_bytes, size_t *total_bytes)) \
    F(memory_alloc, cuMemAlloc_v2, "cuMemAlloc", 3020, (DevicePointer *pointer, size_t bytes)) \
    F(memory_free, cuMemFree_v2, "cuMemFree", 3020, (DevicePointer pointer)) \
    F(host_alloc, cuMemHostAlloc, "cuMemHostAlloc", 2020, (void **pointer, size_t bytes, unsigned flags)) \
    F(host_free, cuMemFreeHost, "cuMemFreeHost", 2000, (void *pointer)) \
    F(host_register, cuMemHostRegister_v2, "cuMemHostRegister", 6050, (void *pointer, size_t bytes, unsigned flags)) \
    F(host_unregister, cuMemHostUnregister, "cuMemHostUnregister", 4000, (void *pointer)) \
    F(host_device_pointer, cuMemHostGetDevicePointer_v2, "cuMemHostGetDevicePointer", 3020, (DevicePointer *device, void *pointer, unsigned flags)) \
    F(copy_to_device, cuMemcpyHtoD_v2, "cuMemcpyHtoD", 3020, (DevicePointer to, const void *from, size_t bytes)) \
    F(copy_to_host, cuMemcpyDtoH_v2, "cuMemcpyDtoH", 3020, (void *to, DevicePointer from, size_t bytes)) \
    F(copy_to_device_async, cuMemcpyHtoDAsync_v2, "cuMemcpyHtoDAsync", 3020, (DevicePointer to, const void *from, size_t bytes, Stream stream)) \
    F(copy_to_host_async, cuMemcpyDtoHAsync_v2, "cuMemcpyDtoHAsync", 3020, (void *to, DevicePointer from, size_t bytes, Stream stream)) \
    F(copy_within, cuMemcpyDtoD_v2, "cuMemcpyDtoD", 3020, (DevicePointer to, DevicePointer from, size_t bytes)) \
    F(copy_within_async, cuMemcpyDtoDAsync_v2, "cuMemcpyDtoDAsync", 3020, (DevicePointer to, DevicePointer from, size_t bytes, Stream stream)) \
    F(fill_bytes, cuMemsetD8_v2, "cuMemsetD8", 3020, (DevicePointer to, unsigned char value, size_t count)) \
    F(fill_words, cuMemsetD32_v2, "cuMemsetD32", 3020, (DevicePointer to, unsigned value, size_t count)) \
    F(stream_create, cuStreamCreate, "cuStreamCreate", 2000, (Stream *stream, unsigned flags)) \
    F(stream_destroy, cuStreamDestroy_v2, "cuStreamDestroy", 4000, (Stream stream)) \
    F(stream_synchronize, cuStreamSynchronize, "cuStreamSynchronize", 2000, (Stream stream)) \
    F(stream_query, cuStreamQuery, "cuStreamQuery", 2000, (Stream stream)) \
    F(stream_wait_event, cuStreamWaitEvent, "cuStreamWaitEvent", 3020, (Stream stream, Event event, unsigned flags)) \
    F(event_create, cuEventCreate, "cuEventCreate", 2000, (Event *event, unsigned flags)) \
    F(event_record, cuEventRecord, "cuEventRecord", 2000, (Event event, Stream stream)) \
    F(event_synchronize, cuEventSynchronize, "cuEventSynchronize", 2000, (Event event)) \
    F(event_destroy, cuEventDestroy_v2, "cuEventDestroy", 4000, (Event event)) \
    F(launch_host_function, cuLaunchHostFunc, "cuLaunchHostFunc", 10000, (Stream stream, HostFunction function, void *data)) \
    F(capture_begin, cuStreamBeginCapture_v2, "cuStreamBeginCapture", 10010, (Stream stream, int mode)) \
    F(capture_end, cuStreamEndCapture, "cuStreamEndCapture", 10000, (Stream stream, Graph *graph)) \
    F(graph_instantiate, cuGraphInstantiateWithFlags, "cuGraphInstantiateWithFlags", 11040, (GraphExec *exec, Graph graph, unsigned long long flags)) \
    F(graph_launch, cuGraphLaunch, "cuGraphLaunch", 10000, (GraphExec exec, Stream stream)) \
    F(graph_exec_destroy, cuGraphExecDestroy, "cuGraphExecDestroy", 10000, (GraphExec exec)) \
    F(graph_destroy, cuGraphDestroy, "cuGraphDestroy", 10000, (Graph graph)) \
    F(launch, cuLaunchKernel, "cuLaunchKernel", 4000, (Function function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes, Stream stream, void **parameters, void **extra))

#ifdef ROAD_LINKED
#define DECLARE(name, symbol, base, version, parameters) extern Result symbol parameters;
DRIVER_FUNCTIONS(DECLARE)
#undef DECLARE
#endif

#define DECLARE(name, symbol, base, version, parameters) Result (*name) parameters;
struct Driver { DRIVER_FUNCTIONS(DECLARE) };
#undef DECLARE
static struct Driver cu;
/* What dlopen gave; NULL if linked. */
__attribute__((unused)) static void *driver_library;

static void fail(const char *what, int code) {
    fprintf(stderr, "workload: %s failed with %d\n", what, code);
    exit(3);
}

/* Ends the program with code 3 at the first call that does not succeed. */
#define CHECK(call) do { int code_ = (call); if (code_) fail(#call, code_); } while (0)

/* A measuring program that uses few functions may run on a driver that has few: -DDRIVER_MAY_LACK. */
#ifdef DRIVER_MAY_LACK
#define LACKS(name) (void)0
#else
#define LACKS(name) fail(name, -1)
#endif

static void load_driver(void) {
#ifdef ROAD_LINKED
#define LOAD(name, symbol, base, version, parameters) cu.name = symbol;
#else
    void *library = driver_library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) { fprintf(stderr, "workload: %s\n", dlerror()); exit(2); }
#ifdef ROAD_ADDRESS
    Result (*address)(const char *, void **, int, uint64_t, int *);
    *(void **)&address = dlsym(library, "cuGetProcAddress_v2");
    if (!address) { fprintf(stderr, "workload: no cuGetProcAddress_v2\n"); exit(2); }
#define LOAD(name, symbol, base, version, parameters) \
    CHECK(address(base, (void **)&cu.name, version, 0, NULL)); if (!cu.name) LACKS(base);
#else
#define LOAD(name, symbol, base, version, parameters) \
    *(void **)&cu.name = dlsym(library, #symbol); if (!cu.name) LACKS(#symbol);
#endif
#endif
    DRIVER_FUNCTIONS(LOAD)
#undef LOAD
}

/* Driver, device and context of the ordinal, current on this thread. */
__attribute__((unused)) static Context open_device(int ordinal) {
    Device device;
    Context context;
    load_driver();
    CHECK(cu.init(0));
    CHECK(cu.device_get(&device, ordinal));
    CHECK(cu.context_create(&context, 0, device));
    return context;
}

#endif
