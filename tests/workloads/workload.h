/* What the small workloads share: options, rounds, kernels from files, blocks with the chain's model.
 *
 *   PROGRAM [--bytes N] [--rounds N | --stop-file PATH] [--seed N] [--device N] [--host-ms N] [--how WORD]
 *
 * Each prints `round=N` as it goes and `rounds=R bytes=N result=right|wrong` at the end; exit code 0
 * right, 1 wrong, 2 no driver, 3 a call failed. None knows anything of Turnus. */
#ifndef TURNUS_WORKLOADS_WORKLOAD_H
#define TURNUS_WORKLOADS_WORKLOAD_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "driver.h"
#include "chain.h"
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#define THREADS 256
#define PIECE_BYTES (1u << 20)

struct Options { uint64_t bytes, rounds, seed; const char *stop_file, *how; int ordinal, host_ms; };
static struct Options options = {1 << 20, 10, 1, NULL, "", 0, 0};

__attribute__((unused)) static void read_options(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (int at = 1; at < argc; at += 2) {
        const char *name = argv[at], *value = at + 1 < argc ? argv[at + 1] : "";
        if (!strcmp(name, "--bytes")) options.bytes = strtoull(value, NULL, 10);
        else if (!strcmp(name, "--rounds")) options.rounds = strtoull(value, NULL, 10);
        else if (!strcmp(name, "--stop-file")) options.stop_file = value, options.rounds = UINT64_MAX;
        else if (!strcmp(name, "--seed")) options.seed = strtoull(value, NULL, 10);
        else if (!strcmp(name, "--device")) options.ordinal = atoi(value);
        else if (!strcmp(name, "--host-ms")) options.host_ms = atoi(value);
        else if (!strcmp(name, "--how")) options.how = value;
        else { fprintf(stderr, "workload: unknown option %s\n", name); exit(2); }
    }
}

__attribute__((unused)) static void sleep_ms(int ms) {
    struct timespec pause = {ms / 1000, ms % 1000 * 1000000l};
    while (nanosleep(&pause, &pause)) {}
}

/* Whether another round is to be done after `done` of them; also the pause between rounds. */
__attribute__((unused)) static int go_on(uint64_t done) {
    if (done) printf("round=%llu\n", (unsigned long long)done);
    if (done && options.host_ms) sleep_ms(options.host_ms);
    return done < options.rounds && !(options.stop_file && access(options.stop_file, F_OK) == 0);
}

/* The last line; returns the exit code. */
__attribute__((unused)) static int finish(uint64_t rounds, uint64_t wrong) {
    printf("rounds=%llu bytes=%llu result=%s\n", (unsigned long long)rounds,
           (unsigned long long)options.bytes, wrong ? "wrong" : "right");
    return wrong != 0;
}

/* Counts a wrong value and shows the first one. */
__attribute__((unused)) static void note_wrong(uint64_t *wrong, const char *what, uint64_t at, double is, double right) {
    if (!(*wrong)++)
        fprintf(stderr, "workload: %s %llu is %.17g, not %.17g\n", what, (unsigned long long)at, is, right);
}

__attribute__((unused)) static void *must_malloc(size_t bytes) {
    void *pointer = malloc(bytes);
    if (!pointer) fail("malloc", -1);
    return pointer;
}

__attribute__((unused)) static void launch_1d(Function function, uint64_t threads, void **parameters, Stream stream) {
    unsigned grid = (unsigned)((threads + THREADS - 1) / THREADS);
    CHECK(cu.launch(function, grid, 1, 1, THREADS, 1, 1, 0, stream, parameters, NULL));
}

#ifdef PTX_FOLDER
/* The entry `k` of a file of tests/data/ptx. */
__attribute__((unused)) static Function load_kernel(const char *name) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s.ptx", PTX_FOLDER, name);
    FILE *file = fopen(path, "r");
    if (!file) fail(path, -1);
    char *text = must_malloc(1 << 16);
    size_t length = fread(text, 1, (1 << 16) - 1, file);
    text[length] = 0;
    fclose(file);
    Module module;
    Function function;
    CHECK(cu.module_load(&module, text));
    CHECK(cu.module_function(&function, module, "k"));
    free(text);
    return function;
}
#endif

