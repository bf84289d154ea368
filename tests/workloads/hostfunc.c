/* hostfunc: a host function on a stream takes a mutex that another thread holds while it launches. */
#include "workload.h"

#define NON_BLOCKING 1

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct Words other_block;
static Context context;
static volatile int more = 1;
static uint64_t calls, other_rounds;

static void host_function(void *unused) {
    (void)unused;
    pthread_mutex_lock(&mutex);
    calls++;
    pthread_mutex_unlock(&mutex);
}

static void *other_thread(void *stream) {
    CHECK(cu.context_set(context));
    while (more) {
        pthread_mutex_lock(&mutex);
        words_step(&other_block, stream);
        pthread_mutex_unlock(&mutex);
        CHECK(cu.stream_synchronize(stream));
        other_rounds++;
    }
    return NULL;
}

int main(int argc, char **argv) {
    read_options(argc, argv);
    context = open_device(options.ordinal);
    words_load();
    Stream ours, others;
    CHECK(cu.stream_create(&ours, NON_BLOCKING));
    CHECK(cu.stream_create(&others, NON_BLOCKING));
    struct Words block = words_new(options.bytes / 2, options.seed);
    other_block = words_new(options.bytes / 2, options.seed + 1);
    pthread_t thread;
    if (pthread_create(&thread, NULL, other_thread, others)) fail("pthread_create", -1);
    uint64_t done = 0, wrong = 0;
    while (go_on(done)) {
        words_step(&block, ours);
        CHECK(cu.launch_host_function(ours, host_function, NULL));
        words_step(&block, ours);
        CHECK(cu.stream_synchronize(ours));
        done++;
    }
    more = 0;
    pthread_join(thread, NULL);
    if (calls != done) note_wrong(&wrong, "calls of the host function in round", done, (double)calls, (double)done);
    if (other_block.steps != other_rounds || !other_rounds) fail("the other thread's rounds", (int)other_rounds);
    wrong += words_wrong(&block) + words_wrong(&other_block);
    CHECK(cu.memory_free(block.pointer));
    CHECK(cu.memory_free(other_block.pointer));
    return finish(done, wrong);
}
