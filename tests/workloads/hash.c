/* hash: a 64-bit hash in place over one slice per round; the host computes the same at the end. */
#include "workload.h"

#define SLICES 256

static uint64_t hash(uint64_t x) {
    for (int round = 0; round < 100; round++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
    }
    return x % 1000003;
}

int main(int argc, char **argv) {
    read_options(argc, argv);
    open_device(options.ordinal);
    Function kernel = load_kernel("hash_i64");
    uint32_t slice = (uint32_t)(options.bytes / 8 / SLICES);
    uint64_t count = (uint64_t)slice * SLICES, done = 0, wrong = 0;
    uint64_t *host = must_malloc(count * 8);
    DevicePointer words;
    CHECK(cu.memory_alloc(&words, count * 8));
    for (uint64_t at = 0; at < count; at++) host[at] = chain_start(options.seed, at);
    CHECK(cu.copy_to_device(words, host, count * 8));
    while (go_on(done)) {
        DevicePointer first = words + done % SLICES * slice * 8;
        void *parameters[] = {&first, &slice};
        launch_1d(kernel, slice, parameters, NULL);
        CHECK(cu.context_synchronize());
        done++;
    }
    CHECK(cu.copy_to_host(host, words, count * 8));
    for (uint64_t at = 0; at < count; at++) {
        uint64_t right = chain_start(options.seed, at), index = at / slice;
        for (uint64_t round = index; round < done; round += SLICES) right = hash(right);
        if (host[at] != right) note_wrong(&wrong, "hash", at, (double)host[at], (double)right);
    }
    CHECK(cu.memory_free(words));
    return finish(done, wrong);
}
