/*
 * The helpers of session.h. The kernels stand in kernels.ptx, which the assembler
 * places into the program, so that the file can also be given to ptxas as it is.
 */
#include "session.h"

#include <stdlib.h>
#include <string.h>

__asm__(".section .rodata\n"
	".globl kernels_ptx\n"
	"kernels_ptx:\n"
	".incbin \"kernels.ptx\"\n"
	".byte 0\n"
	".previous\n");
extern const char kernels_ptx[];

int session_open(struct session *session)
{
	const char *why = driver_open();

	memset(session, 0, sizeof *session);
	if (why) {
		record_begin("error");
		record_text("call", "dlopen");
		record_int("code", CU_MISSING);
		record_text("name", why);
		record_text("where", "open");
		record_end();
		return 0;
	}
	return TRY("open", cuInit, 0) &&
	       TRY("open", cuDeviceGet, &session->device, options.device) &&
	       TRY("open", cuCtxCreate, &session->context, 0, session->device) &&
	       TRY("open", cuCtxSetCurrent, session->context);
}

int session_kernels(struct session *session)
{
	const struct {
		CUfunction *function;
		const char *name;
	} kernels[] = {{&session->spin, "spin"},     {&session->watch, "watch"},
		       {&session->add, "add"},       {&session->sum, "sum"},
		       {&session->fill, "fill"},     {&session->hash64, "hash64"},
		       {&session->hash128, "hash128"}};
	int found = 1;

	if (!TRY("kernels", cuModuleLoadData, &session->module, kernels_ptx))
		return 0;
	for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
		found &= TRY(kernels[i].name, cuModuleGetFunction, kernels[i].function,
			     session->module, kernels[i].name);
	return found;
}

size_t device_free_bytes(void)
{
	size_t unused = 0, total = 0;

	return CU(cuMemGetInfo, &unused, &total) == CUDA_SUCCESS ? unused : 0;
}

CUresult launch(CUfunction function, unsigned blocks, unsigned threads, CUstream stream,
		const uint64_t *parameters, size_t count)
{
	void *pointers[4];

	for (size_t i = 0; i < count && i < 4; i++)
		pointers[i] = (void *)(uintptr_t)&parameters[i];
	return CU(cuLaunchKernel, function, blocks, 1, 1, threads, 1, 1, 0, stream, pointers, NULL);
}

uint64_t fill_sum(uint64_t words, uint64_t seed)
{
	/* n(n-1)/2 without overflow of the product before the halving. */
	uint64_t even = words % 2 ? (words - 1) / 2 : words / 2;
	uint64_t odd = words % 2 ? words : words - 1;

	return even * odd * FILL_FACTOR + seed * words;
}

int device_fill(struct session *s, CUdeviceptr at, size_t bytes, uint64_t seed)
{
	const uint64_t parameters[] = {at, bytes / 8, seed};

	return driver_check(launch(s->fill, 2048, 256, NULL, parameters, 3), "cuLaunchKernel", "fill") &&
	       TRY("fill", cuCtxSynchronize);
}

int device_sum(struct session *s, CUdeviceptr at, size_t bytes, uint64_t *sum)
{
	CUdeviceptr out = 0;
	uint64_t zero = 0;

	if (!TRY("sum", cuMemAlloc, &out, 8))
		return 0;
	const uint64_t parameters[] = {at, bytes / 8, out};
	int good = TRY("sum", cuMemcpyHtoD, out, &zero, 8) &&
		   driver_check(launch(s->sum, 2048, 256, NULL, parameters, 3), "cuLaunchKernel",
				"sum") &&
		   TRY("sum", cuMemcpyDtoH, sum, out, 8);
	CU(cuMemFree, out);
	return good;
}

CUmemAllocationProp frame_properties(int rdma, int handle_types)
{
	CUmemAllocationProp properties;

	memset(&properties, 0, sizeof properties);
	properties.type = ALLOCATION_PINNED;
	properties.requestedHandleTypes = handle_types;
	properties.location.type = LOCATION_DEVICE;
	properties.location.id = options.device;
	properties.allocFlags.gpuDirectRDMACapable = rdma ? 1 : 0;
	return properties;
}

size_t frame_granularity(void)
{
	CUmemAllocationProp properties = frame_properties(0, HANDLE_NONE);
	size_t bytes = 0;

	if (CU(cuMemGetAllocationGranularity, &bytes, &properties, GRANULARITY_MINIMUM) !=
		    CUDA_SUCCESS || bytes == 0)
		return 2 * MIB;
	return bytes;
}

