/*
 * What nearly every step needs of the device: a context, kernels, ranges of mapped
 * frames under a reserved address, ballast that fills the card, pinned host memory.
 * All helpers record what fails and answer false; none waits without end.
 */
#ifndef PROBE_SESSION_H
#define PROBE_SESSION_H

#include "driver.h"
#include "probe.h"

struct session {
	CUdevice device;
	CUcontext context;
	CUmodule module;
	CUfunction spin, watch, add, sum, fill, hash64, hash128;
};

/* Opens the driver and a context of its own on the device chosen. Peers tell theirs
 * "failed". */
int session_open(struct session *session);
int session_kernels(struct session *session);

size_t device_free_bytes(void); /* 0 when the driver does not say */

/* Launches with up to four 64-bit parameters (a 32-bit one is its low half). */
CUresult launch(CUfunction function, unsigned blocks, unsigned threads, CUstream stream,
		const uint64_t *parameters, size_t count);

/* The sum of what the fill kernel writes: word i is i * FILL_FACTOR + seed. */
#define FILL_FACTOR 0x9e3779b97f4a7c15ull
uint64_t fill_sum(uint64_t words, uint64_t seed);
int device_fill(struct session *s, CUdeviceptr at, size_t bytes, uint64_t seed);
int device_sum(struct session *s, CUdeviceptr at, size_t bytes, uint64_t *sum);

/* Frames in `count` handles of `chunk` bytes (the last may be shorter). */
struct range {
	CUdeviceptr base;
	size_t size, chunk, count;
	CUmemHandle *handle;
	int mapped;
	int rdma, handle_types;
};

CUmemAllocationProp frame_properties(int rdma, int handle_types);
size_t frame_granularity(void);
int range_reserve(struct range *range, size_t size, size_t chunk);
int range_back(struct range *range); /* create, map, set access */
int range_unback(struct range *range); /* unmap, release */
void range_free(struct range *range);
size_t range_chunk_bytes(const struct range *range, size_t index);
CUresult range_access(CUdeviceptr at, size_t size);

/* Unmapped frames that leave about `leave` bytes of the card free. */
struct ballast {
	CUmemHandle *handle;
	size_t count, bytes;
};
int ballast_fill(struct ballast *ballast, size_t leave);
void ballast_drop(struct ballast *ballast);

/* How much of the host a step may take now: `most`, or a third of what is there. */
size_t host_share(size_t most);

struct samples {
	double value[4096];
	size_t count;
};
void sample(struct samples *samples, double value);
double sample_mean(const struct samples *samples);
double sample_quantile(struct samples *samples, double part); /* sorts */

#endif
