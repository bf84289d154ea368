/* allocfree: random allocations and frees between rounds, from a few bytes to a quarter of the memory.
 * Blocks of words follow the chain's model; tiny ones are written and read by copies. */
#include "workload.h"

#define BLOCKS 48
#define TINY_BYTES 100

struct Block { struct Words words; uint8_t tiny[TINY_BYTES]; uint64_t bytes; };
static struct Block blocks[BLOCKS];
static uint64_t in_use, state;

static uint64_t next_random(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static int is_tiny(const struct Block *block) { return block->bytes && block->bytes < TINY_BYTES; }

static void allocate(struct Block *block) {
    static const uint64_t limits[] = {TINY_BYTES, 4096, 128 << 10, 1 << 20};
    uint64_t kind = next_random() % 5, limit = kind < 4 ? limits[kind] : options.bytes / 4;
    uint64_t bytes = kind ? (next_random() % limit & ~7ull) + TINY_BYTES / 4 * 8 : next_random() % (TINY_BYTES - 1) + 1;
    if (in_use + bytes > options.bytes) return;
    block->bytes = bytes;
    in_use += bytes;
    if (!is_tiny(block)) {
        block->words = words_new(bytes, next_random());
        return;
    }
    CHECK(cu.memory_alloc(&block->words.pointer, bytes));
    for (uint64_t at = 0; at < bytes; at++) block->tiny[at] = (uint8_t)next_random();
    CHECK(cu.copy_to_device(block->words.pointer, block->tiny, bytes));
}

static uint64_t wrong_in(struct Block *block) {
    if (!is_tiny(block)) return words_wrong(&block->words);
    uint8_t found[TINY_BYTES];
    CHECK(cu.copy_to_host(found, block->words.pointer, block->bytes));
    if (!memcmp(found, block->tiny, block->bytes)) return 0;
    fprintf(stderr, "workload: a tiny block of %d bytes is wrong\n", (int)block->bytes);
    return 1;
}

static uint64_t release(struct Block *block) {
    uint64_t wrong = wrong_in(block);
    CHECK(cu.memory_free(block->words.pointer));
    in_use -= block->bytes;
    *block = (struct Block){0};
    return wrong;
}

int main(int argc, char **argv) {
    read_options(argc, argv);
    open_device(options.ordinal);
    words_load();
    state = options.seed * 0x9e3779b97f4a7c15ull + 1;
    uint64_t done = 0, wrong = 0;
    while (go_on(done)) {
        for (int change = 0; change < 6; change++) {
            struct Block *block = &blocks[next_random() % BLOCKS];
            if (block->bytes) wrong += release(block);
            else allocate(block);
        }
        for (int index = 0; index < BLOCKS; index++)
            if (blocks[index].bytes && !is_tiny(&blocks[index]) && next_random() % 2)
                words_step(&blocks[index].words, NULL);
        CHECK(cu.context_synchronize());
        done++;
    }
    for (int index = 0; index < BLOCKS; index++)
        if (blocks[index].bytes) wrong += release(&blocks[index]);
    return finish(done, wrong);
}
