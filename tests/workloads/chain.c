/* chain: keeps a large part of the device's memory and changes every byte of it, round after
 * round; at the end compares all of it with a model. Knows nothing of Turnus.
 *
 *   chain [--bytes N] [--rounds N | --stop-file PATH] [--seed N] [--device N] [--host-ms N] [--query]
 *
 * Prints `rounds=R bytes=N result=right` (exit 0) or `result=wrong` with the first wrong word
 * (exit 1); exit 2 without a driver, 3 if a call failed. --query prints `total=N free=N`. */
#define _GNU_SOURCE
#include "driver.h"
#include "chain.h"
#include <time.h>
#include <unistd.h>

#define BLOCKS 3
#define THREADS 256
#define PIECE_BYTES (4u << 20)

struct Block { DevicePointer pointer; uint64_t words, first; };

static void launch_over(Function function, struct Block *block, uint64_t *seed, Stream stream) {
    void *parameters[] = {&block->pointer, &block->words, &block->first, seed};
    unsigned grid = (unsigned)((block->words + THREADS - 1) / THREADS);
    CHECK(cu.launch(function, grid, 1, 1, THREADS, 1, 1, 0, stream, parameters, NULL));
}

/* Compares a block with the model; the number of wrong words. */
static uint64_t verify(struct Block *block, uint64_t seed, struct ChainModel model) {
    uint64_t wrong = 0, *piece = malloc(PIECE_BYTES);
    if (!piece) fail("malloc", -1);
    for (uint64_t at = 0; at < block->words; at += PIECE_BYTES / 8) {
        uint64_t count = block->words - at < PIECE_BYTES / 8 ? block->words - at : PIECE_BYTES / 8;
        CHECK(cu.copy_to_host(piece, block->pointer + at * 8, count * 8));
        for (uint64_t word = 0; word < count; word++) {
            uint64_t right = chain_start(seed, block->first + at + word) * model.multiplier + model.increment;
            if (piece[word] == right) continue;
            if (!wrong++)
                fprintf(stderr, "chain: word %llu is %016llx, not %016llx\n",
                        (unsigned long long)(block->first + at + word), (unsigned long long)piece[word],
                        (unsigned long long)right);
        }
    }
    free(piece);
    return wrong;
}

int main(int argc, char **argv) {
    uint64_t bytes = 1 << 20, rounds = 10, seed = 1, done = 0, wrong = 0;
    const char *stop_file = NULL;
    int ordinal = 0, host_ms = 0, query = 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (int at = 1; at < argc; at++) {
        const char *name = argv[at], *value = at + 1 < argc ? argv[at + 1] : "";
        if (!strcmp(name, "--query")) { query = 1; continue; }
        if (!strcmp(name, "--bytes")) bytes = strtoull(value, NULL, 10);
        else if (!strcmp(name, "--rounds")) rounds = strtoull(value, NULL, 10);
        else if (!strcmp(name, "--stop-file")) stop_file = value, rounds = UINT64_MAX;
        else if (!strcmp(name, "--seed")) seed = strtoull(value, NULL, 10);
        else if (!strcmp(name, "--device")) ordinal = atoi(value);
        else if (!strcmp(name, "--host-ms")) host_ms = atoi(value);
        else { fprintf(stderr, "chain: unknown option %s\n", name); return 2; }
        at++;
    }
    open_device(ordinal);
    if (query) {
        size_t free_bytes, total_bytes;
        CHECK(cu.memory_info(&free_bytes, &total_bytes));
        printf("total=%zu free=%zu\n", total_bytes, free_bytes);
        return 0;
    }
    Module module;
    Function start, step;
    CHECK(cu.module_load(&module, chain_ptx));
    CHECK(cu.module_function(&start, module, "start"));
    CHECK(cu.module_function(&step, module, "step"));

    struct Block blocks[BLOCKS];
    uint64_t words = bytes / 8, first = 0;
    for (int index = 0; index < BLOCKS; index++) {
        uint64_t share = index == BLOCKS - 1 ? words - first : words / BLOCKS;
        blocks[index] = (struct Block){0, share, first};
        first += share;
        CHECK(cu.memory_alloc(&blocks[index].pointer, share * 8));
        launch_over(start, &blocks[index], &seed, NULL);
    }
    while (done < rounds && !(stop_file && access(stop_file, F_OK) == 0)) {
        for (int index = 0; index < BLOCKS; index++) launch_over(step, &blocks[index], &seed, NULL);
        CHECK(cu.context_synchronize());
        done++;
        printf("round=%llu\n", (unsigned long long)done);
        struct timespec pause = {host_ms / 1000, host_ms % 1000 * 1000000l};
        if (host_ms) nanosleep(&pause, NULL);
    }
    for (int index = 0; index < BLOCKS; index++) {
        wrong += verify(&blocks[index], seed, chain_model(done));
        CHECK(cu.memory_free(blocks[index].pointer));
    }
    printf("rounds=%llu bytes=%llu result=%s\n", (unsigned long long)done, (unsigned long long)(words * 8),
           wrong ? "wrong" : "right");
    return wrong != 0;
}
