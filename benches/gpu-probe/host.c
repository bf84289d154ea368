/*
 * Facts about the host that bound a measurement or belong beside its result: time,
 * memory that may be taken, the processor's name. Reads /proc and /sys, changes nothing.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "probe.h"

double now_us(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec * 1e6 + (double)time.tv_nsec / 1e3;
}

double now_ms(void)
{
	return now_us() / 1e3;
}

double left_ms(void)
{
	return options.deadline_ms - now_ms();
}

void sleep_ms(double ms)
{
	struct timespec time = {(time_t)(ms / 1e3), (long)((ms - 1e3 * (double)(long)(ms / 1e3)) * 1e6)};

	nanosleep(&time, NULL);
}

int host_read_line(const char *path, char *line, size_t bytes)
{
	FILE *file = fopen(path, "re");

	line[0] = '\0';
	if (!file)
		return 0;
	int read = fgets(line, (int)bytes, file) != NULL;
	fclose(file);
	line[strcspn(line, "\n")] = '\0';
	return read;
}

long long host_status_number(const char *path, const char *key)
{
	char line[512];
	FILE *file = fopen(path, "re");
	long long value = -1;

	if (!file)
		return -1;
	while (value < 0 && fgets(line, sizeof line, file))
		if (strncmp(line, key, strlen(key)) == 0 && line[strlen(key)] == ':')
			value = atoll(line + strlen(key) + 1);
	fclose(file);
	return value;
}

int host_cpu_name(char *name, size_t bytes)
{
	char line[512];
	FILE *file = fopen("/proc/cpuinfo", "re");

	snprintf(name, bytes, "unknown");
	if (!file)
		return 0;
	while (fgets(line, sizeof line, file)) {
		const char *colon = strchr(line, ':');
		if (strncmp(line, "model name", 10) != 0 || !colon)
			continue;
		line[strcspn(line, "\n")] = '\0';
		snprintf(name, bytes, "%s", colon + 2);
		break;
	}
	fclose(file);
	return 1;
}

static size_t cgroup_room(const char *limit_path, const char *use_path)
{
	char limit[64], use[64];

	if (!host_read_line(limit_path, limit, sizeof limit) || limit[0] == 'm' ||
	    !host_read_line(use_path, use, sizeof use))
		return SIZE_MAX;
	unsigned long long most = strtoull(limit, NULL, 10), now = strtoull(use, NULL, 10);
	return most > now ? most - now : 0;
}

size_t host_available_bytes(void)
{
	long long kib = host_status_number("/proc/meminfo", "MemAvailable");
	size_t least = kib > 0 ? (size_t)kib * 1024 : 0;
	size_t second = cgroup_room("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current");
	size_t first = cgroup_room("/sys/fs/cgroup/memory/memory.limit_in_bytes",
				   "/sys/fs/cgroup/memory/memory.usage_in_bytes");

	if (least > second)
		least = second;
	return least > first ? first : least;
}
