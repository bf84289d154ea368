/* A program of the CUDA runtime, as nvcc would have built it with toolkit 10.2: kernels, a variable, streams,
 * events, pinned, managed and pitched memory, a captured graph, errors, a reset.
 *
 *   runtime [--bytes N] [--rounds N | --stop-file PATH]
 *
 * Each round works on a fresh device, beside a block of N bytes that must keep its content.
 * Prints `result=right` if everything is what a model on the host says; exit code 0 right, 1 wrong, 3 a call
 * failed. Knows nothing of Turnus. */
#include "runtime.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COUNT 100003u
#define BLOCK 256u
#define CHECK(call) do { Status status = (call); if (status) { \
    fprintf(stderr, "runtime: line %d: %s: %d %s\n", __LINE__, #call, status, cudaGetErrorName(status)); exit(3); \
} } while (0)
#define RIGHT(what) do { if (!(what)) { wrong++; fprintf(stderr, "runtime: line %d: not so: %s\n", __LINE__, #what); } } while (0)

static int wrong;

static void launch(const void *kernel, unsigned threads, void **parameters, Stream stream) {
    CHECK(cudaLaunchKernel(kernel, (Dim3){(threads + BLOCK - 1) / BLOCK, 1, 1}, (Dim3){BLOCK, 1, 1}, parameters, 0, stream));
}

static void device_is_described(void) {
    int driver, runtime, count, device = -1;
    static struct Properties properties;
    size_t available, total;
    CHECK(cudaDriverGetVersion(&driver));
    CHECK(cudaRuntimeGetVersion(&runtime));
    CHECK(cudaGetDeviceCount(&count));
    CHECK(cudaGetDeviceProperties(&properties, 0));
    CHECK(cudaSetDevice(0));
    CHECK(cudaGetDevice(&device));
    CHECK(cudaMemGetInfo(&available, &total));
    RIGHT(driver >= runtime && runtime == 10020 && count >= 1 && device == 0 && properties.name[0]);
    RIGHT(available > 0 && available < total);
}

/* y = factor * x + y on the null stream, with a variable of the module. */
static void saxpy_is_computed(float by) {
    float *x = malloc(COUNT * 4), *y = malloc(COUNT * 4), back = 0, *dx, *dy;
    unsigned count = COUNT, bad = 0;
    for (unsigned at = 0; at < COUNT; at++) x[at] = (float)at, y[at] = (float)(at % 17);
    CHECK(cudaMalloc(&dx, COUNT * 4));
    CHECK(cudaMalloc(&dy, COUNT * 4));
    CHECK(cudaMemcpy(dx, x, COUNT * 4, TO_DEVICE));
    CHECK(cudaMemcpy(dy, y, COUNT * 4, TO_DEVICE));
    CHECK(cudaMemcpyToSymbol(&factor, &by, 4, 0, TO_DEVICE));
    CHECK(cudaMemcpyFromSymbol(&back, &factor, 4, 0, TO_HOST));
    RIGHT(back == by);
    launch(saxpy, COUNT, (void *[]){&dx, &dy, &count}, NULL);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(y, dy, COUNT * 4, TO_HOST));
    for (unsigned at = 0; at < COUNT; at++) bad += y[at] != by * x[at] + (float)(at % 17);
    RIGHT(bad == 0);
    struct Pointer where;
    CHECK(cudaPointerGetAttributes(&where, dx));
    RIGHT(where.on_device == dx && where.device == 0);
    CHECK(cudaFree(dx));
    CHECK(cudaFree(dy));
    free(x);
    free(y);
}

static void count_up(void *number) { ++*(int *)number; }

/* Two streams, pinned memory, an event between them, a host function, and the time that passed. */
static void streams_follow_events(void) {
    Stream first, second;
    Event begin, middle, end;
    unsigned *pinned, *words, count = COUNT, step = 3, bad = 0;
    int called = 0;
    float ms = -1;
    CHECK(cudaStreamCreateWithFlags(&first, NOT_BLOCKING));
    CHECK(cudaStreamCreateWithFlags(&second, NOT_BLOCKING));
    CHECK(cudaEventCreate(&begin));
    CHECK(cudaEventCreate(&middle));
    CHECK(cudaEventCreate(&end));
    CHECK(cudaMallocHost(&pinned, COUNT * 4));
    CHECK(cudaMalloc(&words, COUNT * 4));
    for (unsigned at = 0; at < COUNT; at++) pinned[at] = at;
    CHECK(cudaEventRecord(begin, first));
    CHECK(cudaMemcpyAsync(words, pinned, COUNT * 4, TO_DEVICE, first));
    launch(add, COUNT, (void *[]){&words, &count, &step}, first);
    CHECK(cudaEventRecord(middle, first));
    CHECK(cudaStreamWaitEvent(second, middle, 0));
    launch(add, COUNT, (void *[]){&words, &count, &step}, second);
    CHECK(cudaMemcpyAsync(pinned, words, COUNT * 4, TO_HOST, second));
    CHECK(cudaLaunchHostFunc(second, count_up, &called));
    CHECK(cudaEventRecord(end, second));
    CHECK(cudaEventSynchronize(end));
    CHECK(cudaEventElapsedTime(&ms, begin, end));
    CHECK(cudaStreamSynchronize(second));
    for (unsigned at = 0; at < COUNT; at++) bad += pinned[at] != at + 2 * step;
    RIGHT(bad == 0 && called == 1 && ms > 0);
    CHECK(cudaFree(words));
    CHECK(cudaFreeHost(pinned));
    CHECK(cudaEventDestroy(begin));
    CHECK(cudaEventDestroy(middle));
    CHECK(cudaEventDestroy(end));
    CHECK(cudaStreamDestroy(first));
    CHECK(cudaStreamDestroy(second));
}

