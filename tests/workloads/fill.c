/* fill: half of the memory by a kernel, half by cuMemsetD32; what a round wrote is compared in full
 * only at the start of the next, so that whatever happens in between shows. */
#include "workload.h"

int main(int argc, char **argv) {
    read_options(argc, argv);
    open_device(options.ordinal);
    Function kernel = load_kernel("fill");
    uint64_t count = options.bytes / 8, done = 0, wrong = 0;
    DevicePointer by_kernel, by_driver;
    CHECK(cu.memory_alloc(&by_kernel, count * 4));
    CHECK(cu.memory_alloc(&by_driver, count * 4));
    float *floats = must_malloc(count * 4);
    uint32_t *words = must_malloc(count * 4);
    for (;;) {
        float value = (float)done + 0.5f;
        uint32_t pattern = (uint32_t)(done + options.seed) * 2654435761u;
        void *parameters[] = {&by_kernel, &value, &count};
        CHECK(cu.launch(kernel, 64, 1, 1, THREADS, 1, 1, 0, NULL, parameters, NULL));
        CHECK(cu.fill_words(by_driver, pattern, count));
        CHECK(cu.context_synchronize());
        int more = go_on(++done);
        CHECK(cu.copy_to_host(floats, by_kernel, count * 4));
        CHECK(cu.copy_to_host(words, by_driver, count * 4));
        for (uint64_t at = 0; at < count; at++) {
            if (floats[at] != value) note_wrong(&wrong, "float", at, floats[at], value);
            if (words[at] != pattern) note_wrong(&wrong, "pattern", at, words[at], pattern);
        }
        if (!more) break;
    }
    CHECK(cu.memory_free(by_kernel));
    CHECK(cu.memory_free(by_driver));
    return finish(done, wrong);
}
