/* ranges: copies and fills that leave an allocation, or touch a freed one, are refused and change
 * nothing, while those that end exactly where it ends work; small allocations lie side by side, and
 * the program is told the sizes that it asked for. The codes are those of the driver by itself. */
#include "workload.h"

enum { DONE = 0, REFUSED = 1, RANGE_START = 11, RANGE_SIZE = 12 };
enum { TINY = 5, ROWS = 64, ROW_BYTES = 512, SMALL = ROWS * ROW_BYTES, ODD = 1000003, OWN = 2 << 20 };

struct Plane {
    size_t from_x, from_y;
    unsigned from_type;
    const void *from_host;
    DevicePointer from;
    void *from_array;
    size_t from_pitch, to_x, to_y;
    unsigned to_type;
    void *to_host;
    DevicePointer to;
    void *to_array;
    size_t to_pitch, width, height;
};

static struct {
    Result (*range)(DevicePointer *base, size_t *bytes, DevicePointer pointer);
    Result (*attribute)(void *data, int attribute, DevicePointer pointer);
    Result (*copy)(DevicePointer to, DevicePointer from, size_t bytes);
    Result (*copy_async)(DevicePointer to, DevicePointer from, size_t bytes, Stream stream);
    Result (*copy_plane)(const struct Plane *plane);
    Result (*fill_async)(DevicePointer to, unsigned char value, size_t count, Stream stream);
    Result (*fill_halves)(DevicePointer to, unsigned short value, size_t count);
    Result (*fill_rows)(DevicePointer to, size_t pitch, unsigned char value, size_t width, size_t height);
} more;

static void load_more(void) {
    *(void **)&more.range = dlsym(driver_library, "cuMemGetAddressRange_v2");
    *(void **)&more.attribute = dlsym(driver_library, "cuPointerGetAttribute");
    *(void **)&more.copy = dlsym(driver_library, "cuMemcpy");
    *(void **)&more.copy_async = dlsym(driver_library, "cuMemcpyAsync");
    *(void **)&more.copy_plane = dlsym(driver_library, "cuMemcpy2D_v2");
    *(void **)&more.fill_async = dlsym(driver_library, "cuMemsetD8Async");
    *(void **)&more.fill_halves = dlsym(driver_library, "cuMemsetD16_v2");
    *(void **)&more.fill_rows = dlsym(driver_library, "cuMemsetD2D8_v2");
}

static uint64_t wrong;

static void expect(int line, const char *call, int is, int right) {
    if (is != right && !wrong++) fprintf(stderr, "ranges.c:%d: %s answered %d, not %d\n", line, call, is, right);
}
#define EXPECT(right, call) expect(__LINE__, #call, call, right)

/* An allocation of which every byte has the same value. */
struct Block { DevicePointer at; size_t bytes; unsigned char value; };
static struct Block tiny, small, odd, large;
static unsigned char *host;

static struct Block block_new(size_t bytes, unsigned char value) {
    struct Block block = {0, bytes, value};
    CHECK(cu.memory_alloc(&block.at, bytes));
    CHECK(cu.fill_bytes(block.at, value, bytes));
    return block;
}

static void verify(const struct Block *block) {
    for (size_t at = 0; at < block->bytes; at += PIECE_BYTES) {
        size_t bytes = block->bytes - at < PIECE_BYTES ? block->bytes - at : PIECE_BYTES;
        EXPECT(DONE, cu.copy_to_host(host, block->at + at, bytes));
        for (size_t byte = 0; byte < bytes; byte++)
            if (host[byte] != block->value) note_wrong(&wrong, "byte", at + byte, host[byte], block->value);
    }
}

static void ask(const struct Block *block) {
    DevicePointer base = 0, start = 0;
    size_t bytes = 0, length = 0;
    EXPECT(DONE, more.range(&base, &bytes, block->at + block->bytes - 1));
    EXPECT(DONE, more.attribute(&start, RANGE_START, block->at + block->bytes - 1));
    EXPECT(DONE, more.attribute(&length, RANGE_SIZE, block->at + block->bytes - 1));
    if (base != block->at || start != block->at) note_wrong(&wrong, "base of", block->at, base, block->at);
    if (bytes != block->bytes || length != block->bytes)
        note_wrong(&wrong, "length at", block->at, bytes, block->bytes);
}

