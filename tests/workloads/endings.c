/* endings: ways of ending a program while work runs and calls wait. --how
 *   exit-thread  exit() from another thread while this one launches
 *   quick        _exit() while work runs
 *   dlclose      closes the driver's library before main returns
 *   destroy      destroys the context with work under way, and uses a second one
 *   abort-wait   SIGTERM with its default action comes from a thread while this one launches */
#include "workload.h"
#include <signal.h>

static uint64_t done;

static void *end_soon(void *unused) {
    sleep_ms(options.host_ms);
    if (!strcmp(options.how, "exit-thread")) exit(finish(done, 0));
    if (!strcmp(options.how, "quick")) _exit(finish(done, 0));
    if (!strcmp(options.how, "abort-wait")) kill(getpid(), SIGTERM);
    return unused;
}

int main(int argc, char **argv) {
    read_options(argc, argv);
    Context context = open_device(options.ordinal);
    words_load();
    struct Words block = words_new(options.bytes, options.seed);
    pthread_t thread;
    if (pthread_create(&thread, NULL, end_soon, NULL)) fail("pthread_create", -1);
    if (!strcmp(options.how, "destroy")) {
        words_step(&block, NULL);
        CHECK(cu.context_destroy(context));
        CHECK(cu.context_create(&context, 0, options.ordinal));
        words_load();
        block = words_new(options.bytes, options.seed);
    }
    if (!strcmp(options.how, "dlclose") || !strcmp(options.how, "destroy")) {
        for (; done < options.rounds; done++) words_step(&block, NULL);
        uint64_t wrong = words_wrong(&block);
        pthread_join(thread, NULL);
        if (!strcmp(options.how, "dlclose") && driver_library && dlclose(driver_library)) fail("dlclose", -1);
        return finish(done, wrong);
    }
    /* Calls may fail once the process is ending; who ends it says so. */
    void *parameters[] = {&block.pointer, &block.words};
    for (;; done++) {
        unsigned grid = (unsigned)((block.words + THREADS - 1) / THREADS);
        if (cu.launch(words_step_kernel, grid, 1, 1, THREADS, 1, 1, 0, NULL, parameters, NULL)) sleep_ms(1000);
        if (done % 4 == 3) cu.context_synchronize();
    }
}
