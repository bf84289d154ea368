/*
 * Step 4: the cost of cuMemHostRegister by kind of host pages (memfd of 4 KiB pages,
 * sealed, with transparent huge pages, of hugetlb pages; anonymous memory; memory of
 * the driver's own), and the copy rates that each gives. Changes no system setting.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "session.h"
#include "steps.h"

enum kind { MEMFD, MEMFD_SEALED, MEMFD_UNTOUCHED, MEMFD_THP, MEMFD_HUGETLB, ANONYMOUS,
	    ANONYMOUS_THP, DRIVER_OWN, KINDS };
static const char *const kind_name[KINDS] = {
	"memfd", "memfd sealed", "memfd untouched", "memfd huge advised", "memfd hugetlb",
	"anonymous", "anonymous huge advised", "cuMemHostAlloc"};

static int is_memfd(enum kind kind)
{
	return kind <= MEMFD_HUGETLB;
}

/* Maps memory of the kind, or records why it cannot. */
static char *map_kind(enum kind kind, size_t bytes)
{
	unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
	const char *failed = NULL;
	char *memory = MAP_FAILED;
	int fd = -1;

	if (kind == MEMFD_HUGETLB)
		flags |= MFD_HUGETLB | (21u << 26); /* pages of 2^21 bytes */
	if (is_memfd(kind) && (fd = memfd_create("gpu-probe", flags)) < 0)
		failed = "memfd_create";
	else if (is_memfd(kind) && ftruncate(fd, (off_t)bytes) != 0)
		failed = "ftruncate";
	else if (kind == MEMFD_SEALED &&
		 fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
		failed = "F_ADD_SEALS";
	else
		memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			      is_memfd(kind) ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS, fd, 0);
	if (!failed && memory == MAP_FAILED)
		failed = kind == MEMFD_HUGETLB ? "mmap (vm.nr_hugepages reserves too few)" : "mmap";
	if (failed) {
		record_begin("host memory refused");
		record_text("kind", kind_name[kind]);
		record_int("mib", (long long)(bytes / MIB));
		record_text("call", failed);
		record_text("why", strerror(errno));
		record_end();
	} else if (kind == MEMFD_THP || kind == ANONYMOUS_THP) {
		madvise(memory, bytes, MADV_HUGEPAGE);
	} else if (kind != MEMFD_HUGETLB) {
		madvise(memory, bytes, MADV_NOHUGEPAGE);
	}
	if (fd >= 0)
		close(fd);
	return memory;
}

/* Rate in GB/s of one pass over the memory, in pieces of 64 MiB. */
static double pass(CUdeviceptr device, char *host, size_t bytes, int to_device)
{
	size_t piece = bytes < 64 * MIB ? bytes : 64 * MIB;
	double start = now_us();

	for (size_t at = 0; at + piece <= bytes; at += piece) {
		CUresult result = to_device ? CU(cuMemcpyHtoDAsync, device, host + at, piece, NULL)
					    : CU(cuMemcpyDtoHAsync, host + at, device, piece, NULL);
		if (!driver_check(result, to_device ? "cuMemcpyHtoDAsync" : "cuMemcpyDtoHAsync",
				  "register"))
			return 0.0 / 0.0;
	}
	if (!TRY("register", cuCtxSynchronize))
		return 0.0 / 0.0;
	return (double)(bytes / piece * piece) / (now_us() - start) / 1e3;
}

