/* The CUDA runtime 10.2 as `runtime.c` uses it, declared by hand, and what a compiler would add to the program:
 * a fat binary with the PTX of three kernels and a variable, registered before main as nvcc's code does. */
#ifndef TURNUS_WORKLOADS_RUNTIME_H
#define TURNUS_WORKLOADS_RUNTIME_H

#include <stddef.h>
#include <stdint.h>

typedef int Status;
typedef struct stream *Stream;
typedef struct event *Event;
typedef struct graph *Graph;
typedef struct executable *Executable;
typedef struct { unsigned x, y, z; } Dim3;
enum { TO_DEVICE = 1, TO_HOST = 2, BETWEEN_DEVICES = 3, NOT_BLOCKING = 1, GLOBAL_CAPTURE = 0 };
enum { INVALID_VALUE = 1, OUT_OF_MEMORY = 2, INVALID_DEVICE_FUNCTION = 98, NOT_READY = 600 };
/* Sizes by what they begin with; the rest of each is room. */
struct Properties { char name[256]; char rest[4096]; };
struct Attributes { size_t shared, constant, local; int threads_max, registers; char rest[256]; };
struct Pointer { int kind_before, kind, device; void *on_device, *on_host; char rest[64]; };

const char *cudaGetErrorName(Status status);
Status cudaDriverGetVersion(int *version);
Status cudaRuntimeGetVersion(int *version);
Status cudaGetDeviceCount(int *count);
Status cudaGetDeviceProperties(struct Properties *properties, int device);
Status cudaGetDevice(int *device);
Status cudaSetDevice(int device);
Status cudaDeviceSynchronize(void);
Status cudaDeviceReset(void);
Status cudaGetLastError(void);
Status cudaMemGetInfo(size_t *available, size_t *total);
Status cudaMalloc(void *pointer, size_t bytes);
Status cudaMallocHost(void *pointer, size_t bytes);
Status cudaMallocManaged(void *pointer, size_t bytes, unsigned flags);
Status cudaMallocPitch(void *pointer, size_t *pitch, size_t width, size_t height);
Status cudaFree(void *pointer);
Status cudaFreeHost(void *pointer);
Status cudaMemset(void *pointer, int value, size_t bytes);
Status cudaMemcpy(void *to, const void *from, size_t bytes, int way);
Status cudaMemcpyAsync(void *to, const void *from, size_t bytes, int way, Stream stream);
Status cudaMemcpy2D(void *to, size_t pitch, const void *from, size_t from_pitch, size_t width, size_t height, int way);
Status cudaMemcpyToSymbol(const void *symbol, const void *from, size_t bytes, size_t offset, int way);
Status cudaMemcpyFromSymbol(void *to, const void *symbol, size_t bytes, size_t offset, int way);
Status cudaPointerGetAttributes(struct Pointer *attributes, const void *pointer);
Status cudaStreamCreateWithFlags(Stream *stream, unsigned flags);
Status cudaStreamSynchronize(Stream stream);
Status cudaStreamWaitEvent(Stream stream, Event event, unsigned flags);
Status cudaStreamDestroy(Stream stream);
Status cudaStreamBeginCapture(Stream stream, int mode);
Status cudaStreamEndCapture(Stream stream, Graph *graph);
Status cudaLaunchHostFunc(Stream stream, void (*function)(void *), void *argument);
Status cudaGraphInstantiate(Executable *executable, Graph graph, void *node, char *log, size_t room);
Status cudaGraphLaunch(Executable executable, Stream stream);
Status cudaGraphExecDestroy(Executable executable);
Status cudaGraphDestroy(Graph graph);
Status cudaEventCreate(Event *event);
Status cudaEventRecord(Event event, Stream stream);
Status cudaEventSynchronize(Event event);
Status cudaEventElapsedTime(float *ms, Event from, Event to);
Status cudaEventDestroy(Event event);
Status cudaFuncGetAttributes(struct Attributes *attributes, const void *function);
Status cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *function, int threads, size_t shared);
Status cudaLaunchKernel(const void *function, Dim3 grid, Dim3 block, void **parameters, size_t shared, Stream stream);
void **__cudaRegisterFatBinary(const void *wrapper);
void __cudaRegisterFatBinaryEnd(void **handle);
void __cudaUnregisterFatBinary(void **handle);
void __cudaRegisterFunction(void **handle, const void *host, char *name, const char *same, int limit, void *, void *,
                            void *, void *, int *);
void __cudaRegisterVar(void **handle, void *host, char *name, const char *same, int external, size_t bytes,
                       int constant, int global);

