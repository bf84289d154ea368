/* opener: opens the device, says when it is done, and stays until its input ends.
 *
 *   opener [BYTES]
 *
 * Prints "open_us=N", the time of cuInit and a context. With BYTES it also takes that much device memory
 * and fills its first 256 MiB for each line of its input. */
#include "../../tests/workloads/driver.h"
#include <time.h>

static double now_us(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e6 + time.tv_nsec / 1e3;
}

int main(int argc, char **argv) {
    char line[16];
    double begin = now_us();
    DevicePointer memory = 0;
    open_device(0);
    printf("open_us=%.0f\n", now_us() - begin);
    if (argc > 1) CHECK(cu.memory_alloc(&memory, strtoull(argv[1], NULL, 10)));
    printf("ready=1\n");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        if (argc > 1) CHECK(cu.fill_bytes(memory, 7, 256 << 20));
        CHECK(cu.context_synchronize());
        printf("touched=1\n");
        fflush(stdout);
    }
    return 0;
}
