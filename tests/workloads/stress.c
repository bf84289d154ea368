/* stress: random allocations, frees, copies, fills and kernels on one or more devices, with a byte-exact
 * model of every block in host memory. --how lists the devices, such as `0,1`. */
#include "workload.h"

#define BLOCKS 24
#define DEVICES 4

struct Block { struct Words words; uint8_t *model; uint64_t bytes; };
struct Card { Context context; Function step; struct Block blocks[BLOCKS]; uint64_t in_use; };
static struct Card cards[DEVICES];
static uint64_t state, wrong, operations;

static uint64_t below(uint64_t bound) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (state >> 11) % bound;
}

/* A range of whole words inside the block. */
static void choose_range(const struct Block *block, uint64_t *at, uint64_t *bytes) {
    *at = below(block->bytes / 8) * 8;
    *bytes = (below((block->bytes - *at) / 8) + 1) * 8;
}

static void compare(const struct Block *block, uint64_t at, uint64_t bytes) {
    uint8_t *found = must_malloc(bytes);
    CHECK(cu.copy_to_host(found, block->words.pointer + at, bytes));
    for (uint64_t index = 0; index < bytes; index++)
        if (found[index] != block->model[at + index])
            note_wrong(&wrong, "byte", at + index, found[index], block->model[at + index]);
    free(found);
}

static void allocate(struct Card *card, struct Block *block) {
    uint64_t most = below(3) ? options.bytes / 4 : 4096;
    uint64_t bytes = (below(most / 8) + 1) * 8;
    if (card->in_use + bytes > options.bytes) return;
    card->in_use += bytes;
    block->bytes = bytes;
    block->model = must_malloc(bytes);
    CHECK(cu.memory_alloc(&block->words.pointer, bytes));
    for (uint64_t at = 0; at < bytes; at++) block->model[at] = (uint8_t)(state >> (at % 7)) ^ (uint8_t)at;
    CHECK(cu.copy_to_device(block->words.pointer, block->model, bytes));
}

static void release(struct Card *card, struct Block *block) {
    compare(block, 0, block->bytes);
    CHECK(cu.memory_free(block->words.pointer));
    card->in_use -= block->bytes;
    free(block->model);
    *block = (struct Block){0};
}

static void run_kernel(struct Card *card, struct Block *block) {
    uint64_t at, bytes, words;
    choose_range(block, &at, &bytes);
    words = bytes / 8 < 32768 ? bytes / 8 : 32768;
    DevicePointer first = block->words.pointer + at;
    void *parameters[] = {&first, &words};
    launch_1d(card->step, words, parameters, NULL);
    uint64_t *model = (uint64_t *)(void *)(block->model + at);
    for (uint64_t word = 0; word < words; word++) model[word] = model[word] * MULTIPLIER + INCREMENT;
}

static void copy_between(const struct Block *from, struct Block *to) {
    uint64_t at, bytes, most = from->bytes < to->bytes ? from->bytes : to->bytes;
    struct Block range = {.bytes = most};
    choose_range(&range, &at, &bytes);
    if (from == to) return;
    CHECK(cu.copy_within(to->words.pointer + at, from->words.pointer + at, bytes));
    memcpy(to->model + at, from->model + at, bytes);
}

static void operate(struct Card *card) {
    struct Block *block = &card->blocks[below(BLOCKS)], *other = &card->blocks[below(BLOCKS)];
    uint64_t at, bytes, kind = below(16);
    if (!block->bytes) { allocate(card, block); return; }
    choose_range(block, &at, &bytes);
    uint8_t value = (uint8_t)below(256);
    switch (kind) {
    case 0: release(card, block); break;
    case 1: case 2: compare(block, at, bytes); break;
    case 3: case 4:
        for (uint64_t index = 0; index < bytes; index++) block->model[at + index] = (uint8_t)(value + index * 7);
        CHECK(cu.copy_to_device(block->words.pointer + at, block->model + at, bytes));
        break;
    case 5:
        CHECK(cu.fill_bytes(block->words.pointer + at, value, bytes));
        memset(block->model + at, value, bytes);
        break;
    case 6: case 7: if (other->bytes) copy_between(block, other); break;
    case 8: CHECK(cu.context_synchronize()); break;
    default: run_kernel(card, block); break;
    }
}

int main(int argc, char **argv) {
    read_options(argc, argv);
    int count = 0;
    state = options.seed * 0x9e3779b97f4a7c15ull + 12345;
    for (const char *word = options.how; *word && count < DEVICES; word++) {
        if (*word == ',') continue;
        struct Card *card = &cards[count++];
        card->context = open_device(*word - '0');
        words_load();
        card->step = words_step_kernel;
    }
    if (!count) fail("--how names no device", 2);
    uint64_t done = 0;
    while (go_on(done)) {
        for (int operation = 0; operation < 32; operation++, operations++) {
            struct Card *card = &cards[below((uint64_t)count)];
            CHECK(cu.context_set(card->context));
            operate(card);
        }
        done++;
    }
    for (int index = 0; index < count; index++) {
        CHECK(cu.context_set(cards[index].context));
        for (int block = 0; block < BLOCKS; block++)
            if (cards[index].blocks[block].bytes) release(&cards[index], &cards[index].blocks[block]);
    }
    printf("operations=%llu\n", (unsigned long long)operations);
    return finish(done, wrong);
}
