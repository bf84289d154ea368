/*
 * Step 5: every pointer attribute of pointers of several origins, raw, and the list of
 * those in which mapped frames differ from cuMemAlloc: what a shim that puts frames
 * under cuMemAlloc must answer itself. Also the calls by which programs tell the two.
 */
#include <stdio.h>
#include <string.h>

#include "session.h"
#include "steps.h"

enum { ATTRIBUTES = 32, VALUE_BYTES = 64 }; /* a few more than cuda.h of 13.5 names */

static const char *const attribute_name[ATTRIBUTES] = {
	[1] = "CONTEXT", [2] = "MEMORY_TYPE", [3] = "DEVICE_POINTER", [4] = "HOST_POINTER",
	[5] = "P2P_TOKENS", [6] = "SYNC_MEMOPS", [7] = "BUFFER_ID", [8] = "IS_MANAGED",
	[9] = "DEVICE_ORDINAL", [10] = "IS_LEGACY_CUDA_IPC_CAPABLE", [11] = "RANGE_START_ADDR",
	[12] = "RANGE_SIZE", [13] = "MAPPED", [14] = "ALLOWED_HANDLE_TYPES",
	[15] = "IS_GPU_DIRECT_RDMA_CAPABLE", [16] = "ACCESS_FLAGS", [17] = "MEMPOOL_HANDLE",
	[18] = "MAPPING_SIZE", [19] = "MAPPING_BASE_ADDR", [20] = "MEMORY_BLOCK_ID",
	[21] = "IS_HW_DECOMPRESS_CAPABLE", [22] = "LOCALITY_DOMAIN_ORDINAL"};

struct answer {
	CUresult result;
	int bytes; /* how many the driver wrote */
	uint64_t value;
};

struct pointer {
	const char *origin;
	CUdeviceptr at;
	struct answer answer[ATTRIBUTES];
};

/* Asks twice, over zeros and over ones: bytes that agree were written. */
static struct answer ask(int attribute, CUdeviceptr at)
{
	unsigned char zeros[VALUE_BYTES], ones[VALUE_BYTES];
	struct answer answer = {0};

	memset(zeros, 0, sizeof zeros);
	memset(ones, 0xff, sizeof ones);
	answer.result = CU(cuPointerGetAttribute, zeros, attribute, at);
	CUresult again = CU(cuPointerGetAttribute, ones, attribute, at);
	if (answer.result != CUDA_SUCCESS || again != CUDA_SUCCESS)
		return answer;
	while (answer.bytes < VALUE_BYTES && zeros[answer.bytes] == ones[answer.bytes])
		answer.bytes++;
	memcpy(&answer.value, zeros, answer.bytes < 8 ? (size_t)answer.bytes : 8);
	return answer;
}

static const char *attribute_text(int attribute)
{
	static char number[16];

	if (attribute_name[attribute])
		return attribute_name[attribute];
	snprintf(number, sizeof number, "%d", attribute);
	return number;
}

/* Values that are addresses are shown as a distance from the pointer. */
static void value_text(const struct answer *answer, CUdeviceptr at, char *text, size_t bytes)
{
	long long distance = (long long)(answer->value - at);

	if (answer->result != CUDA_SUCCESS)
		snprintf(text, bytes, "%s", driver_result_name(answer->result));
	else if (distance > -(long long)(64 * GIB) && distance < (long long)(64 * GIB))
		snprintf(text, bytes, "pointer%+lld", distance);
	else if (answer->value > 1000000000)
		snprintf(text, bytes, "0x%llx", (unsigned long long)answer->value);
	else
		snprintf(text, bytes, "%llu", (unsigned long long)answer->value);
}

static void dump(struct pointer *pointer)
{
	char text[96];

	for (int a = 1; a < ATTRIBUTES; a++) {
		pointer->answer[a] = ask(a, pointer->at);
		if (!attribute_name[a] && pointer->answer[a].result != CUDA_SUCCESS)
			continue; /* no such attribute, as expected */
		value_text(&pointer->answer[a], pointer->at, text, sizeof text);
		record_begin("dump of pointer attributes");
		record_text("origin", pointer->origin);
		record_int("number", a);
		record_text("attribute", attribute_text(a));
		record_int("code", pointer->answer[a].result);
		record_int("bytes_written", pointer->answer[a].bytes);
		record_text("value", text);
		record_end();
	}
}

