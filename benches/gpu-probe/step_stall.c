/*
 * Step 3: does mapping work (create, map, access, unmap, release) stall the kernels or
 * the launches of another process, is it slower beside them, and which calls wait for
 * a kernel of the calling process?
 */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "session.h"
#include "steps.h"

/* Peer: "watch MS" runs watch kernels of 2 ms one after the other and says what they saw:
 * longest gap in a kernel, sum and count of gaps over 50 us, and the longest wall time of
 * one launch with its synchronise, all in microseconds. */
int role_watch(int count, char **arguments)
{
	struct session session;
	CUdeviceptr out = 0;
	char line[64];
	double ms;

	(void)count;
	(void)arguments;
	if (!session_open(&session) || !session_kernels(&session) ||
	    !TRY("watch", cuMemAlloc, &out, 64)) {
		role_say("failed: the watching peer could not start");
		return EXIT_STEP_FAILED;
	}
	role_say("ready");
	while (role_hear(line, sizeof line, 30000)) {
		uint64_t seen[4] = {0};
		const uint64_t parameters[] = {out, 2000000};
		double start = now_ms(), longest_us = 0;
		int good = sscanf(line, "watch %lf", &ms) == 1 &&
			   TRY("watch", cuMemcpyHtoD, out, seen, sizeof seen);
		while (good && now_ms() - start < ms) {
			double launched = now_us();
			good = driver_check(launch(session.watch, 1, 1, NULL, parameters, 2),
					    "cuLaunchKernel", "watch") &&
			       TRY("watch", cuCtxSynchronize);
			if (now_us() - launched > longest_us)
				longest_us = now_us() - launched;
		}
		if (good && TRY("watch", cuMemcpyDtoH, seen, out, sizeof seen))
			role_say("saw %.3f %.3f %llu %.3f", (double)seen[0] / 1e3,
				 (double)seen[1] / 1e3, (unsigned long long)seen[2], longest_us);
		else
			role_say("failed: the watch kernel failed");
	}
	return EXIT_DONE;
}

static void record_saw(struct peer *peer, const char *during)
{
	double longest, sum, wall;
	unsigned long long count;
	char rest[128];

	if (!peer_await(peer, "saw", rest, sizeof rest, 6000) ||
	    sscanf(rest, "%lf %lf %llu %lf", &longest, &sum, &count, &wall) != 4)
		return;
	record_begin("kernels of the other process");
	record_text("during", during);
	record_real("longest_gap_us", longest);
	record_real("gaps_over_50us_sum_us", sum);
	record_int("gaps_over_50us", (long long)count);
	record_real("longest_2ms_launch_us", wall);
	record_end();
}

/* Backs and unbacks a range again and again for `ms`. */
static int mapping_work(struct range *range, double ms, const char *beside)
{
	static struct samples in, out;
	double start = now_ms();

	in.count = out.count = 0;
	while (now_ms() - start < ms) {
		double begin = now_us();
		if (!range_back(range))
			return 0;
		sample(&in, (now_us() - begin) / (double)range->count);
		begin = now_us();
		if (!range_unback(range))
			return 0;
		sample(&out, (now_us() - begin) / (double)range->count);
	}
	record_begin("mapping work by handle");
	record_text("beside", beside);
	record_int("chunk_mib", (long long)(range->chunk / MIB));
	record_real("in_us", sample_mean(&in));
	record_real("in_max_us", sample_quantile(&in, 1));
	record_real("out_us", sample_mean(&out));
	record_real("out_max_us", sample_quantile(&out, 1));
	record_end();
	return 1;
}

static int beside_a_peer(size_t chunk)
{
	size_t bytes = device_free_bytes() / 4 < GIB ? device_free_bytes() / 4 / chunk * chunk : GIB;
	double ms = options.quick ? 300 : 800;
	static struct peer peer;
	struct range range;
	char line[32];

	if (bytes == 0 || !range_reserve(&range, bytes > 16 * chunk ? 16 * chunk : bytes, chunk))
		return 0;
	int good = mapping_work(&range, ms, "an idle card");
	if (good && peer_startf(&peer, "watch", "%s", "")) {
		snprintf(line, sizeof line, "watch %.0f", ms);
		peer_tell(&peer, line);
		record_saw(&peer, "nothing else");
		snprintf(line, sizeof line, "watch %.0f", ms + 300);
		peer_tell(&peer, line);
		sleep_ms(100);
		good = mapping_work(&range, ms, "kernels of another process");
		record_saw(&peer, "mapping work");
		peer_end(&peer);
	}
	range_free(&range);
	return good;
}

/* One object of each kind, made by one call and unmade by a later one. */
struct subject {
	CUdeviceptr at, plain;
	CUmemHandle handle;
	void *memory, *pinned;
	size_t bytes;
};