static void fills(unsigned char value) {
    small.value = value;
    EXPECT(REFUSED, cu.fill_bytes(tiny.at, 0xee, SMALL + 4));
    EXPECT(REFUSED, cu.fill_bytes(tiny.at, 0xee, TINY + 1));
    EXPECT(REFUSED, cu.fill_bytes(tiny.at + 4, 0xee, 2));
    EXPECT(REFUSED, more.fill_async(odd.at, 0xee, ODD + 1, NULL));
    EXPECT(REFUSED, more.fill_async(odd.at, 0xee, 1 << 30, NULL));
    EXPECT(REFUSED, cu.fill_words(small.at, 0xeeeeeeee, SMALL / 4 + 1));
    EXPECT(REFUSED, cu.fill_words(small.at, 0xeeeeeeee, (size_t)1 << 62));
    EXPECT(REFUSED, more.fill_halves(small.at + 2, 0xeeee, SMALL / 2));
    EXPECT(REFUSED, more.fill_rows(small.at, ROW_BYTES, 0xee, ROW_BYTES, ROWS + 1));
    EXPECT(REFUSED, more.fill_rows(small.at + 256, ROW_BYTES, 0xee, 257, ROWS));
    EXPECT(DONE, cu.fill_bytes(small.at + SMALL, 0xee, 0));
    EXPECT(DONE, cu.fill_bytes(tiny.at, tiny.value, TINY));
    EXPECT(DONE, more.fill_rows(small.at, ROW_BYTES, value, 256, ROWS));
    EXPECT(DONE, more.fill_rows(small.at + 256, ROW_BYTES, value, 256, ROWS));
    EXPECT(DONE, more.fill_halves(odd.at + 2, odd.value * 0x101, ODD / 2 - 1));
    EXPECT(DONE, more.fill_async(odd.at + ODD - 1, odd.value, 1, NULL));
}

static void copies(void) {
    struct Plane plane = {.from_type = 2, .from = small.at, .from_pitch = ROW_BYTES, .to_type = 1,
                          .to_host = host, .to_pitch = ROW_BYTES, .width = ROW_BYTES, .height = ROWS};
    EXPECT(DONE, more.copy_plane(&plane));
    plane.from_x = 1;
    EXPECT(REFUSED, more.copy_plane(&plane));
    plane.from_x = 0, plane.height++;
    EXPECT(REFUSED, more.copy_plane(&plane));
    memset(host, 0xee, 2 * PIECE_BYTES);
    EXPECT(REFUSED, cu.copy_to_device(small.at + 1, host, SMALL));
    EXPECT(REFUSED, cu.copy_to_device_async(small.at, host, SMALL + 1, NULL));
    EXPECT(REFUSED, cu.copy_to_host(host, odd.at, ODD + 97));
    EXPECT(REFUSED, cu.copy_to_host_async(host, odd.at + 3, ODD - 2, NULL));
    EXPECT(REFUSED, cu.copy_within(small.at, odd.at, SMALL + 1));
    EXPECT(REFUSED, cu.copy_within_async(large.at, odd.at + ODD - 8, 9, NULL));
    EXPECT(REFUSED, more.copy(odd.at, (DevicePointer)(uintptr_t)host, ODD + 1));
    EXPECT(REFUSED, more.copy_async((DevicePointer)(uintptr_t)host, small.at, SMALL + 1, NULL));
    EXPECT(DONE, cu.copy_to_host(host, odd.at, ODD));
    EXPECT(DONE, more.copy(odd.at, (DevicePointer)(uintptr_t)host, ODD));
    EXPECT(DONE, cu.copy_within(odd.at + ODD - 8, odd.at, 8));
}

static void freed(size_t bytes) {
    struct Block block = block_new(bytes, 0x77);
    CHECK(cu.memory_free(block.at));
    EXPECT(REFUSED, cu.fill_bytes(block.at, 0xee, 1));
    EXPECT(REFUSED, cu.copy_to_host(host, block.at + bytes / 2, 1));
}

int main(int argc, char **argv) {
    read_options(argc, argv);
    open_device(options.ordinal);
    load_more();
    host = must_malloc(2 * PIECE_BYTES);
    tiny = block_new(TINY, 0x11);
    small = block_new(SMALL, 0x22);
    odd = block_new(ODD, 0x33);
    large = block_new(options.bytes - 2 * OWN, 0x44);
    uint64_t done = 0;
    int more_rounds;
    do {
        ask(&tiny), ask(&small), ask(&odd), ask(&large);
        fills((unsigned char)(done + 0x80));
        copies();
        freed(300 << 10), freed(OWN);
        EXPECT(DONE, cu.context_synchronize());
        more_rounds = go_on(++done);
        verify(&tiny), verify(&small), verify(&odd), verify(&large);
    } while (more_rounds);
    CHECK(cu.memory_free(tiny.at));
    CHECK(cu.memory_free(small.at));
    CHECK(cu.memory_free(odd.at));
    CHECK(cu.memory_free(large.at));
    return finish(done, wrong);
}