static void compare(const struct pointer *left, const struct pointer *right)
{
	char one[96], other[96];

	for (int a = 1; a < ATTRIBUTES; a++) {
		value_text(&left->answer[a], left->at, one, sizeof one);
		value_text(&right->answer[a], right->at, other, sizeof other);
		if (strcmp(one, other) == 0 && left->answer[a].bytes == right->answer[a].bytes)
			continue;
		record_begin("difference");
		record_text("attribute", attribute_text(a));
		record_text(left->origin, one);
		record_text(right->origin, other);
		record_end();
	}
}

/* The other calls that give the origin away. */
static void tell_tales(const struct pointer *pointer)
{
	CUdeviceptr base = 0;
	size_t size = 0;
	CUmemHandle handle = 0;
	CUipcMemHandle ipc;

	CUresult range = CU(cuMemGetAddressRange, &base, &size, pointer->at);
	CUresult retain = CU(cuMemRetainAllocationHandle, &handle, (void *)(uintptr_t)pointer->at);
	if (retain == CUDA_SUCCESS)
		CU(cuMemRelease, handle);
	CUresult share = CU(cuIpcGetMemHandle, &ipc, pointer->at);
	record_begin("other calls");
	record_text("origin", pointer->origin);
	record_text("cuMemGetAddressRange", driver_result_name(range));
	record_int("base_minus_pointer", range == CUDA_SUCCESS ? (long long)(base - pointer->at) : 0);
	record_int("size", (long long)size);
	record_text("cuMemRetainAllocationHandle", driver_result_name(retain));
	record_text("cuIpcGetMemHandle", driver_result_name(share));
	record_end();
}

static void look(struct pointer *pointer)
{
	dump(pointer);
	tell_tales(pointer);
}

static struct pointer plain = {.origin = "cuMemAlloc"}, inner = {.origin = "cuMemAlloc+1MiB"},
		      mapped = {.origin = "frames"}, second = {.origin = "frames, second handle"},
		      rdma = {.origin = "frames rdma"}, shared = {.origin = "frames posix fd"},
		      gone = {.origin = "frames unmapped"}, small = {.origin = "cuMemAlloc small"},
		      managed = {.origin = "managed"}, pooled = {.origin = "cuMemAllocAsync"},
		      pinned = {.origin = "cuMemHostAlloc"};

/* The same 8 MiB as cuMemAlloc, in two handles, with the properties given. */
static int look_at_frames(struct pointer *pointer, int rdma_flag, int handle_types)
{
	struct range range;
	int good = range_reserve(&range, 8 * MIB, 4 * MIB);

	range.rdma = rdma_flag;
	range.handle_types = handle_types;
	good = good && range_back(&range);
	if (good) {
		pointer->at = range.base;
		look(pointer);
		if (pointer == &mapped) {
			second.at = range.base + 6 * MIB;
			look(&second);
			range_unback(&range);
			gone.at = range.base;
			look(&gone);
		}
	}
	range_free(&range);
	return good;
}

int step_attributes(void)
{
	struct session session;
	void *host = NULL;

	if (!session_open(&session) || !TRY("attributes", cuMemAlloc, &plain.at, 8 * MIB))
		return EXIT_STEP_FAILED;
	look(&plain);
	inner.at = plain.at + MIB;
	look(&inner);
	if (TRY("attributes", cuMemAlloc, &small.at, 1000))
		look(&small);
	int good = look_at_frames(&mapped, 0, HANDLE_NONE);
	look_at_frames(&rdma, 1, HANDLE_NONE);
	look_at_frames(&shared, 0, HANDLE_POSIX_FD);
	if (TRY("attributes", cuMemAllocManaged, &managed.at, 8 * MIB, ATTACH_GLOBAL))
		look(&managed);
	if (TRY("attributes", cuMemAllocAsync, &pooled.at, 8 * MIB, NULL) &&
	    TRY("attributes", cuCtxSynchronize))
		look(&pooled);
	if (TRY("attributes", cuMemHostAlloc, &host, 8 * MIB, HOST_ALLOC_PORTABLE) &&
	    TRY("attributes", cuMemHostGetDevicePointer, &pinned.at, host, 0))
		look(&pinned);
	compare(&plain, &mapped);
	if (rdma.at)
		compare(&mapped, &rdma);
	compare(&mapped, &gone);
	return good ? EXIT_DONE : EXIT_STEP_FAILED;
}
