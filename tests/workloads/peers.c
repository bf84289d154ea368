/* peers: two processes whose kernels wait for each other in each round, through memory that both mapped
 * before they knew of CUDA. Neither kernel can end before the other has begun. */
#include "workload.h"
#include <sys/mman.h>
#include <sys/wait.h>

#define DEVICE_MAP 2

struct Shared {
    volatile uint32_t flags[2];
    /* The last round, set by the parent before it starts the round before; 0: not known yet. */
    volatile uint32_t last;
    volatile uint64_t wrong[2];
};

static void run_peer(int index, struct Shared *shared) {
    open_device(options.ordinal);
    words_load();
    Module module;
    Function meet;
    CHECK(cu.module_load(&module, flag_ptx));
    CHECK(cu.module_function(&meet, module, "meet"));
    CHECK(cu.host_register(shared, 4096, DEVICE_MAP));
    DevicePointer base;
    CHECK(cu.host_device_pointer(&base, shared, 0));
    DevicePointer mine = base + 4 * (unsigned)index, others = base + 4 * (unsigned)!index;
    struct Words block = words_new(options.bytes / 2, options.seed + (uint64_t)index);
    for (uint32_t round = 1; !shared->last || round <= shared->last; round++) {
        /* The other one cannot be past this round before our kernel runs in it. */
        if (index == 0 && !shared->last && !go_on(round - 1)) shared->last = round + 1;
        void *parameters[] = {&mine, &others, &round};
        CHECK(cu.launch(meet, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
        words_step(&block, NULL);
        CHECK(cu.context_synchronize());
    }
    if (block.steps != shared->last) fail("the number of rounds", (int)block.steps);
    shared->wrong[index] = words_wrong(&block) + 1;
    CHECK(cu.host_unregister(shared));
    CHECK(cu.memory_free(block.pointer));
}

int main(int argc, char **argv) {
    read_options(argc, argv);
    struct Shared *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) fail("mmap", -1);
    pid_t child = fork();
    if (child < 0) fail("fork", -1);
    run_peer(child == 0, shared);
    if (child == 0) return 0;
    int status = 0;
    if (waitpid(child, &status, 0) != child || status) fail("the other process", status);
    /* Each has written its number of wrong words plus one. */
    return finish(shared->last, !(shared->wrong[0] == 1 && shared->wrong[1] == 1));
}
