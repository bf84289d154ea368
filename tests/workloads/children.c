/* children: starts other programs (vfork and exec, fork and exec) between rounds, as build tools and data
 * loaders do. The child of a fork has the parent's memory but never touches CUDA. */
#include "workload.h"
#include <sys/wait.h>

static uint64_t run_child(int by_vfork) {
    static char *const arguments[] = {"true", NULL};
    pid_t child = by_vfork ? vfork() : fork();
    if (child < 0) fail("fork", -1);
    if (child == 0) {
        execv("/bin/true", arguments);
        _exit(9);
    }
    int status = 0;
    if (waitpid(child, &status, 0) != child) fail("waitpid", -1);
    if (status) fprintf(stderr, "workload: a child ended with %d\n", status);
    return status != 0;
}

int main(int argc, char **argv) {
    read_options(argc, argv);
    open_device(options.ordinal);
    words_load();
    struct Words block = words_new(options.bytes, options.seed);
    uint64_t done = 0, wrong = 0;
    while (go_on(done)) {
        words_step(&block, NULL);
        wrong += run_child(done % 2 == 0);
        CHECK(cu.context_synchronize());
        done++;
    }
    wrong += words_wrong(&block);
    CHECK(cu.memory_free(block.pointer));
    return finish(done, wrong);
}
