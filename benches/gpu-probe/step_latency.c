/*
 * Step 14: how late a small kernel is: back to back, after idle time, beside a busy
 * process, and after a futex wake-up by another process (the way a turn is granted).
 */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "session.h"
#include "steps.h"

static const uint64_t SHORT_CYCLES = 100;

static int launch_once(struct session *session, double *call_us, double *done_us)
{
	double start = now_us();

	if (!driver_check(launch(session->spin, 1, 1, NULL, &SHORT_CYCLES, 1), "cuLaunchKernel",
			  "latency"))
		return 0;
	*call_us = now_us() - start;
	if (!TRY("latency", cuCtxSynchronize))
		return 0;
	*done_us = now_us() - start;
	return 1;
}

static int after_gap(struct session *session, const char *what, double gap_ms, int count)
{
	static struct samples calls, ends;
	double call_us, done_us;

	calls.count = ends.count = 0;
	for (int i = 0; i < count && left_ms() > 3000; i++) {
		if (gap_ms > 0)
			sleep_ms(gap_ms);
		if (!launch_once(session, &call_us, &done_us))
			return 0;
		sample(&calls, call_us);
		sample(&ends, done_us);
	}
	record_begin("launch latency");
	record_text("case", what);
	record_real("gap_ms", gap_ms);
	record_int("launches", (long long)ends.count);
	record_real("call_us_p50", sample_quantile(&calls, 0.5));
	record_real("call_us_max", sample_quantile(&calls, 1));
	record_real("done_us_p50", sample_quantile(&ends, 0.5));
	record_real("done_us_p99", sample_quantile(&ends, 0.99));
	record_real("done_us_max", sample_quantile(&ends, 1));
	record_end();
	return 1;
}

static void beside_a_busy_process(struct session *session)
{
	static struct peer peer;

	if (peer_startf(&peer, "watch", "%s", "") && peer_tell(&peer, "watch 1500")) {
		sleep_ms(50);
		after_gap(session, "beside kernels of another process", 0, 100);
		after_gap(session, "beside kernels of another process", 5, options.quick ? 10 : 50);
	}
	peer_end(&peer);
}

/* The page that both sides map. Times are of the monotonic clock, in microseconds. */
struct page {
	_Atomic uint32_t turn, answered;
	double woken_us, called_us, done_us;
};

static struct page *map_page(int fd)
{
	void *memory = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	return memory == MAP_FAILED ? NULL : memory;
}

/* Peer: "wake FD" waits on the page's word and launches at once when it changes. */
int role_wake(int count, char **arguments)
{
	struct page *page = count > 0 ? map_page(atoi(arguments[0])) : NULL;
	struct session session;
	double call_us, done_us;

	if (!page || !session_open(&session) || !session_kernels(&session) ||
	    !launch_once(&session, &call_us, &done_us)) {
		role_say("failed: the waking peer could not start");
		return EXIT_STEP_FAILED;
	}
	role_say("ready");
	for (uint32_t turn = 0; left_ms() > 0;) {
		struct timespec wait = {1, 0};
		syscall(SYS_futex, &page->turn, FUTEX_WAIT, turn, &wait, NULL, 0);
		uint32_t now = atomic_load(&page->turn);
		if (now == UINT32_MAX)
			return EXIT_DONE;
		if (now == turn)
			continue;
		turn = now;
		page->woken_us = now_us();
		if (!launch_once(&session, &call_us, &done_us))
			return EXIT_STEP_FAILED;
		page->called_us = page->woken_us + call_us;
		page->done_us = page->woken_us + done_us;
		atomic_store(&page->answered, turn);
	}
	return EXIT_DONE;
}

static void after_wake(int count, double gap_ms)
{
	static struct samples woken, called, done;
	static struct peer peer;
	int fd = memfd_create("gpu-probe", 0); /* the peer inherits it */
	struct page *page = fd >= 0 && ftruncate(fd, 4096) == 0 ? map_page(fd) : NULL;

	if (page && peer_startf(&peer, "wake", "%d", fd)) {
		woken.count = called.count = done.count = 0;
		for (uint32_t turn = 1; turn <= (uint32_t)count && left_ms() > 2000; turn++) {
			sleep_ms(gap_ms);
			double sent = now_us();
			atomic_store(&page->turn, turn);
			syscall(SYS_futex, &page->turn, FUTEX_WAKE, 1, NULL, NULL, 0);
			while (atomic_load(&page->answered) != turn && now_us() - sent < 500000)
				sleep_ms(0.05);
			if (atomic_load(&page->answered) != turn)
				break;
			sample(&woken, page->woken_us - sent);
			sample(&called, page->called_us - sent);
			sample(&done, page->done_us - sent);
		}
		record_begin("wake by another process, then launch");
		record_real("gap_ms", gap_ms);
		record_int("wakes", (long long)done.count);
		record_real("woken_us_p50", sample_quantile(&woken, 0.5));
		record_real("woken_us_p99", sample_quantile(&woken, 0.99));
		record_real("launched_us_p50", sample_quantile(&called, 0.5));
		record_real("done_us_p50", sample_quantile(&done, 0.5));
		record_real("done_us_p99", sample_quantile(&done, 0.99));
		record_end();
		atomic_store(&page->turn, UINT32_MAX);
		syscall(SYS_futex, &page->turn, FUTEX_WAKE, 1, NULL, NULL, 0);
	}
	peer_end(&peer);
	if (fd >= 0)
		close(fd);
}

int step_latency(void)
{
	static const struct {
		double gap_ms;
		int count;
	} gaps[] = {{0, 500}, {1, 100}, {10, 30}, {100, 8}, {1000, 2}};
	struct session session;
	double unused;

	if (!session_open(&session) || !session_kernels(&session) ||
	    !launch_once(&session, &unused, &unused))
		return EXIT_STEP_FAILED;
	for (size_t i = 0; i < (options.quick ? 3 : 5); i++)
		if (!after_gap(&session, "alone", gaps[i].gap_ms, gaps[i].count))
			return EXIT_STEP_FAILED;
	after_wake(options.quick ? 20 : 100, 5);
	beside_a_busy_process(&session);
	return EXIT_DONE;
}
