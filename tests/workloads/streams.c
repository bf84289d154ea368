/* streams: three streams fed by two threads, ordered only by events. Block 0 is stepped on stream 0,
 * copied to block 1 and stepped on stream 1, copied to block 2 and stepped on stream 2 by the other thread;
 * a missing wait gives a block with the wrong number of steps. */
#include "workload.h"

#define STREAMS 3
#define NON_BLOCKING 1
#define DISABLE_TIMING 2

static struct Words blocks[STREAMS];
static Stream streams[STREAMS];
static Event written[STREAMS], read_by_next[STREAMS];
static pthread_barrier_t recorded, issued;
static Context context;
static int more = 1;

/* Waits for the block before, copies it, steps the copy. */
static void pass_on(int index) {
    CHECK(cu.stream_wait_event(streams[index], written[index - 1], 0));
    if (index + 1 < STREAMS) CHECK(cu.stream_wait_event(streams[index], read_by_next[index], 0));
    CHECK(cu.copy_within_async(blocks[index].pointer, blocks[index - 1].pointer, blocks[0].words * 8, streams[index]));
    CHECK(cu.event_record(read_by_next[index - 1], streams[index]));
    blocks[index].steps = blocks[index - 1].steps;
    words_step(&blocks[index], streams[index]);
    CHECK(cu.event_record(written[index], streams[index]));
}

static void *other_thread(void *unused) {
    CHECK(cu.context_set(context));
    for (;;) {
        pthread_barrier_wait(&recorded);
        if (!more) return unused;
        pass_on(2);
        pthread_barrier_wait(&issued);
    }
}

int main(int argc, char **argv) {
    read_options(argc, argv);
    context = open_device(options.ordinal);
    words_load();
    for (int index = 0; index < STREAMS; index++) {
        blocks[index] = words_new(options.bytes / STREAMS, options.seed);
        CHECK(cu.stream_create(&streams[index], NON_BLOCKING));
        CHECK(cu.event_create(&written[index], DISABLE_TIMING));
        CHECK(cu.event_create(&read_by_next[index], DISABLE_TIMING));
    }
    pthread_t thread;
    pthread_barrier_init(&recorded, NULL, 2);
    pthread_barrier_init(&issued, NULL, 2);
    if (pthread_create(&thread, NULL, other_thread, NULL)) fail("pthread_create", -1);
    uint64_t done = 0, wrong = 0;
    while (go_on(done)) {
        CHECK(cu.stream_wait_event(streams[0], read_by_next[0], 0));
        words_step(&blocks[0], streams[0]);
        CHECK(cu.event_record(written[0], streams[0]));
        pass_on(1);
        pthread_barrier_wait(&recorded);
        pthread_barrier_wait(&issued);
        if (done % 4 == 3) CHECK(cu.event_synchronize(written[2]));
        done++;
    }
    more = 0;
    pthread_barrier_wait(&recorded);
    pthread_join(thread, NULL);
    for (int index = 0; index < STREAMS; index++) CHECK(cu.stream_synchronize(streams[index]));
    for (int index = 0; index < STREAMS; index++) {
        uint64_t expected = done + (done ? (uint64_t)index : 0);
        if (blocks[index].steps != expected) fail("the count of steps", index);
        wrong += words_wrong(&blocks[index]);
        CHECK(cu.event_destroy(written[index]));
        CHECK(cu.event_destroy(read_by_next[index]));
        CHECK(cu.stream_destroy(streams[index]));
        CHECK(cu.memory_free(blocks[index].pointer));
    }
    return finish(done, wrong);
}
