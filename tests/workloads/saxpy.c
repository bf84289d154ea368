/* saxpy: y = a * x + y round after round; all values are whole numbers, so floats are exact. */
#include "workload.h"

int main(int argc, char **argv) {
    read_options(argc, argv);
    open_device(options.ordinal);
    Function kernel = load_kernel("saxpy");
    uint32_t count = (uint32_t)(options.bytes / 8);
    uint64_t done = 0, wrong = 0;
    DevicePointer x, y;
    float *host = must_malloc(count * 4ull), a = 1;
    CHECK(cu.memory_alloc(&x, count * 4ull));
    CHECK(cu.memory_alloc(&y, count * 4ull));
    for (uint32_t at = 0; at < count; at++) host[at] = (float)((at + options.seed) % 17);
    CHECK(cu.copy_to_device(x, host, count * 4ull));
    for (uint32_t at = 0; at < count; at++) host[at] = (float)(at % 1021);
    CHECK(cu.copy_to_device(y, host, count * 4ull));
    while (go_on(done)) {
        void *parameters[] = {&a, &x, &y, &count};
        launch_1d(kernel, count, parameters, NULL);
        CHECK(cu.context_synchronize());
        done++;
    }
    CHECK(cu.copy_to_host(host, y, count * 4ull));
    for (uint32_t at = 0; at < count; at++) {
        float right = (float)(at % 1021) + (float)done * (float)((at + options.seed) % 17);
        if (host[at] != right) note_wrong(&wrong, "y", at, host[at], right);
    }
    CHECK(cu.copy_to_host(host, x, count * 4ull));
    for (uint32_t at = 0; at < count; at++) {
        float right = (float)((at + options.seed) % 17);
        if (host[at] != right) note_wrong(&wrong, "x", at, host[at], right);
    }
    CHECK(cu.memory_free(x));
    CHECK(cu.memory_free(y));
    return finish(done, wrong);
}