CUresult range_access(CUdeviceptr at, size_t size)
{
	CUmemAccessDesc access = {{LOCATION_DEVICE, options.device}, ACCESS_READ_WRITE};

	return CU(cuMemSetAccess, at, size, &access, 1);
}

size_t range_chunk_bytes(const struct range *range, size_t index)
{
	size_t start = index * range->chunk;

	return range->size - start < range->chunk ? range->size - start : range->chunk;
}

int range_reserve(struct range *range, size_t size, size_t chunk)
{
	memset(range, 0, sizeof *range);
	range->size = size;
	range->chunk = chunk;
	range->count = (size + chunk - 1) / chunk;
	range->handle = calloc(range->count, sizeof *range->handle);
	return range->handle &&
	       TRY("range", cuMemAddressReserve, &range->base, size, 0, 0, 0);
}

int range_back(struct range *range)
{
	CUmemAllocationProp properties = frame_properties(range->rdma, range->handle_types);
	size_t made = 0;
	int good = 1;

	for (size_t i = 0; i < range->count && good; i++) {
		size_t bytes = range_chunk_bytes(range, i);
		good = TRY("range", cuMemCreate, &range->handle[i], bytes, &properties, 0);
		if (!good)
			break;
		good = TRY("range", cuMemMap, range->base + i * range->chunk, bytes, 0,
			   range->handle[i], 0);
		if (!good)
			CU(cuMemRelease, range->handle[i]);
		else
			made++;
	}
	if (good && driver_check(range_access(range->base, range->size), "cuMemSetAccess", "range")) {
		range->mapped = 1;
		return 1;
	}
	for (size_t i = 0; i < made; i++) {
		CU(cuMemUnmap, range->base + i * range->chunk, range_chunk_bytes(range, i));
		CU(cuMemRelease, range->handle[i]);
	}
	return 0;
}

int range_unback(struct range *range)
{
	int good = 1;

	for (size_t i = 0; i < range->count && range->mapped; i++) {
		good &= TRY("range", cuMemUnmap, range->base + i * range->chunk,
			    range_chunk_bytes(range, i));
		good &= TRY("range", cuMemRelease, range->handle[i]);
	}
	range->mapped = 0;
	return good;
}

void range_free(struct range *range)
{
	range_unback(range);
	if (range->base)
		CU(cuMemAddressFree, range->base, range->size);
	free(range->handle);
	memset(range, 0, sizeof *range);
}

static int ballast_add(struct ballast *ballast, size_t bytes)
{
	CUmemAllocationProp properties = frame_properties(0, HANDLE_NONE);
	CUmemHandle *grown = realloc(ballast->handle, (ballast->count + 1) * sizeof *grown);

	if (!grown)
		return 0;
	ballast->handle = grown;
	if (CU(cuMemCreate, &grown[ballast->count], bytes, &properties, 0) != CUDA_SUCCESS)
		return 0;
	ballast->count++;
	ballast->bytes += bytes;
	return 1;
}

int ballast_fill(struct ballast *ballast, size_t leave)
{
	static const size_t sizes[] = {1024, 128, 16};

	memset(ballast, 0, sizeof *ballast);
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
		while (left_ms() > 2000) {
			size_t unused = device_free_bytes(), bytes = sizes[i] * MIB;
			if (unused < leave + bytes || !ballast_add(ballast, bytes))
				break;
		}
	return device_free_bytes() < leave + GIB;
}

void ballast_drop(struct ballast *ballast)
{
	for (size_t i = 0; i < ballast->count; i++)
		CU(cuMemRelease, ballast->handle[i]);
	free(ballast->handle);
	memset(ballast, 0, sizeof *ballast);
}

size_t host_share(size_t most)
{
	size_t third = host_available_bytes() / 3 / (2 * MIB) * (2 * MIB);

	return third < most ? third : most;
}

void sample(struct samples *samples, double value)
{
	if (samples->count < sizeof samples->value / sizeof *samples->value)
		samples->value[samples->count++] = value;
}

double sample_mean(const struct samples *samples)
{
	double sum = 0;

	for (size_t i = 0; i < samples->count; i++)
		sum += samples->value[i];
	return sum / (double)samples->count; /* no samples: not a number, recorded as null */
}

static int ascending(const void *left, const void *right)
{
	double difference = *(const double *)left - *(const double *)right;

	return difference < 0 ? -1 : difference > 0;
}

double sample_quantile(struct samples *samples, double part)
{
	qsort(samples->value, samples->count, sizeof *samples->value, ascending);
	if (samples->count == 0)
		return 0.0 / 0.0;
	size_t index = (size_t)(part * (double)(samples->count - 1) + 0.5);
	return samples->value[index];
}
