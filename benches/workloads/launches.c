/* launches: how long one kernel launch takes, seen by the program that launches.
 *
 *   launches THREADS BATCHES LAUNCHES
 *
 * Every thread makes BATCHES batches of LAUNCHES launches of an empty kernel on its own stream and
 * prints the nanoseconds per launch of each batch; between batches it waits for its stream, outside
 * of the measured time. */
#define _GNU_SOURCE
#define DRIVER_MAY_LACK
#include "../../tests/workloads/driver.h"
#include <pthread.h>
#include <time.h>

static const char empty_ptx[] =
    ".version 7.0\n.target sm_60\n.address_size 64\n.visible .entry empty()\n{\nret;\n}\n";

static Context context;
static Function empty;
static int batches, launches;
static pthread_mutex_t printing = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t start;

static double now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}

static void *measure(void *unused) {
    Stream stream;
    (void)unused;
    CHECK(cu.context_set(context));
    CHECK(cu.stream_create(&stream, 1));
    for (int warm = 0; warm < 100; warm++) CHECK(cu.launch(empty, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
    CHECK(cu.stream_synchronize(stream));
    pthread_barrier_wait(&start);
    for (int batch = 0; batch < batches; batch++) {
        double begin = now_ns();
        for (int launch = 0; launch < launches; launch++)
            if (cu.launch(empty, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL)) fail("launch", -1);
        double end = now_ns();
        pthread_mutex_lock(&printing);
        printf("ns=%.3f\n", (end - begin) / launches);
        pthread_mutex_unlock(&printing);
        CHECK(cu.stream_synchronize(stream));
    }
    return NULL;
}

int main(int argc, char **argv) {
    if (argc != 4) { fprintf(stderr, "usage: launches THREADS BATCHES LAUNCHES\n"); return 2; }
    int threads = atoi(argv[1]);
    batches = atoi(argv[2]), launches = atoi(argv[3]);
    pthread_t ids[16];
    if (threads < 1 || threads > 16) return 2;
    Module module;
    context = open_device(0);
    CHECK(cu.module_load(&module, empty_ptx));
    CHECK(cu.module_function(&empty, module, "empty"));
    pthread_barrier_init(&start, NULL, threads);
    for (int id = 0; id < threads; id++) pthread_create(&ids[id], NULL, measure, NULL);
    for (int id = 0; id < threads; id++) pthread_join(ids[id], NULL);
    return 0;
}
