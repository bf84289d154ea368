/* signals: a timer interrupts the program every two milliseconds, also while a call waits; the handler
 * counts and is not set to restart system calls. */
#include "workload.h"
#include <signal.h>
#include <sys/time.h>

static volatile sig_atomic_t interruptions;
static void count(int number) { (void)number; interruptions++; }

int main(int argc, char **argv) {
    read_options(argc, argv);
    struct sigaction action = {.sa_handler = count};
    struct itimerval every = {{0, 2000}, {0, 2000}}, never = {{0, 0}, {0, 0}};
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &every, NULL);
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
    CHECK(cu.memory_free(block.pointer));
    setitimer(ITIMER_REAL, &never, NULL);
    printf("interruptions=%d\n", (int)interruptions);
    return finish(done, wrong);
}
