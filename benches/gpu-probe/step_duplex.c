/*
 * Step 2: copy rates to and from the device, each alone and both at once; from one
 * process with two streams, and from two processes (same and opposite directions, and
 * with a kernel of the copying process's neighbour running).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "session.h"
#include "steps.h"

enum { PIECES_IN_FLIGHT = 4 };

struct lane {
	int to_device;
	CUstream stream;
	CUdeviceptr device;
	char *host;
	size_t piece;
	CUevent done[PIECES_IN_FLIGHT];
	size_t issued;
	double copied;
};

static int lane_open(struct lane *lane, int to_device, size_t piece)
{
	memset(lane, 0, sizeof *lane);
	lane->to_device = to_device;
	lane->piece = piece;
	int good = TRY("copies", cuStreamCreate, &lane->stream, STREAM_NON_BLOCKING) &&
		   TRY("copies", cuMemAlloc, &lane->device, piece) &&
		   TRY("copies", cuMemHostAlloc, (void **)&lane->host, piece, HOST_ALLOC_PORTABLE);
	for (int i = 0; i < PIECES_IN_FLIGHT && good; i++)
		good = TRY("copies", cuEventCreate, &lane->done[i], EVENT_DEFAULT);
	if (good)
		memset(lane->host, 0x5a, piece);
	return good;
}

enum push { PUSH_FAILED, PUSH_DONE, PUSH_FULL };

/* Keeps PIECES_IN_FLIGHT copies queued: issues one more if the oldest has ended. Does
 * not wait, so that a slow direction does not hold back the other. */
static enum push lane_push(struct lane *lane)
{
	CUevent event = lane->done[lane->issued % PIECES_IN_FLIGHT];

	if (lane->issued >= PIECES_IN_FLIGHT) {
		CUresult state = CU(cuEventQuery, event);
		if (state == CUDA_ERROR_NOT_READY)
			return PUSH_FULL;
		if (!driver_check(state, "cuEventQuery", "copies"))
			return PUSH_FAILED;
		lane->copied += (double)lane->piece;
	}
	lane->issued++;
	CUresult result = lane->to_device
		? CU(cuMemcpyHtoDAsync, lane->device, lane->host, lane->piece, lane->stream)
		: CU(cuMemcpyDtoHAsync, lane->host, lane->device, lane->piece, lane->stream);
	return driver_check(result, lane->to_device ? "cuMemcpyHtoDAsync" : "cuMemcpyDtoHAsync",
			    "copies") &&
			       TRY("copies", cuEventRecord, event, lane->stream)
		       ? PUSH_DONE : PUSH_FAILED;
}

/* Runs the lanes together for `ms`; the rate of each in GB/s to rate[]. Copies that end
 * after `ms` are not counted. */
static int lanes_run(struct lane *const *lanes, size_t count, double ms, double *rate)
{
	double start = now_ms();

	for (size_t i = 0; i < count; i++) {
		lanes[i]->issued = 0;
		lanes[i]->copied = 0;
	}
	while (now_ms() - start < ms)
		for (size_t i = 0; i < count; i++)
			if (lane_push(lanes[i]) == PUSH_FAILED)
				return 0;
	double seconds = (now_ms() - start) / 1e3;
	for (size_t i = 0; i < count; i++) {
		rate[i] = lanes[i]->copied / seconds / 1e9;
		if (!TRY("copies", cuStreamSynchronize, lanes[i]->stream))
			return 0;
	}
	return 1;
}

static void record_rates(const char *what, size_t piece, double in, double out)
{
	record_begin("copy rate");
	record_text("case", what);
	record_real("piece_mib", (double)piece / (double)MIB);
	record_real("to_device_gb_s", in);
	record_real("to_host_gb_s", out);
	record_real("sum_gb_s", in + out);
	record_end();
}

