/*
 * Step 12: exports for direct memory access (dma-buf) of frames made with and without
 * the RDMA flag, and of cuMemAlloc memory: which calls fail, how, and what an open
 * export does to the frames when they are unmapped and released. The registration by
 * nvidia-peermem needs a network card and is not tried.
 */
#include <unistd.h>

#include "session.h"
#include "steps.h"

static int export_fd(const char *origin, const char *way, CUdeviceptr at, size_t bytes,
		     unsigned long long flags)
{
	int fd = -1;
	CUresult result = CU(cuMemGetHandleForAddressRange, &fd, at, bytes, RANGE_HANDLE_DMA_BUF, flags);

	record_begin("dma-buf export");
	record_text("origin", origin);
	record_text("way", way);
	record_int("code", result);
	record_text("name", driver_result_name(result));
	record_bool("descriptor", result == CUDA_SUCCESS && fd >= 0);
	record_end();
	return result == CUDA_SUCCESS ? fd : -1;
}

/* Do frames stay taken while a descriptor of them is open? */
static void outlives(struct range *range, int fd, const char *origin)
{
	long long mapped = (long long)device_free_bytes();
	int good = range_unback(range);
	long long released = (long long)device_free_bytes();
	close(fd);
	sleep_ms(20);
	record_begin("open dma-buf while frames are released");
	record_text("origin", origin);
	record_bool("unmap_and_release_succeed", good);
	record_int("freed_at_release_mib", (released - mapped) / (long long)MIB);
	record_int("freed_after_close_mib", ((long long)device_free_bytes() - mapped) / (long long)MIB);
	record_end();
}

static int frames(const char *origin, int rdma, int handle_types)
{
	struct range range;
	int value = -1, fd;

	if (!range_reserve(&range, 64 * MIB, 32 * MIB))
		return 0;
	range.rdma = rdma;
	range.handle_types = handle_types;
	if (!range_back(&range)) {
		range_free(&range);
		return 0;
	}
	CUresult result = CU(cuPointerGetAttribute, &value, 15, range.base);
	record_begin("IS_GPU_DIRECT_RDMA_CAPABLE");
	record_text("origin", origin);
	record_int("code", result);
	record_int("value", value);
	record_end();
	if ((fd = export_fd(origin, "one handle", range.base, 32 * MIB, 0)) >= 0)
		close(fd);
	if ((fd = export_fd(origin, "over PCIe", range.base, 32 * MIB, RANGE_FLAG_PCIE)) >= 0)
		close(fd);
	if ((fd = export_fd(origin, "both handles", range.base, 64 * MIB, 0)) >= 0)
		outlives(&range, fd, origin);
	range_free(&range);
	return 1;
}

int step_rdma(void)
{
	struct session session;
	CUdeviceptr plain = 0;
	int fd;

	if (!session_open(&session))
		return EXIT_STEP_FAILED;
	record_begin("device says");
	record_int("rdma_with_vmm", driver_attribute(ATTRIBUTE_RDMA_WITH_VMM, session.device));
	record_int("rdma", driver_attribute(ATTRIBUTE_RDMA, session.device));
	record_int("dma_buf", driver_attribute(ATTRIBUTE_DMA_BUF, session.device));
	record_end();
	if (TRY("rdma", cuMemAlloc, &plain, 32 * MIB) &&
	    (fd = export_fd("cuMemAlloc", "whole", plain, 32 * MIB, 0)) >= 0)
		close(fd);
	int good = frames("frames without the flag", 0, HANDLE_NONE);
	good &= frames("frames without the flag, posix fd", 0, HANDLE_POSIX_FD);
	good &= frames("frames with the flag", 1, HANDLE_NONE);
	return good ? EXIT_DONE : EXIT_STEP_FAILED;
}
