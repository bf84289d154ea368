/*
 * Step 1: the cost of create, map, access, unmap and release by handle size; first
 * after a pause (cold), then right after the release of as many bytes, then with the
 * card so full that only the bytes just released can serve the request (scrubbing).
 */
#include <stdlib.h>
#include <string.h>

#include "session.h"
#include "steps.h"

struct costs {
	struct samples create, map, access, unmap, release;
	double access_all_us;
};

static double timed(double start)
{
	return now_us() - start;
}

/* One round over a reserved range; stops at the first failure. */
static int one_round(struct range *range, struct costs *costs, int access_each)
{
	CUmemAllocationProp properties = frame_properties(0, HANDLE_NONE);
	size_t made = 0, mapped = 0;
	int good = 1;
	double start;

	for (; made < range->count && good; made += (size_t)good) {
		start = now_us();
		good = TRY("frames", cuMemCreate, &range->handle[made], range->chunk, &properties, 0);
		sample(&costs->create, timed(start));
	}
	for (; mapped < made && good; mapped += (size_t)good) {
		start = now_us();
		good = TRY("frames", cuMemMap, range->base + mapped * range->chunk, range->chunk, 0,
			   range->handle[mapped], 0);
		sample(&costs->map, timed(start));
	}
	if (good && access_each) {
		for (size_t i = 0; i < mapped && good; i++) {
			start = now_us();
			good = driver_check(range_access(range->base + i * range->chunk, range->chunk),
					    "cuMemSetAccess", "frames");
			sample(&costs->access, timed(start));
		}
	} else if (good) {
		start = now_us();
		good = driver_check(range_access(range->base, range->size), "cuMemSetAccess", "all");
		costs->access_all_us = timed(start);
	}
	for (size_t i = 0; i < mapped; i++) {
		start = now_us();
		good &= TRY("frames", cuMemUnmap, range->base + i * range->chunk, range->chunk);
		sample(&costs->unmap, timed(start));
	}
	for (size_t i = 0; i < made; i++) {
		start = now_us();
		good &= TRY("frames", cuMemRelease, range->handle[i]);
		sample(&costs->release, timed(start));
	}
	return good;
}

static void record_costs(const char *state, const struct range *range, struct costs *costs)
{
	double count = (double)range->count;
	double access = costs->access.count ? sample_mean(&costs->access) * count : costs->access_all_us;
	double in_us = (sample_mean(&costs->create) + sample_mean(&costs->map)) * count + access;
	double out_us = (sample_mean(&costs->unmap) + sample_mean(&costs->release)) * count;
	double gib = (double)range->size / (double)GIB;

	record_begin("handle cost");
	record_int("chunk_mib", (long long)(range->chunk / MIB));
	record_text("state", state);
	record_int("handles", (long long)range->count);
	record_real("create_us", sample_mean(&costs->create));
	record_real("create_max_us", sample_quantile(&costs->create, 1));
	record_real("map_us", sample_mean(&costs->map));
	record_real("access_us", access / count);
	record_bool("access_one_call", costs->access.count == 0);
	record_real("unmap_us", sample_mean(&costs->unmap));
	record_real("release_us", sample_mean(&costs->release));
	record_real("in_ms_per_gib", in_us / 1e3 / gib);
	record_real("out_ms_per_gib", out_us / 1e3 / gib);
	record_end();
}

static int by_chunk(size_t chunk)
{
	static struct costs costs;
	static const char *const state[] = {"cold", "after release", "after release"};
	size_t room = device_free_bytes() / 4;
	size_t count = chunk ? (2 * GIB < room ? 2 * GIB : room) / chunk : 0;
	struct range range;
	int good;

	count = count > 64 ? 64 : count;
	if (count == 0)
		return 1; /* a small card: this size is left out */
	if (!(good = range_reserve(&range, count * chunk, chunk)))
		return 0;
	sleep_ms(options.quick ? 50 : 200);
	for (int round = 0; round < 3 && good; round++) {
		memset(&costs, 0, sizeof costs);
		good = one_round(&range, &costs, round != 1);
		if (good)
			record_costs(state[round], &range, &costs);
	}
	range_free(&range);
	return good;
}