static int one_process(size_t piece, double ms)
{
	struct lane in, out;
	double rate[2];

	if (!lane_open(&in, 1, piece) || !lane_open(&out, 0, piece))
		return 0;
	struct lane *const both[] = {&in, &out};
	if (!lanes_run(&both[0], 1, ms / 4, rate) || !lanes_run(&both[0], 1, ms, rate))
		return 0;
	record_rates("one process, to device", piece, rate[0], 0);
	if (!lanes_run(&both[1], 1, ms, rate))
		return 0;
	record_rates("one process, to host", piece, 0, rate[0]);
	if (!lanes_run(both, 2, ms, rate))
		return 0;
	record_rates("one process, both", piece, rate[0], rate[1]);
	for (int i = 0; i < 2; i++) {
		CU(cuMemFree, both[i]->device);
		CU(cuMemFreeHost, both[i]->host);
	}
	return 1;
}

/* Peer: "go MS" copies for so long in its direction and says "rate GB/s"; with
 * "spin" kernels of its own run meanwhile. */
int role_copy(int count, char **arguments)
{
	struct session session;
	struct lane lane, *const lanes[] = {&lane};
	int spin = count > 1 && strcmp(arguments[1], "spin") == 0;
	CUstream side = NULL;
	double ms, rate;
	char line[64];

	if (count < 1 || !session_open(&session) || !session_kernels(&session) ||
	    !lane_open(&lane, strcmp(arguments[0], "in") == 0, 32 * MIB) ||
	    !TRY("copies", cuStreamCreate, &side, STREAM_NON_BLOCKING)) {
		role_say("failed: the copying peer could not start");
		return EXIT_STEP_FAILED;
	}
	role_say("ready");
	while (role_hear(line, sizeof line, 30000)) {
		if (sscanf(line, "go %lf", &ms) != 1)
			continue;
		/* About ms of kernel at 1.5 GHz; it need not end with the copies. */
		const uint64_t cycles = (uint64_t)(ms * 1.5e6 / 20);
		for (int i = 0; spin && i < 20; i++)
			driver_check(launch(session.spin, 1, 32, side, &cycles, 1), "cuLaunchKernel",
				     "copies");
		if (lanes_run(lanes, 1, ms, &rate))
			role_say("rate %.6g", rate);
		else
			role_say("failed: the copies failed");
		CU(cuStreamSynchronize, side);
	}
	return EXIT_DONE;
}

static int rate_of(struct peer *peer, double *rate)
{
	char rest[64];

	*rate = 0.0 / 0.0;
	return peer_await(peer, "rate", rest, sizeof rest, 8000) && sscanf(rest, "%lf", rate) == 1;
}

static void two_processes(const char *what, const char *first, const char *second, double ms)
{
	static struct peer one, two;
	double rate[2], in = 0, out = 0;
	char go[32];

	snprintf(go, sizeof go, "go %.0f", ms);
	two.fd = -1;
	two.pid = 0;
	if (peer_startf(&one, "copy", "%s", first) && peer_startf(&two, "copy", "%s", second)) {
		peer_tell(&one, go);
		peer_tell(&two, go);
		if (rate_of(&one, &rate[0]) && rate_of(&two, &rate[1])) {
			*(strncmp(first, "in", 2) == 0 ? &in : &out) += rate[0];
			*(strncmp(second, "in", 2) == 0 ? &in : &out) += rate[1];
			record_rates(what, 32 * MIB, in, out);
		}
	}
	peer_end(&one);
	peer_end(&two);
}

int step_duplex(void)
{
	static const size_t pieces[] = {64, 8, 256, 1};
	double ms = options.quick ? 150 : 400;
	struct session session;
	int good = 1;

	if (!session_open(&session))
		return EXIT_STEP_FAILED;
	for (size_t i = 0; i < (options.quick ? 1 : 4) && good && left_ms() > 8000; i++)
		if (host_share(GIB) >= 2 * pieces[i] * MIB)
			good = one_process(pieces[i] * MIB, ms);
	if (left_ms() > 5000)
		two_processes("two processes, opposite", "in", "out", ms);
	if (left_ms() > 5000)
		two_processes("two processes, both to device", "in", "in", ms);
	if (left_ms() > 5000)
		two_processes("two processes, opposite, kernels in one", "in", "out spin", ms);
	if (left_ms() > 5000)
		two_processes("two processes, opposite, kernels in both", "in spin", "out spin", ms);
	return good ? EXIT_DONE : EXIT_STEP_FAILED;
}
