/* reduce: the sum of all values by shared memory and by warp shuffles. A slice gets new values in each
 * round, so the right sum changes; sums stay below 2^24, where floats count exactly. */
#include "workload.h"

#define SLICES 16

int main(int argc, char **argv) {
    read_options(argc, argv);
    open_device(options.ordinal);
    Function shared = load_kernel("reduce_shared"), warp = load_kernel("reduce_warp");
    uint32_t count = (uint32_t)(options.bytes / 4), slice = count / SLICES, values[SLICES] = {0};
    uint64_t done = 0, wrong = 0;
    DevicePointer input, sums;
    CHECK(cu.memory_alloc(&input, count * 4ull));
    CHECK(cu.memory_alloc(&sums, 8));
    CHECK(cu.fill_words(input, 0, count));
    while (go_on(done)) {
        uint32_t at = (uint32_t)(done % SLICES), bits;
        values[at] = (uint32_t)((done + options.seed) % 4);
        float value = (float)values[at], found[2], right = 0;
        memcpy(&bits, &value, 4);
        CHECK(cu.fill_words(input + (uint64_t)at * slice * 4, bits, slice));
        CHECK(cu.fill_words(sums, 0, 2));
        DevicePointer by_warp = sums + 4;
        void *first[] = {&input, &sums, &count}, *second[] = {&input, &by_warp, &count};
        launch_1d(shared, count, first, NULL);
        CHECK(cu.launch(warp, 32, 1, 1, THREADS, 1, 1, 0, NULL, second, NULL));
        CHECK(cu.copy_to_host(found, sums, 8));
        for (int index = 0; index < SLICES; index++) right += (float)values[index] * (float)slice;
        if (found[0] != right) note_wrong(&wrong, "sum by shared memory in round", done, found[0], right);
        if (found[1] != right) note_wrong(&wrong, "sum by warps in round", done, found[1], right);
        done++;
    }
    float *host = must_malloc(count * 4ull);
    CHECK(cu.copy_to_host(host, input, count * 4ull));
    for (uint32_t at = 0; at < count; at++) {
        float right = at / slice < SLICES ? (float)values[at / slice] : 0;
        if (host[at] != right) note_wrong(&wrong, "value", at, host[at], right);
    }
    CHECK(cu.memory_free(input));
    CHECK(cu.memory_free(sums));
    return finish(done, wrong);
}
