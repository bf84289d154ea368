/* forkstay: leaves a child behind that has the parent's open files and memory but never uses CUDA. The
 * parent ends without freeing anything. Prints `child=PID`; the child sleeps for a minute. */
#include "workload.h"

int main(int argc, char **argv) {
    read_options(argc, argv);
    open_device(options.ordinal);
    words_load();
    struct Words block = words_new(options.bytes, options.seed);
    uint64_t done = 0;
    while (go_on(done)) {
        words_step(&block, NULL);
        CHECK(cu.context_synchronize());
        done++;
    }
    uint64_t wrong = words_wrong(&block);
    fflush(NULL);
    pid_t child = fork();
    if (child < 0) fail("fork", -1);
    if (child == 0) {
        sleep(60);
        _exit(0);
    }
    printf("child=%d\n", (int)child);
    return finish(done, wrong);
}
