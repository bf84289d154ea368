/*
 * Runs a step in a process of its own: fork and exec of this program, in a process
 * group of its own, so that a sticky CUDA error, a crash or a hang of one step leaves
 * the others alone. Collects the step's records. Makes no CUDA call.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "probe.h"

struct intake {
	char bytes[65536];
	size_t used;
};

static void keep_line(struct step_result *result, const char *line)
{
	struct field fields[RECORD_FIELDS];

	if (record_parse(line, fields) < 0) {
		result->garbled++;
		return;
	}
	char **lines = realloc(result->lines, (result->count + 1) * sizeof *lines);
	if (!lines)
		return;
	result->lines = lines;
	if ((lines[result->count] = strdup(line)))
		result->count++;
}

/* Reads what there is: 1 for some, 0 at the end of the pipe, -1 for nothing yet. */
static int take_lines(int fd, struct intake *intake, struct step_result *result)
{
	ssize_t got = read(fd, intake->bytes + intake->used, sizeof intake->bytes - intake->used - 1);

	if (got <= 0)
		return got < 0 && (errno == EINTR || errno == EAGAIN) ? -1 : 0;
	intake->used += (size_t)got;
	intake->bytes[intake->used] = '\0';
	for (char *newline; (newline = strchr(intake->bytes, '\n'));) {
		*newline = '\0';
		keep_line(result, intake->bytes);
		intake->used -= (size_t)(newline + 1 - intake->bytes);
		memmove(intake->bytes, newline + 1, intake->used + 1);
	}
	if (intake->used == sizeof intake->bytes - 1) {
		result->garbled++;
		intake->used = 0;
	}
	return 1;
}

static void exec_step(const struct step *step, int fd, double limit_ms)
{
	char number[16], record_fd[16], limit[32], device[16];
	char *arguments[16] = {"gpu-probe", "--child-step", number, "--record-fd", record_fd,
			       "--limit-ms", limit, "--device", device};
	int count = 9;

	setpgid(0, 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	dup2(STDERR_FILENO, STDOUT_FILENO); /* what a driver prints must not mix into JSON */
	snprintf(number, sizeof number, "%d", step->number);
	snprintf(record_fd, sizeof record_fd, "%d", fd);
	snprintf(limit, sizeof limit, "%.0f", limit_ms);
	snprintf(device, sizeof device, "%d", options.device);
	if (options.quick)
		arguments[count++] = "--quick";
	if (options.map_path) {
		arguments[count++] = "--map";
		arguments[count++] = (char *)options.map_path;
	}
	execv("/proc/self/exe", arguments);
	_exit(127);
}

/* Waits for the end of a killed process; one stuck in the kernel is left behind. */
static int reap(pid_t pid, int *status)
{
	for (int tries = 0; tries < 40; tries++) {
		if (waitpid(pid, status, WNOHANG) == pid)
			return 1;
		sleep_ms(50);
	}
	return 0;
}

void step_run(const struct step *step, double limit_ms, struct step_result *result)
{
	static struct intake intake;
	double start = now_ms();
	int ends[2], status = 0, ended = 0, late = 0;

	memset(result, 0, sizeof *result);
	intake.used = 0;
	result->outcome = "failed";
	if (pipe2(ends, O_CLOEXEC) != 0)
		return;
	pid_t pid = fork();
	if (pid == 0) {
		fcntl(ends[1], F_SETFD, 0);
		exec_step(step, ends[1], limit_ms);
	}
	close(ends[1]);
	if (pid < 0) {
		close(ends[0]);
		return;
	}
	setpgid(pid, pid); /* also here: whichever of the two comes first */
	fcntl(ends[0], F_SETFL, O_NONBLOCK);
	while (!ended && !late) {
		struct pollfd wait = {ends[0], POLLIN, 0};
		poll(&wait, 1, 20);
		if (take_lines(ends[0], &intake, result) == 0)
			sleep_ms(5); /* it has closed its end and is about to leave */
		ended = waitpid(pid, &status, WNOHANG) == pid;
		late = now_ms() - start > limit_ms;
	}
	kill(-pid, SIGKILL); /* its peers too */
	if (!ended)
		ended = reap(pid, &status);
	while (take_lines(ends[0], &intake, result) > 0)
		;
	close(ends[0]);
	result->seconds = (now_ms() - start) / 1e3;
	if (late) {
		result->outcome = ended ? "timed out" : "timed out, cannot be killed";
	} else if (WIFSIGNALED(status)) {
		result->outcome = "crashed";
		result->signal = WTERMSIG(status);
	} else {
		result->exit_code = WEXITSTATUS(status);
		result->outcome = result->exit_code == EXIT_DONE ? "done" : "failed";
	}
}
