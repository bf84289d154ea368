/* copies: the rate of one large copy to the host and back, in the simplest way: pinned memory, one stream.
 *
 *   copies BYTES
 *
 * Prints `bytes_per_s=R` over both directions, one after the other. */
#define _GNU_SOURCE
#include "../../tests/workloads/driver.h"
#include <time.h>

#define PIECE_BYTES (4u << 20)

static double now_s(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

int main(int argc, char **argv) {
    if (argc != 2) { fprintf(stderr, "usage: copies BYTES\n"); return 2; }
    size_t bytes = strtoull(argv[1], NULL, 10) & ~(size_t)(PIECE_BYTES - 1);
    DevicePointer pointer;
    Stream stream;
    void *piece;
    open_device(0);
    CHECK(cu.stream_create(&stream, 1));
    CHECK(cu.memory_alloc(&pointer, bytes));
    CHECK(cu.host_alloc(&piece, PIECE_BYTES, 0));
    memset(piece, 1, PIECE_BYTES);
    CHECK(cu.fill_words(pointer, 1, bytes / 4));
    CHECK(cu.context_synchronize());
    double begin = now_s();
    for (size_t at = 0; at < bytes; at += PIECE_BYTES) CHECK(cu.copy_to_host_async(piece, pointer + at, PIECE_BYTES, stream));
    CHECK(cu.stream_synchronize(stream));
    for (size_t at = 0; at < bytes; at += PIECE_BYTES) CHECK(cu.copy_to_device_async(pointer + at, piece, PIECE_BYTES, stream));
    CHECK(cu.stream_synchronize(stream));
    printf("bytes_per_s=%.0f\n", 2 * bytes / (now_s() - begin));
    return 0;
}
