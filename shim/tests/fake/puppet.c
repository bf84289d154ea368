/* A CUDA program that does what it is told, one command a line, and says what became of it. */
#include "program.h"
#include <sys/wait.h>

static void *driver;
static void *context;
static void *get(const char *name) { return dlsym(driver, name); }
static void say(const char *what, int result) { printf("%s %d\n", what, result); fflush(stdout); }

static int launch(const char *name, uintptr_t kernel, void *stream) {
    void *some[1];
    return ((Launch)get(name))((void *)kernel, 1, 2, 3, 4, 5, 6, 7, stream, some, some);
}

static int copy(void) { return ((int (*)(uint64_t, const void *, size_t))get("cuMemcpyHtoD_v2"))(0, "", 1); }
static int fill(void) { return ((int (*)(uint64_t, unsigned char, size_t))get("cuMemsetD8_v2"))(0, 1, 1); }

static void *apart(void *kernel) { say("apart", launch("cuLaunchKernel", (uintptr_t)kernel, 0)); return 0; }
static void *leave(void *unused) { exit(7); }

static void obey(char *line) {
    pthread_t thread;
    if (!strcmp(line, "init")) say(line, ((int (*)(unsigned))get("cuInit"))(0));
    else if (!strcmp(line, "context")) say(line, ((int (*)(void **, unsigned, int))get("cuCtxCreate_v2"))(&context, 0, 0));
    else if (!strcmp(line, "destroy")) say(line, ((int (*)(void *))get("cuCtxDestroy_v2"))(context));
    else if (!strncmp(line, "launch ", 7)) say("launch", launch("cuLaunchKernel", atoi(line + 7), 0));
    else if (!strcmp(line, "legacy")) say(line, launch("cuLaunchKernel", 1, (void *)1));
    else if (!strcmp(line, "per-thread")) say(line, launch("cuLaunchKernel", 1, (void *)2));
    else if (!strcmp(line, "ptsz")) say(line, launch("cuLaunchKernel_ptsz", 1, 0));
    else if (!strcmp(line, "copy")) say(line, copy());
    else if (!strcmp(line, "fill")) say(line, fill());
    else if (!strncmp(line, "apart ", 6)) pthread_create(&thread, 0, apart, (void *)(uintptr_t)atoi(line + 6));
    else if (!strcmp(line, "synchronise")) say(line, ((int (*)(void))get("cuCtxSynchronize"))());
    else if (!strcmp(line, "query")) say(line, ((int (*)(void *))get("cuStreamQuery"))(0));
    else if (!strcmp(line, "record")) say(line, ((int (*)(void *, void *))get("cuEventRecord"))(0, 0));
    else if (!strcmp(line, "begin")) say(line, ((int (*)(void *, int))get("cuStreamBeginCapture_v2"))((void *)64, 0));
    else if (!strcmp(line, "end")) { void *graph; say(line, ((int (*)(void *, void **))get("cuStreamEndCapture"))((void *)64, &graph)); }
    else if (!strcmp(line, "module")) { void *module; say(line, ((int (*)(void **, const void *))get("cuModuleLoadData"))(&module, "")); }
    else if (!strcmp(line, "async")) {
        uint64_t address = 0;
        int result = ((int (*)(uint64_t *, size_t, void *))get("cuMemAllocAsync"))(&address, 4096, (void *)2);
        say(line, address == 0x20000 ? result : -1);
    }
    else if (!strcmp(line, "launches")) say(line, launches(driver));
    else if (!strcmp(line, "threads")) say(line, entries_of("/proc/self/task") - 2);
    else if (!strcmp(line, "fork")) {
        pid_t child = fork();
        if (!child) {
            int descriptors = 0, target[64];
            int result = launch("cuLaunchKernel", 1, 0);
            _exit(result || entries_of("/proc/self/task") != 3 ? 1 : 0);
        }
        int status = -1;
        waitpid(child, &status, 0);
        say(line, status);
    }
    else if (!strcmp(line, "fork-init")) {
        pid_t child = fork();
        if (!child) _exit(((int (*)(unsigned))get("cuInit"))(0) || launch("cuLaunchKernel", 1, 0));
        int status = -1;
        waitpid(child, &status, 0);
        say(line, status);
    }
    else if (!strcmp(line, "fork-and-stay")) {
        if (!fork()) { alarm(60); pause(); _exit(0); } // It outlives the test, but not for long.
        say(line, 0);
    }
    else if (!strcmp(line, "exit")) exit(0);
    else if (!strcmp(line, "exit-apart")) { pthread_create(&thread, 0, leave, 0); pause(); }
    else say("what?", -1);
}

static void at_end(void) { if (getenv("LATE_LAUNCH")) say("late", launch("cuLaunchKernel", 1, 0)); }

static void handler(int number) { say("signal", number); }

int main(void) {
    char line[64];
    atexit(at_end);
    signal(SIGUSR1, handler);
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    CHECK(driver);
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = 0;
        obey(line);
    }
    return 0;
}