/* Creates until it succeeds: how long are frames missing after their release? */
static void create_after_release(size_t chunk, size_t bytes, int touched)
{
	CUmemAllocationProp properties = frame_properties(0, HANDLE_NONE);
	struct range range;
	int retries = 0;
	size_t made = 0;
	CUresult first_failure = CUDA_SUCCESS, result = CUDA_SUCCESS;

	if (!range_reserve(&range, bytes / chunk * chunk, chunk) || !range_back(&range)) {
		range_free(&range);
		return;
	}
	if (touched) {
		TRY("scrub", cuMemsetD32Async, range.base, 0xa5a5a5a5u, range.size / 4, NULL);
		TRY("scrub", cuCtxSynchronize);
	}
	range_unback(&range);
	double start = now_ms(), first_ms = 0;
	while (made < range.count && now_ms() - start < 2000) {
		result = CU(cuMemCreate, &range.handle[made], chunk, &properties, 0);
		if (result == CUDA_SUCCESS) {
			if (made++ == 0)
				first_ms = now_ms() - start;
		} else {
			if (first_failure == CUDA_SUCCESS)
				first_failure = result;
			retries++;
			sleep_ms(0.2);
		}
	}
	double all_ms = now_ms() - start;
	record_begin("create on a full card right after release");
	record_int("chunk_mib", (long long)(chunk / MIB));
	record_int("mib", (long long)(range.size / MIB));
	record_bool("written_before", touched);
	record_text("first_failure", first_failure ? driver_result_name(first_failure) : "none");
	record_int("retries", retries);
	record_real("first_ms", first_ms);
	record_real("all_ms", all_ms);
	record_bool("all_created", made == range.count);
	record_end();
	for (size_t i = 0; i < made; i++)
		CU(cuMemRelease, range.handle[i]);
	range_free(&range);
}

static void on_a_full_card(void)
{
	struct ballast ballast;
	size_t unused = device_free_bytes(), margin = 256 * MIB;
	size_t bytes = unused / 4 < 2 * GIB ? unused / 4 / (256 * MIB) * (256 * MIB) : 2 * GIB;
	double start = now_ms();

	if (bytes == 0)
		return record_note("too little free memory to fill the card");
	int full = ballast_fill(&ballast, bytes + margin);
	record_begin("ballast");
	record_int("mib", (long long)(ballast.bytes / MIB));
	record_real("ms", now_ms() - start);
	record_int("left_free_mib", (long long)(device_free_bytes() / MIB));
	record_bool("full", full);
	record_end();
	create_after_release(2 * MIB, bytes / 4, 1);
	create_after_release(64 * MIB, bytes, 0);
	create_after_release(64 * MIB, bytes, 1);
	create_after_release(256 * MIB, bytes, 1);
	start = now_ms();
	size_t dropped = ballast.bytes;
	ballast_drop(&ballast);
	record_begin("ballast release");
	record_int("mib", (long long)(dropped / MIB));
	record_real("ms", now_ms() - start);
	record_end();
}

int step_frames(void)
{
	static const size_t all[] = {2, 4, 8, 16, 32, 64, 128, 256, 512, 1024};
	static const size_t few[] = {2, 64, 256};
	const size_t *sizes = options.quick ? few : all;
	size_t count = options.quick ? 3 : 10;
	struct session session;
	int good = 1;

	if (!session_open(&session))
		return EXIT_STEP_FAILED;
	CUmemAllocationProp properties = frame_properties(0, HANDLE_NONE);
	size_t minimum = 0, recommended = 0;
	TRY("minimum", cuMemGetAllocationGranularity, &minimum, &properties, GRANULARITY_MINIMUM);
	TRY("recommended", cuMemGetAllocationGranularity, &recommended, &properties,
	    GRANULARITY_RECOMMENDED);
	record_begin("granularity");
	record_int("minimum_bytes", (long long)minimum);
	record_int("recommended_bytes", (long long)recommended);
	record_int("free_mib", (long long)(device_free_bytes() / MIB));
	record_end();
	for (size_t i = 0; i < count && left_ms() > 4000; i++)
		good &= by_chunk(sizes[i] * MIB);
	on_a_full_card();
	return good ? EXIT_DONE : EXIT_STEP_FAILED;
}
