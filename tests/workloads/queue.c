/* queue: a thousand launches at once in each round, over a small block, beside a large one. */
#include "workload.h"

int main(int argc, char **argv) {
    read_options(argc, argv);
    open_device(options.ordinal);
    words_load();
    struct Words large = words_new(options.bytes, options.seed), small = words_new(2048, options.seed + 1);
    uint64_t done = 0, wrong = 0;
    while (go_on(done)) {
        words_step(&large, NULL);
        for (int launch = 0; launch < 1000; launch++) words_step(&small, NULL);
        CHECK(cu.context_synchronize());
        done++;
    }
    wrong = words_wrong(&large) + words_wrong(&small);
    CHECK(cu.memory_free(large.pointer));
    CHECK(cu.memory_free(small.pointer));
    return finish(done, wrong);
}
