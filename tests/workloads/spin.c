/* spin: a kernel that ends only when the host sets a flag, which the host does only after another launch.
 * Whoever stops that launch while the kernel runs stops the kernel for ever. */
#include "workload.h"

#define NON_BLOCKING 1
#define DEVICE_MAP 2

int main(int argc, char **argv) {
    read_options(argc, argv);
    open_device(options.ordinal);
    words_load();
    Module module;
    Function wait;
    CHECK(cu.module_load(&module, flag_ptx));
    CHECK(cu.module_function(&wait, module, "wait"));
    Stream spinning, working;
    CHECK(cu.stream_create(&spinning, NON_BLOCKING));
    CHECK(cu.stream_create(&working, NON_BLOCKING));
    void *host;
    DevicePointer flag;
    CHECK(cu.host_alloc(&host, 4096, DEVICE_MAP));
    CHECK(cu.host_device_pointer(&flag, host, 0));
    volatile uint32_t *word = host;
    *word = 0;
    struct Words block = words_new(options.bytes, options.seed);
    uint64_t done = 0, wrong = 0;
    while (go_on(done)) {
        uint32_t number = (uint32_t)done + 1;
        void *parameters[] = {&flag, &number};
        CHECK(cu.launch(wait, 1, 1, 1, 1, 1, 1, 0, spinning, parameters, NULL));
        sleep_ms(5);
        words_step(&block, working);
        CHECK(cu.stream_synchronize(working));
        int running = cu.stream_query(spinning);
        if (running != 600) note_wrong(&wrong, "stream query in round", done, running, 600);
        *word = number;
        CHECK(cu.stream_synchronize(spinning));
        done++;
    }
    wrong += words_wrong(&block);
    CHECK(cu.memory_free(block.pointer));
    CHECK(cu.host_free(host));
    return finish(done, wrong);
}