/* Memory that both sides reach, summed up by blocks with shared memory, and rows with a pitch. */
static void other_memory_works(void) {
    unsigned *words, *total, model = 0, rows[7][5], back[7][5];
    CHECK(cudaMallocManaged(&words, 64 * BLOCK * 4, 1));
    CHECK(cudaMallocManaged(&total, 4, 1));
    for (unsigned at = 0; at < 64 * BLOCK; at++) model += words[at] = at * 2654435761u;
    *total = 0;
    launch(sum, 64 * BLOCK, (void *[]){&words, &total}, NULL);
    CHECK(cudaDeviceSynchronize());
    RIGHT(*total == model);
    CHECK(cudaFree(words));
    CHECK(cudaFree(total));
    void *pitched;
    size_t pitch;
    for (unsigned at = 0; at < 35; at++) rows[at / 5][at % 5] = at;
    CHECK(cudaMallocPitch(&pitched, &pitch, sizeof rows[0], 7));
    CHECK(cudaMemset(pitched, 0xff, pitch * 7));
    CHECK(cudaMemcpy2D(pitched, pitch, rows, sizeof rows[0], sizeof rows[0], 7, TO_DEVICE));
    CHECK(cudaMemcpy2D(back, sizeof rows[0], pitched, pitch, sizeof rows[0], 7, TO_HOST));
    RIGHT(pitch >= sizeof rows[0] && !memcmp(rows, back, sizeof rows));
    CHECK(cudaFree(pitched));
}

static void graph_is_captured(void) {
    Stream stream;
    Graph graph;
    Executable executable;
    unsigned *words, count = COUNT, step = 5, word = 0;
    CHECK(cudaStreamCreateWithFlags(&stream, NOT_BLOCKING));
    CHECK(cudaMalloc(&words, COUNT * 4));
    CHECK(cudaMemset(words, 0, COUNT * 4));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaStreamBeginCapture(stream, GLOBAL_CAPTURE));
    launch(add, COUNT, (void *[]){&words, &count, &step}, stream);
    launch(add, COUNT, (void *[]){&words, &count, &step}, stream);
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&executable, graph, NULL, NULL, 0));
    for (int time = 0; time < 3; time++) CHECK(cudaGraphLaunch(executable, stream));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaMemcpy(&word, words + COUNT - 1, 4, TO_HOST));
    RIGHT(word == 6 * step);
    CHECK(cudaGraphExecDestroy(executable));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaFree(words));
    CHECK(cudaStreamDestroy(stream));
}

/* What is asked about kernels, and calls that must fail, each with its own code and without harm. */
static void questions_and_errors_are_answered(void) {
    struct Attributes attributes;
    int blocks = 0;
    void *pointer = NULL;
    CHECK(cudaFuncGetAttributes(&attributes, sum));
    RIGHT(attributes.shared == 1024 && attributes.threads_max >= 256);
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, sum, BLOCK, 0));
    RIGHT(blocks >= 1);
    RIGHT(cudaMalloc(&pointer, (size_t)1 << 46) == OUT_OF_MEMORY && cudaGetLastError() == OUT_OF_MEMORY);
    RIGHT(cudaLaunchKernel(count_up, (Dim3){1, 1, 1}, (Dim3){1, 1, 1}, NULL, 0, NULL) == INVALID_DEVICE_FUNCTION);
    RIGHT(cudaGetLastError() == INVALID_DEVICE_FUNCTION && cudaGetLastError() == 0);
}

/* A block of words that differ, made on the device. */
static unsigned *block_made(unsigned words, unsigned step) {
    unsigned *block, *host = malloc(words * 4ul);
    CHECK(cudaMalloc(&block, words * 4ul));
    for (unsigned at = 0; at < words; at++) host[at] = at;
    CHECK(cudaMemcpy(block, host, words * 4ul, TO_DEVICE));
    launch(add, words, (void *[]){&block, &words, &step}, NULL);
    free(host);
    return block;
}

static void block_is_unchanged(unsigned *block, unsigned words, unsigned step) {
    unsigned bad = 0, *host = malloc(words * 4ul);
    CHECK(cudaMemcpy(host, block, words * 4ul, TO_HOST));
    for (unsigned at = 0; at < words; at++) bad += host[at] != at + step;
    RIGHT(bad == 0);
    CHECK(cudaFree(block));
    free(host);
}

int main(int argc, char **argv) {
    unsigned words = 4096, rounds = 2, round = 0, seed = (unsigned)getpid();
    const char *stop_file = NULL;
    for (int at = 1; at + 1 < argc; at += 2) {
        if (!strcmp(argv[at], "--bytes")) words = (unsigned)strtoul(argv[at + 1], NULL, 10) / 4;
        else if (!strcmp(argv[at], "--rounds")) rounds = (unsigned)strtoul(argv[at + 1], NULL, 10);
        else if (!strcmp(argv[at], "--stop-file")) stop_file = argv[at + 1];
        else { fprintf(stderr, "runtime: unknown option %s\n", argv[at]); return 2; }
    }
    device_is_described();
    while (stop_file ? access(stop_file, F_OK) != 0 : round < rounds) {
        /* Everything of the device goes, and comes back with the next round. */
        if (round) CHECK(cudaDeviceReset());
        unsigned *block = block_made(words, seed + round);
        saxpy_is_computed(1.0f + (float)round);
        streams_follow_events();
        other_memory_works();
        graph_is_captured();
        questions_and_errors_are_answered();
        block_is_unchanged(block, words, seed + round);
        round++;
    }
    printf("wrong=%d\nresult=%s\n", wrong, wrong ? "wrong" : "right");
    return wrong != 0;
}
