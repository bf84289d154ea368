/*
 * Step 10: how fast the device can compute 128 bits per 2 MiB over mapped frames, with
 * loads of 8 and 16 bytes, beside a plain read; the result is compared with the same
 * function on the host, and one flipped bit must show.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "session.h"
#include "steps.h"

enum { THREADS = 256, UNIT = 2 << 20, SEED = 99 };
#define FACTOR_A 0x9fb21c651e98df25ull
#define FACTOR_B 0xc2b2ae3d27d4eb4full

struct hash {
	uint64_t a, b;
};

/* What hash64 (1 word a load) and hash128 (2) of kernels.ptx compute for one unit. */
static struct hash kernel_hash(const uint64_t *unit, size_t words_a_load, uint64_t seed)
{
	struct hash lane[THREADS];

	for (size_t t = 0; t < THREADS; t++) {
		struct hash h = {(t * FACTOR_B) ^ seed, seed + t};
		for (size_t at = t * words_a_load; at < UNIT / 8; at += THREADS * words_a_load)
			for (size_t w = 0; w < words_a_load; w++) {
				h.a = (h.a ^ unit[at + w]) * FACTOR_A;
				h.a ^= h.a >> 32;
				h.b = (h.b + unit[at + w]) * FACTOR_B;
				h.b ^= h.b >> 29;
			}
		lane[t] = h;
	}
	for (size_t half = THREADS / 2; half > 0; half /= 2)
		for (size_t t = 0; t < half; t++) {
			lane[t].a = lane[t].a * FACTOR_A ^ lane[t + half].a;
			lane[t].b = lane[t].b * FACTOR_B ^ lane[t + half].b;
		}
	return lane[0];
}

struct scan {
	struct session *session;
	CUdeviceptr data, out;
	size_t bytes;
	CUevent begin, end;
};

/* Runs the kernel once; milliseconds by the device's clock, or not a number. */
static double scan_once(struct scan *scan, CUfunction function, int hashes)
{
	const uint64_t hash_parameters[] = {scan->data, scan->out, SEED};
	const uint64_t sum_parameters[] = {scan->data, scan->bytes / 8, scan->out};
	float ms = 0;

	if (!TRY("scan", cuEventRecord, scan->begin, NULL) ||
	    !driver_check(hashes ? launch(function, (unsigned)(scan->bytes / UNIT), THREADS, NULL,
					  hash_parameters, 3)
				 : launch(function, 4096, THREADS, NULL, sum_parameters, 3),
			  "cuLaunchKernel", "scan") ||
	    !TRY("scan", cuEventRecord, scan->end, NULL) ||
	    !TRY("scan", cuEventSynchronize, scan->end) ||
	    !TRY("scan", cuEventElapsedTime, &ms, scan->begin, scan->end))
		return 0.0 / 0.0;
	return ms;
}

static int scan_rate(struct scan *scan, CUfunction function, const char *name, int hashes)
{
	struct samples times = {.count = 0};

	for (int i = 0; i < 6; i++) {
		double ms = scan_once(scan, function, hashes);
		if (!(ms >= 0))
			return 0;
		if (i > 0) /* the first one is slower */
			sample(&times, ms);
	}
	record_begin("scan rate");
	record_text("kernel", name);
	record_int("mib", (long long)(scan->bytes / MIB));
	record_real("ms_p50", sample_quantile(&times, 0.5));
	record_real("ms_best", sample_quantile(&times, 0));
	record_real("gb_s_p50", (double)scan->bytes / sample_quantile(&times, 0.5) / 1e6);
	record_real("ms_per_40_gib", sample_quantile(&times, 0.5) * 40 * (double)GIB / (double)scan->bytes);
	record_end();
	return 1;
}

static int read_hash(struct scan *scan, CUfunction function, size_t index, struct hash *hash)
{
	return scan_once(scan, function, 1) >= 0 &&
	       TRY("hash", cuMemcpyDtoH, hash, scan->out + index * sizeof *hash, sizeof *hash);
}

static int verify(struct scan *scan, CUfunction function, const char *name, size_t words_a_load)
{
	size_t last = scan->bytes / UNIT - 1;
	struct hash device, flipped, expected;
	uint64_t *unit = malloc(UNIT);
	CUdeviceptr at = scan->data + last * UNIT;

	if (!unit)
		return 0;
	int good = TRY("hash", cuMemcpyDtoH, unit, at, UNIT) && read_hash(scan, function, last, &device);
	expected = kernel_hash(unit, words_a_load, SEED);
	unit[1000] ^= 1ull << 63;
	good = good && TRY("hash", cuMemcpyHtoD, at, unit, UNIT) &&
	       read_hash(scan, function, last, &flipped);
	unit[1000] ^= 1ull << 63;
	good = good && TRY("hash", cuMemcpyHtoD, at, unit, UNIT);
	if (good) {
		record_begin("hash check");
		record_text("kernel", name);
		record_bool("matches_host", memcmp(&device, &expected, sizeof device) == 0);
		record_bool("bit_flip_seen", memcmp(&device, &flipped, sizeof device) != 0);
		record_end();
	}
	free(unit);
	return good;
}

static int scan_size(struct session *session, size_t bytes)
{
	struct scan scan = {.session = session, .bytes = bytes};
	struct range range;
	int good = range_reserve(&range, bytes, 64 * MIB) && range_back(&range) &&
		   device_fill(session, range.base, bytes, SEED) &&
		   TRY("scan", cuMemAlloc, &scan.out, bytes / UNIT * sizeof(struct hash)) &&
		   TRY("scan", cuEventCreate, &scan.begin, EVENT_DEFAULT) &&
		   TRY("scan", cuEventCreate, &scan.end, EVENT_DEFAULT);

	scan.data = range.base;
	good = good && scan_rate(&scan, session->sum, "plain read", 0) &&
	       scan_rate(&scan, session->hash64, "hash64", 1) &&
	       scan_rate(&scan, session->hash128, "hash128", 1) &&
	       verify(&scan, session->hash64, "hash64", 1) &&
	       verify(&scan, session->hash128, "hash128", 2);
	CU(cuMemFree, scan.out);
	range_free(&range);
	return good;
}

int step_fingerprint(void)
{
	struct session session;

	if (!session_open(&session))
		return EXIT_STEP_FAILED;
	double start = now_ms();
	if (!session_kernels(&session))
		return EXIT_STEP_FAILED;
	record_begin("module load with compilation");
	record_real("ms", now_ms() - start);
	record_end();
	size_t most = device_free_bytes() / 5 * 2, large = options.quick ? GIB : 16 * GIB;
	large = (most < large ? most : large) / (64 * MIB) * (64 * MIB);
	if (large == 0) {
		record_note("too little free memory");
		return EXIT_STEP_FAILED;
	}
	int good = scan_size(&session, 64 * MIB);
	return scan_size(&session, large) && good ? EXIT_DONE : EXIT_STEP_FAILED;
}
