/* What the small test programs share. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHECK(condition) \
    do { if (!(condition)) { printf("line %d: not so: %s\n", __LINE__, #condition); fflush(stdout); _exit(1); } } while (0)

/* Whether the address lies in a loaded file whose name contains the text. */
static inline int lies_in(void *address, const char *text) {
    Dl_info info;
    return address && dladdr(address, &info) && strstr(info.dli_fname, text);
}

static inline int entries_of(const char *directory) {
    int count = 0;
    DIR *open = opendir(directory);
    while (open && readdir(open)) count++;
    if (open) closedir(open);
    return count;
}

/* Launches of the fake driver so far, whatever the road. */
static inline int launches(void *driver) {
    int (*ask)(void) = (int (*)(void))dlsym(driver, "fake_launches");
    return ask();
}

typedef int (*Launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