/* A block of words that the chain's kernels change, and how often they did. */
struct Words { DevicePointer pointer; uint64_t words, first, seed, steps; };
static Function words_start_kernel, words_step_kernel;

__attribute__((unused)) static void words_load(void) {
    Module module;
    CHECK(cu.module_load(&module, chain_ptx));
    CHECK(cu.module_function(&words_start_kernel, module, "start"));
    CHECK(cu.module_function(&words_step_kernel, module, "step"));
}

__attribute__((unused)) static struct Words words_new(uint64_t bytes, uint64_t seed) {
    struct Words words = {0, bytes / 8, 0, seed, 0};
    CHECK(cu.memory_alloc(&words.pointer, words.words * 8));
    void *parameters[] = {&words.pointer, &words.words, &words.first, &words.seed};
    launch_1d(words_start_kernel, words.words, parameters, NULL);
    CHECK(cu.context_synchronize());
    return words;
}

__attribute__((unused)) static void words_step(struct Words *words, Stream stream) {
    void *parameters[] = {&words->pointer, &words->words};
    launch_1d(words_step_kernel, words->words, parameters, stream);
    words->steps++;
}

/* How many words differ from the model. */
__attribute__((unused)) static uint64_t words_wrong(const struct Words *words) {
    struct ChainModel model = chain_model(words->steps);
    uint64_t wrong = 0, *piece = must_malloc(PIECE_BYTES);
    for (uint64_t at = 0; at < words->words; at += PIECE_BYTES / 8) {
        uint64_t count = words->words - at < PIECE_BYTES / 8 ? words->words - at : PIECE_BYTES / 8;
        CHECK(cu.copy_to_host(piece, words->pointer + at * 8, count * 8));
        for (uint64_t word = 0; word < count; word++) {
            uint64_t right = chain_start(words->seed, at + word) * model.multiplier + model.increment;
            if (piece[word] == right) continue;
            if (!wrong++)
                fprintf(stderr, "workload: word %llu of %llu is %016llx, not %016llx after %llu steps\n",
                        (unsigned long long)(at + word), (unsigned long long)words->words,
                        (unsigned long long)piece[word], (unsigned long long)right,
                        (unsigned long long)words->steps);
        }
    }
    free(piece);
    return wrong;
}

/* Kernels that wait for, or set, a word that the host or another kernel also reaches. */
static const char flag_ptx[] __attribute__((unused)) =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    /* wait(flag, least): until *flag >= least */
    ".visible .entry wait(.param .u64 flag, .param .u32 least)\n{\n"
    ".reg .pred %p<2>; .reg .b32 %r<3>; .reg .b64 %rd<3>;\n"
    "ld.param.u64 %rd1, [flag]; cvta.to.global.u64 %rd2, %rd1; ld.param.u32 %r1, [least];\n"
    "AGAIN:\nld.volatile.global.u32 %r2, [%rd2];\n"
    "setp.lt.u32 %p1, %r2, %r1; @%p1 bra AGAIN;\nret;\n}\n"
    /* meet(mine, others, number): *mine = number, then until *others >= number */
    ".visible .entry meet(.param .u64 mine, .param .u64 others, .param .u32 number)\n{\n"
    ".reg .pred %p<2>; .reg .b32 %r<3>; .reg .b64 %rd<5>;\n"
    "ld.param.u64 %rd1, [mine]; cvta.to.global.u64 %rd2, %rd1;\n"
    "ld.param.u64 %rd3, [others]; cvta.to.global.u64 %rd4, %rd3; ld.param.u32 %r1, [number];\n"
    "st.volatile.global.u32 [%rd2], %r1; membar.sys;\n"
    "AGAIN:\nld.volatile.global.u32 %r2, [%rd4];\n"
    "setp.lt.u32 %p1, %r2, %r1; @%p1 bra AGAIN;\nret;\n}\n";

#endif
