/* turns: when work begins and ends, for measuring what lies between two programs' turns.
 *
 *   turns BYTES ROUNDS IDLE_MS
 *
 * Allocates BYTES and writes all of them once. Then ROUNDS times: launch a kernel over a part of
 * them, wait for it, print when the launch returned and when the work had ended (CLOCK_MONOTONIC, ns),
 * and idle. Under Turnus the launch returns when the turn has come and all bytes are there. */
#define _GNU_SOURCE
#include "../../tests/workloads/chain.h"
#include "../../tests/workloads/driver.h"
#include <time.h>

static unsigned long long now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000ull + time.tv_nsec;
}

int main(int argc, char **argv) {
    if (argc != 4) { fprintf(stderr, "usage: turns BYTES ROUNDS IDLE_MS\n"); return 2; }
    uint64_t words = strtoull(argv[1], NULL, 10) / 8, few = words < 256 ? words : 256, first = 0, seed = 1;
    int rounds = atoi(argv[2]), idle_ms = atoi(argv[3]);
    Module module;
    Function start, step;
    DevicePointer pointer;
    open_device(0);
    setvbuf(stdout, NULL, _IOLBF, 0);
    CHECK(cu.module_load(&module, chain_ptx));
    CHECK(cu.module_function(&start, module, "start"));
    CHECK(cu.module_function(&step, module, "step"));
    CHECK(cu.memory_alloc(&pointer, words * 8));
    void *all[] = {&pointer, &words, &first, &seed};
    void *part[] = {&pointer, &few};
    CHECK(cu.launch(start, (unsigned)((words + 255) / 256), 1, 1, 256, 1, 1, 0, NULL, all, NULL));
    CHECK(cu.context_synchronize());
    printf("ready\n");
    for (int round = 0; round < rounds; round++) {
        struct timespec idle = {idle_ms / 1000, idle_ms % 1000 * 1000000l};
        nanosleep(&idle, NULL);
        unsigned long long asked = now_ns();
        CHECK(cu.launch(step, 1, 1, 1, 256, 1, 1, 0, NULL, part, NULL));
        unsigned long long launched = now_ns();
        CHECK(cu.context_synchronize());
        printf("asked=%llu launched=%llu ended=%llu\n", asked, launched, now_ns());
    }
    return 0;
}
