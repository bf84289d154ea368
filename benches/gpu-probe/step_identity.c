/*
 * Step 0: names the card, the driver and the host, and dumps all device attributes.
 * Refuses, with one sentence, where there is no driver or no device. Makes no context.
 */
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "driver.h"
#include "probe.h"
#include "steps.h"

static int refuse(const char *why)
{
	record_begin("refused");
	record_text("why", why);
	record_end();
	return EXIT_NO_DEVICE;
}

static int refuse_result(const char *call, CUresult result)
{
	char why[256];

	snprintf(why, sizeof why, "%s answers %s (%d)", call, driver_result_name(result), result);
	return refuse(why);
}

static void uuid_text(CUdevice device, char text[48])
{
	CUuuid uuid;
	const unsigned char *b = uuid.bytes;

	memset(&uuid, 0, sizeof uuid);
	if (CU(cuDeviceGetUuid_v2, &uuid, device) != CUDA_SUCCESS)
		CU(cuDeviceGetUuid, &uuid, device);
	snprintf(text, 48,
		 "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0],
		 b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13],
		 b[14], b[15]);
}

/* The module's version; in /proc it is the first word that begins with a digit. */
static void driver_version_text(char *text, size_t bytes)
{
	char line[256];

	if (host_read_line("/sys/module/nvidia/version", text, bytes))
		return;
	snprintf(text, bytes, "unknown");
	if (!host_read_line("/proc/driver/nvidia/version", line, sizeof line))
		return;
	for (char *word = strtok(line, " "); word; word = strtok(NULL, " "))
		if (*word >= '0' && *word <= '9') {
			snprintf(text, bytes, "%s", word);
			return;
		}
}

static void record_identity(CUdevice device, int cuda_version)
{
	char name[256] = "unknown", uuid[48], driver_version[128], cpu[128];
	struct utsname host;

	uname(&host);
	TRY("identity", cuDeviceGetName, name, (int)sizeof name, device);
	uuid_text(device, uuid);
	host_cpu_name(cpu, sizeof cpu);
	driver_version_text(driver_version, sizeof driver_version);
	record_begin("identity");
	record_text("card", name);
	record_text("uuid", uuid);
	record_int("device_index", options.device);
	record_text("driver_version", driver_version);
	record_int("cuda_version", cuda_version);
	record_text("kernel_version", host.release);
	record_text("host_cpu", cpu);
	record_end();
}

static void record_host(void)
{
	char shmem[128], thp[128], ptrace[16];
	long long pages = host_status_number("/proc/meminfo", "HugePages_Free");

	host_read_line("/sys/kernel/mm/transparent_hugepage/shmem_enabled", shmem, sizeof shmem);
	host_read_line("/sys/kernel/mm/transparent_hugepage/enabled", thp, sizeof thp);
	host_read_line("/proc/sys/kernel/yama/ptrace_scope", ptrace, sizeof ptrace);
	record_begin("host");
	record_int("processors", sysconf(_SC_NPROCESSORS_ONLN));
	record_int("available_mib", (long long)(host_available_bytes() / MIB));
	record_int("huge_pages_free", pages);
	record_text("shmem_thp", shmem);
	record_text("thp", thp);
	record_text("ptrace_scope", ptrace);
	record_int("effective_uid", (long long)geteuid());
	record_end();
}

static void record_device(CUdevice device)
{
	char bus[32] = "", path[128], speed[64], width[64];
	size_t total = 0;

	TRY("identity", cuDeviceTotalMem, &total, device);
	CU(cuDeviceGetPCIBusId, bus, (int)sizeof bus, device);
	for (char *at = bus; *at; at++)
		if (*at >= 'A' && *at <= 'F')
			*at = (char)(*at - 'A' + 'a');
	snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/current_link_speed", bus);
	host_read_line(path, speed, sizeof speed);
	snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/current_link_width", bus);
	host_read_line(path, width, sizeof width);
	record_begin("device");
	record_int("total_mib", (long long)(total / MIB));
	record_text("pci", bus);
	record_text("link_speed", speed);
	record_text("link_width", width);
	record_int("multiprocessors", driver_attribute(ATTRIBUTE_MULTIPROCESSORS, device));
	record_int("copy_engines", driver_attribute(ATTRIBUTE_ASYNC_ENGINES, device));
	record_int("vmm", driver_attribute(ATTRIBUTE_VMM, device));
	record_int("rdma_with_vmm", driver_attribute(ATTRIBUTE_RDMA_WITH_VMM, device));
	record_int("dma_buf", driver_attribute(ATTRIBUTE_DMA_BUF, device));
	record_int("concurrent_managed", driver_attribute(ATTRIBUTE_CONCURRENT_MANAGED, device));
	record_int("host_numa_vmm", driver_attribute(ATTRIBUTE_HOST_NUMA_VMM, device));
	record_end();
	for (int first = 1; first < 200; first += 20) {
		char key[16];
		int known = 0;
		record_begin("dump of device attributes by number");
		for (int a = first; a < first + 20; a++) {
			int value;
			if (CU(cuDeviceGetAttribute, &value, a, device) != CUDA_SUCCESS)
				continue;
			snprintf(key, sizeof key, "%d", a);
			record_int(key, value);
			known++;
		}
		if (known)
			record_end();
	}
}

int step_identity(void)
{
	const char *why = driver_open();
	int count = 0, cuda_version = 0;
	CUdevice device;
	CUresult result;
	char text[128];

	if (why)
		return refuse(why);
	if ((result = driver.cuInit(0)) != CUDA_SUCCESS)
		return refuse_result("cuInit", result);
	if ((result = driver.cuDeviceGetCount(&count)) != CUDA_SUCCESS)
		return refuse_result("cuDeviceGetCount", result);
	if (options.device >= count) {
		snprintf(text, sizeof text, "device %d was asked for, the driver shows %d",
			 options.device, count);
		return refuse(text);
	}
	if ((result = CU(cuDeviceGet, &device, options.device)) != CUDA_SUCCESS)
		return refuse_result("cuDeviceGet", result);
	CU(cuDriverGetVersion, &cuda_version);
	record_identity(device, cuda_version);
	record_device(device);
	record_host();
	return EXIT_DONE;
}
