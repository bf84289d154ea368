/* memory: what the driver says about memory must add up. Allocates pieces of --bytes until there is no more,
 * goes on working with what it has, and prints `total=N free=N granted=N`. */
#include "workload.h"

#define PIECES 4096

static size_t total_bytes, free_bytes;
static uint64_t wrong;

static void look(uint64_t in_use, const char *when) {
    size_t before = total_bytes;
    CHECK(cu.memory_info(&free_bytes, &total_bytes));
    if (before && total_bytes != before) note_wrong(&wrong, when, in_use, (double)total_bytes, (double)before);
    if (free_bytes > total_bytes) note_wrong(&wrong, when, in_use, (double)free_bytes, (double)total_bytes);
    if (free_bytes + in_use > total_bytes)
        note_wrong(&wrong, "free beside what is in use, total", total_bytes, (double)free_bytes, (double)(total_bytes - in_use));
}

int main(int argc, char **argv) {
    read_options(argc, argv);
    open_device(options.ordinal);
    words_load();
    size_t device_bytes;
    look(0, "total at the start");
    CHECK(cu.device_total(&device_bytes, options.ordinal));
    if (device_bytes != total_bytes)
        note_wrong(&wrong, "cuDeviceTotalMem", 0, (double)device_bytes, (double)total_bytes);
    size_t free_at_start = free_bytes;
    static struct Words pieces[PIECES];
    uint64_t count = 0, granted = 0;
    for (;; count++) {
        DevicePointer pointer = 0x123;
        if (count == PIECES) fail("too many pieces", (int)count);
        int code = cu.memory_alloc(&pointer, options.bytes);
        if (code) {
            if (code != 2 || pointer != 0x123) note_wrong(&wrong, "code of refused allocation", count, code, 2);
            break;
        }
        CHECK(cu.memory_free(pointer));
        pieces[count] = words_new(options.bytes, options.seed + count);
        granted += options.bytes;
        look(granted, "total with so many bytes");
    }
    /* Refusing what was said to be free, or granting much more, would both be lies. */
    if (granted + options.bytes + (1 << 20) < free_at_start || granted > free_at_start + options.bytes)
        note_wrong(&wrong, "granted bytes", count, (double)granted, (double)free_at_start);
    for (uint64_t round = 0; round < 3; round++)
        for (uint64_t index = 0; index < count; index++) words_step(&pieces[index], NULL);
    for (uint64_t index = 0; index < count; index++) {
        wrong += words_wrong(&pieces[index]);
        CHECK(cu.memory_free(pieces[index].pointer));
    }
    DevicePointer again;
    CHECK(cu.memory_alloc(&again, options.bytes));
    CHECK(cu.memory_free(again));
    printf("total=%zu free=%zu granted=%llu\n", total_bytes, free_at_start, (unsigned long long)granted);
    return finish(count, wrong);
}