static CUresult call_reserve(struct subject *s) { return CU(cuMemAddressReserve, &s->at, s->bytes, 0, 0, 0); }
static CUresult call_create(struct subject *s)
{
	CUmemAllocationProp properties = frame_properties(0, HANDLE_NONE);

	return CU(cuMemCreate, &s->handle, s->bytes, &properties, 0);
}
static CUresult call_map(struct subject *s) { return CU(cuMemMap, s->at, s->bytes, 0, s->handle, 0); }
static CUresult call_access(struct subject *s) { return range_access(s->at, s->bytes); }
static CUresult call_unmap(struct subject *s) { return CU(cuMemUnmap, s->at, s->bytes); }
static CUresult call_release(struct subject *s) { return CU(cuMemRelease, s->handle); }
static CUresult call_address_free(struct subject *s) { return CU(cuMemAddressFree, s->at, s->bytes); }
static CUresult call_alloc(struct subject *s) { return CU(cuMemAlloc, &s->plain, s->bytes); }
static CUresult call_free(struct subject *s) { return CU(cuMemFree, s->plain); }
static CUresult call_register(struct subject *s) { return CU(cuMemHostRegister, s->memory, s->bytes, 0); }
static CUresult call_unregister(struct subject *s) { return CU(cuMemHostUnregister, s->memory); }
static CUresult call_host_alloc(struct subject *s) { return CU(cuMemHostAlloc, &s->pinned, s->bytes, 0); }
static CUresult call_host_free(struct subject *s) { return CU(cuMemFreeHost, s->pinned); }
static CUresult call_info(struct subject *s)
{
	size_t unused, total;

	(void)s;
	return CU(cuMemGetInfo, &unused, &total);
}

static const struct {
	const char *name;
	CUresult (*call)(struct subject *);
} calls[] = {
	{"cuMemAddressReserve", call_reserve}, {"cuMemCreate", call_create},
	{"cuMemMap", call_map}, {"cuMemSetAccess", call_access},
	{"cuMemUnmap", call_unmap}, {"cuMemRelease", call_release},
	{"cuMemAddressFree", call_address_free}, {"cuMemAlloc", call_alloc},
	{"cuMemFree", call_free}, {"cuMemHostRegister", call_register},
	{"cuMemHostUnregister", call_unregister}, {"cuMemHostAlloc", call_host_alloc},
	{"cuMemFreeHost", call_host_free}, {"cuMemGetInfo", call_info},
};

/* Clock cycles of the spin kernel that take a millisecond. */
static double cycles_per_ms(struct session *session)
{
	const uint64_t cycles = 20000000;
	double start = 0;

	for (int warm = 0; warm < 2; warm++) {
		start = now_ms();
		if (!driver_check(launch(session->spin, 1, 1, NULL, &cycles, 1), "cuLaunchKernel", "spin") ||
		    !TRY("spin", cuCtxSynchronize))
			return 0;
	}
	double ms = now_ms() - start;
	return ms > 0 ? (double)cycles / ms : 0;
}

static int own_kernel_running(struct session *session)
{
	double per_ms = cycles_per_ms(session), kernel_ms = options.quick ? 60 : 120;
	const uint64_t cycles = (uint64_t)(per_ms * kernel_ms);
	struct subject subject = {.bytes = 32 * MIB};
	CUstream stream;

	subject.memory = mmap(NULL, subject.bytes, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (per_ms <= 0 || subject.memory == MAP_FAILED ||
	    !TRY("own kernel", cuStreamCreate, &stream, STREAM_NON_BLOCKING))
		return 0;
	for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
		if (!driver_check(launch(session->spin, 1, 1, stream, &cycles, 1), "cuLaunchKernel",
				  "own kernel"))
			return 0;
		sleep_ms(5); /* for the kernel to have begun */
		double start = now_ms();
		CUresult result = calls[i].call(&subject);
		double ms = now_ms() - start;
		int running = CU(cuStreamQuery, stream) == CUDA_ERROR_NOT_READY;
		record_begin("call while an own kernel runs");
		record_text("call", calls[i].name);
		record_int("code", result);
		record_real("ms", ms);
		record_real("kernel_ms", kernel_ms);
		record_bool("kernel_still_running", running);
		record_end();
		if (!TRY("own kernel", cuStreamSynchronize, stream))
			return 0;
	}
	return 1;
}

int step_stall(void)
{
	struct session session;

	if (!session_open(&session) || !session_kernels(&session))
		return EXIT_STEP_FAILED;
	int good = beside_a_peer(64 * MIB);
	if (!options.quick && left_ms() > 8000)
		good &= beside_a_peer(2 * MIB);
	good &= own_kernel_running(&session);
	return good ? EXIT_DONE : EXIT_STEP_FAILED;
}
