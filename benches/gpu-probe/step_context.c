/*
 * Step 13: time and device memory of cuInit, of contexts, of a module; measured by a
 * peer that has a context of its own, since cuMemGetInfo needs one.
 */
#include <stdio.h>
#include <stdlib.h>

#include "session.h"
#include "steps.h"

/* Peer: "free" answers the free bytes of the device. */
int role_meter(int count, char **arguments)
{
	struct session session;
	char line[64];

	(void)count;
	(void)arguments;
	if (!session_open(&session)) {
		role_say("failed: the metering peer could not start");
		return EXIT_STEP_FAILED;
	}
	role_say("ready");
	while (role_hear(line, sizeof line, 60000))
		role_say("free %zu", device_free_bytes());
	return EXIT_DONE;
}

static struct peer meter;
static long long last_free;

static long long meter_free(void)
{
	char rest[64];

	return peer_tell(&meter, "free") && peer_await(&meter, "free", rest, sizeof rest, 3000)
		       ? atoll(rest) : -1;
}

/* Records a call with its time and what the free memory lost by it. */
static int measured(const char *call, CUresult result, double start)
{
	double ms = now_ms() - start;
	long long unused;

	sleep_ms(20); /* frames are given back a little after a destroy */
	unused = meter_free();
	record_begin("context cost");
	record_text("call", call);
	record_int("code", result);
	record_real("ms", ms);
	record_real("device_mib", (double)(last_free - unused) / (double)MIB);
	record_end();
	last_free = unused;
	return result == CUDA_SUCCESS;
}

#define MEASURE(name, call) (start = now_ms(), measured(name, call, start))

static int contexts(struct session *session)
{
	CUcontext first = NULL, second = NULL, primary = NULL;
	double start;

	if (!MEASURE("cuCtxCreate, first", CU(cuCtxCreate, &first, 0, session->device)))
		return 0;
	start = now_ms();
	int good = session_kernels(session);
	measured("cuModuleLoadData", good ? CUDA_SUCCESS : CU_MISSING, start);
	if (good) {
		const uint64_t cycles = 1000;
		start = now_ms();
		CUresult result = launch(session->spin, 1, 1, NULL, &cycles, 1);
		if (result == CUDA_SUCCESS)
			result = CU(cuCtxSynchronize);
		measured("first launch", result, start);
	}
	if (MEASURE("cuCtxCreate, second", CU(cuCtxCreate, &second, 0, session->device)))
		MEASURE("cuCtxDestroy, second", CU(cuCtxDestroy, second));
	MEASURE("cuCtxDestroy, first", CU(cuCtxDestroy, first));
	for (int i = 0; i < (options.quick ? 1 : 4); i++)
		if (MEASURE("cuCtxCreate, again", CU(cuCtxCreate, &first, 0, session->device)))
			MEASURE("cuCtxDestroy, again", CU(cuCtxDestroy, first));
	if (MEASURE("cuDevicePrimaryCtxRetain", CU(cuDevicePrimaryCtxRetain, &primary, session->device)))
		MEASURE("cuDevicePrimaryCtxRelease", CU(cuDevicePrimaryCtxRelease, session->device));
	return good;
}

int step_context(void)
{
	struct session session = {.device = 0};
	const char *why = driver_open();
	double start;

	if (why || !peer_startf(&meter, "meter", "%s", ""))
		return EXIT_STEP_FAILED;
	last_free = meter_free();
	record_begin("before");
	record_real("free_mib", (double)last_free / (double)MIB);
	record_end();
	if (!MEASURE("cuInit", CU(cuInit, 0)) ||
	    !TRY("context", cuDeviceGet, &session.device, options.device))
		return EXIT_STEP_FAILED;
	int good = contexts(&session);
	peer_end(&meter);
	return good ? EXIT_DONE : EXIT_STEP_FAILED;
}
