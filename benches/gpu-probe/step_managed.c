/*
 * Steps 7 and 8: managed memory. Whether frames created by one process push out the
 * managed pages of another, how fast, and whether the pages survive; and the rates of
 * faults and prefetches beside explicit copies of mapped frames.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "session.h"
#include "steps.h"

enum { SEED = 12345 };

/* Peer: "managed BYTES"; "fill" brings all pages to the device with known content,
 * "check" reads them back on the device. */
int role_managed(int count, char **arguments)
{
	struct session session;
	CUdeviceptr data = 0;
	size_t bytes = count > 0 ? strtoull(arguments[0], NULL, 10) : 0;
	char line[64];

	if (bytes == 0 || !session_open(&session) || !session_kernels(&session) ||
	    !TRY("managed", cuMemAllocManaged, &data, bytes, ATTACH_GLOBAL)) {
		role_say("failed: the peer got no managed memory");
		return EXIT_STEP_FAILED;
	}
	role_say("ready");
	while (role_hear(line, sizeof line, 60000)) {
		double start = now_ms();
		uint64_t sum = 0;
		if (strcmp(line, "fill") == 0 &&
		    TRY("managed", cuMemPrefetchAsync, data, bytes, session.device, NULL) &&
		    device_fill(&session, data, bytes, SEED))
			role_say("filled %.3f", now_ms() - start);
		else if (strcmp(line, "check") == 0 && device_sum(&session, data, bytes, &sum))
			role_say("checked %.3f %d", now_ms() - start, sum == fill_sum(bytes / 8, SEED));
		else
			role_say("failed: %s", line);
	}
	return EXIT_DONE;
}

/* Creates frames beyond what is free, for as long as the driver finds some. */
static void create_beyond_free(size_t most)
{
	enum { CHUNKS = 512 };
	static CUmemHandle handle[CHUNKS];
	static struct samples times;
	CUmemAllocationProp properties = frame_properties(0, HANDLE_NONE);
	size_t chunk = 64 * MIB, free_before = device_free_bytes(), count = 0;
	CUresult result = CUDA_SUCCESS;
	double begin = now_ms();

	times.count = 0;
	while (count < CHUNKS && count * chunk < most && left_ms() > 6000) {
		double start = now_ms();
		result = CU(cuMemCreate, &handle[count], chunk, &properties, 0);
		if (result != CUDA_SUCCESS)
			break;
		sample(&times, now_ms() - start);
		count++;
	}
	double seconds = (now_ms() - begin) / 1e3;
	double evicted = (double)(count * chunk) - (double)free_before;
	record_begin("create beyond free memory");
	record_int("free_before_mib", (long long)(free_before / MIB));
	record_int("created_mib", (long long)(count * chunk / MIB));
	record_int("evicted_mib", evicted > 0 ? (long long)(evicted / (double)MIB) : 0);
	record_real("gb_s", (double)(count * chunk) / seconds / 1e9);
	record_real("create_64mib_ms_p50", sample_quantile(&times, 0.5));
	record_real("create_64mib_ms_max", sample_quantile(&times, 1));
	record_text("ended_by", result ? driver_result_name(result) : "enough");
	record_end();
	while (count > 0)
		CU(cuMemRelease, handle[--count]);
}

int step_evict_managed(void)
{
	size_t most = options.quick ? GIB : 4 * GIB, before, filled;
	static struct peer peer;
	struct session session;
	struct ballast ballast;
	char rest[64];
	double ms;
	int content = 0;

	if (!session_open(&session))
		return EXIT_STEP_FAILED;
	before = device_free_bytes();
	most = before / 4 < most ? before / 4 : most;
	size_t bytes = host_share(most) / (64 * MIB) * (64 * MIB);
	if (bytes == 0) {
		record_note("too little free memory on the device or the host");
		return EXIT_STEP_FAILED;
	}
	if (!peer_startf(&peer, "managed", "%zu", bytes) || !peer_tell(&peer, "fill") ||
	    !peer_await(&peer, "filled", rest, sizeof rest, 15000))
		return EXIT_STEP_FAILED;
	filled = device_free_bytes();
	record_begin("managed pages on the device");
	record_int("mib", (long long)(bytes / MIB));
	record_real("fill_ms", atof(rest));
	record_int("free_before_mib", (long long)(before / MIB));
	record_int("free_after_mib", (long long)(filled / MIB));
	record_end();
	int full = ballast_fill(&ballast, 64 * MIB);
	record_begin("ballast");
	record_int("mib", (long long)(ballast.bytes / MIB));
	record_bool("full", full);
	record_end();
	create_beyond_free(bytes + 256 * MIB);
	ballast_drop(&ballast);
	peer_tell(&peer, "check");
	if (!peer_await(&peer, "checked", rest, sizeof rest, 15000) ||
	    sscanf(rest, "%lf %d", &ms, &content) != 2)
		return EXIT_STEP_FAILED;
	record_begin("managed pages after that");
	record_real("read_by_faults_ms", ms);
	record_bool("content_intact", content);
	record_end();
	peer_end(&peer);
	return EXIT_DONE;
}