static void one_kind(enum kind kind, size_t bytes, CUdeviceptr device)
{
	char *memory = MAP_FAILED;
	double start, touch_ms = 0, register_ms, in, out;

	if (kind != DRIVER_OWN && (memory = map_kind(kind, bytes)) == MAP_FAILED)
		return;
	start = now_ms();
	if (kind != DRIVER_OWN && kind != MEMFD_UNTOUCHED) {
		for (size_t at = 0; at < bytes; at += 4096)
			memory[at] = 1;
		touch_ms = now_ms() - start;
	}
	start = now_ms();
	CUresult result = kind == DRIVER_OWN
		? CU(cuMemHostAlloc, (void **)&memory, bytes, HOST_ALLOC_PORTABLE)
		: CU(cuMemHostRegister, memory, bytes, HOST_REGISTER_PORTABLE);
	register_ms = now_ms() - start;
	if (driver_check(result, kind == DRIVER_OWN ? "cuMemHostAlloc" : "cuMemHostRegister",
			 kind_name[kind])) {
		pass(device, memory, bytes, 1); /* the first pass is slower */
		in = pass(device, memory, bytes, 1);
		out = pass(device, memory, bytes, 0);
		start = now_ms();
		if (kind == DRIVER_OWN)
			TRY("register", cuMemFreeHost, memory);
		else
			TRY("register", cuMemHostUnregister, memory);
		record_begin("host registration");
		record_text("kind", kind_name[kind]);
		record_int("mib", (long long)(bytes / MIB));
		record_real("touch_ms", touch_ms);
		record_real("register_ms", register_ms);
		record_real("register_ms_per_gib", register_ms * (double)GIB / (double)bytes);
		record_real("unregister_ms", now_ms() - start);
		record_real("to_device_gb_s", in);
		record_real("to_host_gb_s", out);
		record_end();
	}
	if (kind != DRIVER_OWN)
		munmap(memory, bytes);
}

struct part {
	pthread_t thread;
	CUcontext context;
	char *memory;
	size_t bytes;
	CUresult result;
};

static void *register_part(void *argument)
{
	struct part *part = argument;

	part->result = CU(cuCtxSetCurrent, part->context);
	if (part->result == CUDA_SUCCESS)
		part->result = CU(cuMemHostRegister, part->memory, part->bytes, HOST_REGISTER_PORTABLE);
	return NULL;
}

/* Does registration by four threads at once go faster than by one? */
static void by_threads(struct session *session, size_t bytes)
{
	struct part part[4];
	size_t each = bytes / 4 / (2 * MIB) * (2 * MIB);
	char *memory = map_kind(MEMFD, bytes);
	int failures = 0, started = 0;

	if (memory == MAP_FAILED || each == 0)
		return;
	memset(memory, 1, bytes);
	double start = now_ms();
	for (; started < 4; started++) {
		part[started] = (struct part){.context = session->context, .bytes = each,
					      .memory = memory + (size_t)started * each};
		if (pthread_create(&part[started].thread, NULL, register_part, &part[started]) != 0)
			break;
	}
	for (int i = 0; i < started; i++)
		pthread_join(part[i].thread, NULL);
	double ms = now_ms() - start;
	for (int i = 0; i < started; i++) {
		failures += part[i].result != CUDA_SUCCESS;
		if (part[i].result == CUDA_SUCCESS)
			TRY("threads", cuMemHostUnregister, part[i].memory);
	}
	record_begin("registration by threads");
	record_int("threads", started);
	record_int("failures", failures);
	record_int("mib", (long long)(4 * each / MIB));
	record_real("register_ms_per_gib", ms * (double)GIB / (double)(4 * each));
	record_end();
	munmap(memory, bytes);
}

int step_register(void)
{
	static const size_t sizes[] = {64, 1024, 256};
	struct session session;
	CUdeviceptr device = 0;
	struct rlimit locked;

	if (!session_open(&session) || !TRY("register", cuMemAlloc, &device, 64 * MIB))
		return EXIT_STEP_FAILED;
	getrlimit(RLIMIT_MEMLOCK, &locked);
	record_begin("limits");
	record_int("memlock_mib", locked.rlim_cur == RLIM_INFINITY
					  ? -1 : (long long)(locked.rlim_cur / MIB));
	record_int("huge_pages_free", host_status_number("/proc/meminfo", "HugePages_Free"));
	record_int("available_mib", (long long)(host_available_bytes() / MIB));
	record_end();
	for (size_t i = 0; i < (options.quick ? 1 : 3); i++)
		for (enum kind kind = 0; kind < KINDS && left_ms() > 5000; kind++)
			if (host_share(sizes[i] * MIB) == sizes[i] * MIB)
				one_kind(kind, sizes[i] * MIB, device);
	size_t bytes = host_share(options.quick ? 64 * MIB : GIB);
	if (left_ms() > 4000)
		by_threads(&session, bytes);
	return EXIT_DONE;
}