static const char ptx[] =
    ".version 6.0\n.target sm_50\n.address_size 64\n"
    ".visible .global .align 4 .f32 factor;\n"
    /* saxpy(x, y, count): y = factor * x + y */
    ".visible .entry saxpy(.param .u64 x, .param .u64 y, .param .u32 count)\n{\n"
    ".reg .pred %p<2>; .reg .b32 %r<6>; .reg .f32 %f<5>; .reg .b64 %rd<8>;\n"
    "ld.param.u64 %rd1, [x]; cvta.to.global.u64 %rd2, %rd1;\n"
    "ld.param.u64 %rd3, [y]; cvta.to.global.u64 %rd4, %rd3; ld.param.u32 %r1, [count];\n"
    "mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x; mad.lo.u32 %r5, %r2, %r3, %r4;\n"
    "setp.ge.u32 %p1, %r5, %r1; @%p1 bra DONE;\n"
    "mul.wide.u32 %rd5, %r5, 4; add.u64 %rd6, %rd2, %rd5; add.u64 %rd7, %rd4, %rd5;\n"
    "ld.global.f32 %f1, [%rd6]; ld.global.f32 %f2, [%rd7]; ld.global.f32 %f3, [factor];\n"
    "fma.rn.f32 %f4, %f3, %f1, %f2; st.global.f32 [%rd7], %f4;\nDONE:\nret;\n}\n"
    /* add(words, count, step): words += step */
    ".visible .entry add(.param .u64 words, .param .u32 count, .param .u32 step)\n{\n"
    ".reg .pred %p<2>; .reg .b32 %r<8>; .reg .b64 %rd<5>;\n"
    "ld.param.u64 %rd1, [words]; cvta.to.global.u64 %rd2, %rd1; ld.param.u32 %r1, [count];\n"
    "mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x; mad.lo.u32 %r5, %r2, %r3, %r4;\n"
    "setp.ge.u32 %p1, %r5, %r1; @%p1 bra DONE;\n"
    "mul.wide.u32 %rd3, %r5, 4; add.u64 %rd4, %rd2, %rd3; ld.param.u32 %r6, [step];\n"
    "ld.global.u32 %r7, [%rd4]; add.u32 %r7, %r7, %r6; st.global.u32 [%rd4], %r7;\nDONE:\nret;\n}\n"
    /* sum(words, out): of one block's words by shared memory, added to *out */
    ".visible .entry sum(.param .u64 words, .param .u64 out)\n{\n"
    ".reg .pred %p<3>; .reg .b32 %r<12>; .reg .b64 %rd<6>; .shared .align 4 .b8 part[1024];\n"
    "ld.param.u64 %rd1, [words]; cvta.to.global.u64 %rd2, %rd1; ld.param.u64 %rd3, [out];\n"
    "mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x; mad.lo.u32 %r4, %r1, %r2, %r3;\n"
    "mul.wide.u32 %rd4, %r4, 4; add.u64 %rd5, %rd2, %rd4; ld.global.u32 %r5, [%rd5];\n"
    "mov.u32 %r6, part; shl.b32 %r7, %r3, 2; add.u32 %r8, %r6, %r7; st.shared.u32 [%r8], %r5;\n"
    "shr.u32 %r9, %r2, 1;\n"
    "AGAIN:\nbar.sync 0; setp.ge.u32 %p1, %r3, %r9; @%p1 bra NEXT;\n"
    "shl.b32 %r10, %r9, 2; add.u32 %r10, %r8, %r10; ld.shared.u32 %r11, [%r10];\n"
    "ld.shared.u32 %r5, [%r8]; add.u32 %r5, %r5, %r11; st.shared.u32 [%r8], %r5;\n"
    "NEXT:\nshr.u32 %r9, %r9, 1; setp.ne.u32 %p2, %r9, 0; @%p2 bra AGAIN;\n"
    "setp.ne.u32 %p1, %r3, 0; @%p1 bra DONE;\n"
    "cvta.to.global.u64 %rd4, %rd3; ld.shared.u32 %r5, [%r6]; red.global.add.u32 [%rd4], %r5;\nDONE:\nret;\n}\n";

enum { PAYLOAD_BYTES = (sizeof ptx + 7) / 8 * 8 };
struct Entry { uint16_t kind, version; uint32_t header_bytes; uint64_t payload_bytes; uint32_t packed, reserved;
               uint16_t minor, major; uint32_t architecture, name[2]; uint64_t flags, more, unpacked; };
static struct { uint32_t magic; uint16_t version, header_bytes; uint64_t bytes; struct Entry entry;
                char payload[PAYLOAD_BYTES]; } fat_binary __attribute__((aligned(8))) = {
    0xba55ed50, 1, 16, sizeof(struct Entry) + PAYLOAD_BYTES,
    {1, 0x101, sizeof(struct Entry), PAYLOAD_BYTES, 0, 0, 0, 6, 50, {0, 0}, 0x11, 0, 0}, {0}};
static const struct { uint32_t magic, version; const void *data; void *unused; } wrapper = {
    0x466243b1, 1, &fat_binary, NULL};

/* What stands for the device's objects in the host's code: only the addresses count. */
static float factor;
static void saxpy(void) {}
static void add(void) {}
static void sum(void) {}
static void **registered;

__attribute__((constructor)) static void register_all(void) {
    __builtin_memcpy(fat_binary.payload, ptx, sizeof ptx);
    registered = __cudaRegisterFatBinary(&wrapper);
    __cudaRegisterFunction(registered, saxpy, "saxpy", "saxpy", -1, 0, 0, 0, 0, 0);
    __cudaRegisterFunction(registered, add, "add", "add", -1, 0, 0, 0, 0, 0);
    __cudaRegisterFunction(registered, sum, "sum", "sum", -1, 0, 0, 0, 0, 0);
    __cudaRegisterVar(registered, &factor, "factor", "factor", 0, sizeof factor, 0, 0);
    __cudaRegisterFatBinaryEnd(registered);
}

__attribute__((destructor)) static void unregister_all(void) { __cudaUnregisterFatBinary(registered); }

#endif
