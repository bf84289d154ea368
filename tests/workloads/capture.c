/* capture: a graph captured from a stream once and replayed in each round. The addresses in it were
 * looked up at capture and at instantiation; they must hold for ever. */
#include "workload.h"

#define NON_BLOCKING 1
#define THREAD_LOCAL 1

int main(int argc, char **argv) {
    read_options(argc, argv);
    open_device(options.ordinal);
    words_load();
    Stream stream;
    CHECK(cu.stream_create(&stream, NON_BLOCKING));
    struct Words first = words_new(options.bytes / 3, options.seed), second = words_new(options.bytes / 3, options.seed + 1);
    DevicePointer copy;
    CHECK(cu.memory_alloc(&copy, first.words * 8));
    Graph graph;
    GraphExec exec;
    CHECK(cu.capture_begin(stream, THREAD_LOCAL));
    words_step(&first, stream);
    /* Keeps what the block was after one step of each replay. */
    CHECK(cu.copy_within_async(copy, first.pointer, first.words * 8, stream));
    words_step(&first, stream);
    words_step(&second, stream);
    CHECK(cu.capture_end(stream, &graph));
    CHECK(cu.graph_instantiate(&exec, graph, 0));
    CHECK(cu.graph_destroy(graph));
    first.steps = second.steps = 0;
    uint64_t done = 0, wrong = 0;
    while (go_on(done)) {
        CHECK(cu.graph_launch(exec, stream));
        CHECK(cu.stream_synchronize(stream));
        done++;
    }
    first.steps = done * 2;
    second.steps = done;
    wrong = words_wrong(&first) + words_wrong(&second);
    struct Words kept = first;
    kept.pointer = copy;
    kept.steps = done * 2 - 1;
    if (done) wrong += words_wrong(&kept);
    CHECK(cu.graph_exec_destroy(exec));
    CHECK(cu.memory_free(first.pointer));
    CHECK(cu.memory_free(second.pointer));
    CHECK(cu.memory_free(copy));
    return finish(done, wrong);
}