static void record_rate(const char *way, size_t bytes, double start)
{
	double ms = now_ms() - start;

	record_begin("way in or out");
	record_text("way", way);
	record_int("mib", (long long)(bytes / MIB));
	record_real("ms", ms);
	record_real("gb_s", (double)bytes / ms / 1e6);
	record_end();
}

static int prefetch(CUdeviceptr at, size_t bytes, CUdevice to, const char *way)
{
	double start = now_ms();

	if (!TRY(way, cuMemPrefetchAsync, at, bytes, to, NULL) || !TRY(way, cuCtxSynchronize))
		return 0;
	record_rate(way, bytes, start);
	return 1;
}

static int by_managed(struct session *session, size_t bytes)
{
	CUdeviceptr data = 0;
	uint64_t sum = 0;

	if (!TRY("managed", cuMemAllocManaged, &data, bytes, ATTACH_GLOBAL))
		return 0;
	double start = now_ms();
	int good = device_fill(session, data, bytes, SEED);
	if (good)
		record_rate("managed, first touch on the device", bytes, start);
	good = good && prefetch(data, bytes, DEVICE_CPU, "managed, prefetch out");
	start = now_ms();
	good = good && device_sum(session, data, bytes, &sum);
	if (good)
		record_rate("managed, read in by faults", bytes, start);
	good = good && prefetch(data, bytes, DEVICE_CPU, "managed, prefetch out again") &&
	       prefetch(data, bytes, session->device, "managed, prefetch in");
	start = now_ms();
	good = good && device_sum(session, data, bytes, &sum);
	if (good) {
		record_rate("managed, read on the device", bytes, start);
		record_begin("managed content");
		record_bool("intact", sum == fill_sum(bytes / 8, SEED));
		record_end();
	}
	CU(cuMemFree, data);
	return good;
}

/* All of the range through one pinned buffer of two pieces; the rate is the link's. */
static int copy_range(struct range *range, char *pinned, size_t piece, int to_device)
{
	for (size_t at = 0; at < range->size; at += piece) {
		size_t bytes = range->size - at < piece ? range->size - at : piece;
		char *host = pinned + at / piece % 2 * piece;
		CUresult result = to_device
			? CU(cuMemcpyHtoDAsync, range->base + at, host, bytes, NULL)
			: CU(cuMemcpyDtoHAsync, host, range->base + at, bytes, NULL);
		if (!driver_check(result, to_device ? "cuMemcpyHtoDAsync" : "cuMemcpyDtoHAsync", "frames"))
			return 0;
	}
	return TRY("frames", cuCtxSynchronize);
}

static int by_frames(size_t bytes)
{
	size_t piece = 64 * MIB;
	struct range range;
	char *pinned = NULL;

	if (!TRY("frames", cuMemHostAlloc, (void **)&pinned, 2 * piece, HOST_ALLOC_PORTABLE))
		return 0;
	int good = range_reserve(&range, bytes, 128 * MIB) && range_back(&range) &&
		   copy_range(&range, pinned, piece, 1);
	double start = now_ms();
	good = good && copy_range(&range, pinned, piece, 0) && range_unback(&range);
	if (good)
		record_rate("frames, copy out, unmap, release", bytes, start);
	start = now_ms();
	good = good && range_back(&range);
	double mapped_ms = now_ms() - start;
	good = good && copy_range(&range, pinned, piece, 1);
	if (good) {
		record_rate("frames, create, map, copy in", bytes, start);
		record_begin("of which create, map, access");
		record_real("ms", mapped_ms);
		record_real("ms_per_gib", mapped_ms * (double)GIB / (double)bytes);
		record_end();
	}
	range_free(&range);
	CU(cuMemFreeHost, pinned);
	return good;
}

int step_managed_rates(void)
{
	struct session session;

	if (!session_open(&session) || !session_kernels(&session))
		return EXIT_STEP_FAILED;
	size_t unit = 64 * MIB, most = device_free_bytes() / 5 * 2;
	size_t large = host_share(most < 16 * GIB ? most : 16 * GIB) / unit * unit;
	size_t small = large / 8 / unit * unit;
	if (small == 0)
		small = large;
	if (options.quick && small > GIB)
		small = GIB;
	if (small == 0) {
		record_note("too little free memory on the device or the host");
		return EXIT_STEP_FAILED;
	}
	double start = now_ms();
	int good = by_frames(small);
	if (driver_attribute(ATTRIBUTE_CONCURRENT_MANAGED, session.device) != 1)
		record_note("the device has no concurrent managed access; managed part left out");
	else
		good &= by_managed(&session, small);
	/* The larger size is cut down to what the time left allows at the rates just seen. */
	double per_byte = (now_ms() - start) / (double)small, room = (left_ms() - 4000) / 1.3 / per_byte;
	if (options.quick || room < 2 * (double)small || large <= small)
		return good ? EXIT_DONE : EXIT_STEP_FAILED;
	if ((double)large > room)
		large = (size_t)room / unit * unit;
	good &= by_frames(large);
	if (driver_attribute(ATTRIBUTE_CONCURRENT_MANAGED, session.device) == 1)
		good &= by_managed(&session, large);
	return good ? EXIT_DONE : EXIT_STEP_FAILED;
}
