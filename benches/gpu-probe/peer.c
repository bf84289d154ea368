/*
 * Helper processes of a step: this program again in a role, tied to the step by a
 * socket that carries lines. A peer ends when its socket does, so none outlives the
 * step. What a role measures stands in the file of the step that uses it.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "probe.h"

static int role_fd = -1;

static void exec_peer(const char *role, int fd, const char *const *extra)
{
	char number[16], device[16], left[32];
	const char *arguments[20] = {"gpu-probe", "--peer", role, "--peer-fd", number,
				     "--limit-ms", left, "--device", device};
	int count = 9;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	snprintf(number, sizeof number, "%d", fd);
	snprintf(device, sizeof device, "%d", options.device);
	snprintf(left, sizeof left, "%.0f", left_ms());
	if (options.quick)
		arguments[count++] = "--quick";
	arguments[count++] = "--";
	while (*extra && count < 19)
		arguments[count++] = *extra++;
	arguments[count] = NULL;
	execv("/proc/self/exe", (char *const *)(uintptr_t)arguments);
	_exit(127);
}

int peer_start(struct peer *peer, const char *role, const char *const *extra)
{
	int ends[2];

	memset(peer, 0, sizeof *peer);
	peer->fd = -1;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
		return 0;
	peer->pid = fork();
	if (peer->pid == 0) {
		int kept = dup(ends[1]); /* without CLOEXEC */
		exec_peer(role, kept, extra);
	}
	close(ends[1]);
	peer->fd = ends[0];
	if (peer->pid < 0)
		return 0;
	return peer_await(peer, "ready", NULL, 0, 15000);
}

int peer_startf(struct peer *peer, const char *role, const char *format, ...)
{
	char text[256];
	const char *words[8] = {NULL};
	int count = 0;
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof text, format, arguments);
	va_end(arguments);
	for (char *word = strtok(text, " "); word && count < 7; word = strtok(NULL, " "))
		words[count++] = word;
	return peer_start(peer, role, words);
}

int peer_tell(struct peer *peer, const char *line)
{
	char text[256];
	int length = snprintf(text, sizeof text, "%s\n", line);

	return send(peer->fd, text, (size_t)length, MSG_NOSIGNAL) == length;
}

/* Takes one line off the input; waits for it until `end_ms`. */
static int next_line(int fd, char *input, size_t room, size_t *used, char *line, size_t bytes,
		     double end_ms)
{
	for (;;) {
		char *newline = memchr(input, '\n', *used);
		if (newline) {
			size_t length = (size_t)(newline - input);
			snprintf(line, bytes, "%.*s", (int)length, input);
			*used -= length + 1;
			memmove(input, newline + 1, *used);
			return 1;
		}
		double left = end_ms - now_ms();
		struct pollfd wait = {fd, POLLIN, 0};
		if (left <= 0 || *used == room)
			return 0;
		if (poll(&wait, 1, (int)left + 1) <= 0)
			continue;
		ssize_t got = read(fd, input + *used, room - *used);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return -1;
		*used += (size_t)got;
	}
}

int peer_await(struct peer *peer, const char *word, char *rest, size_t bytes, double ms)
{
	char line[4096];
	double end = now_ms() + ms;
	size_t length = strlen(word);
	int got;

	if (end > options.deadline_ms)
		end = options.deadline_ms;
	while ((got = next_line(peer->fd, peer->input, sizeof peer->input, &peer->used, line,
				sizeof line, end)) > 0) {
		if (line[0] == '{') {
			strcat(line, "\n"); /* a record is shorter than the line's room */
			if (write(options.record_fd, line, strlen(line)) < 0)
				return 0;
		} else if (strncmp(line, word, length) == 0) {
			if (rest)
				snprintf(rest, bytes, "%s", line + length);
			return 1;
		} else if (strncmp(line, "failed", 6) == 0) {
			break;
		}
	}
	record_begin("peer failed");
	record_text("awaited", word);
	record_text("why", got > 0 ? line : got < 0 ? "the peer ended" : "no answer in time");
	record_end();
	return 0;
}

void peer_end(struct peer *peer)
{
	int status;

	if (peer->fd >= 0) {
		shutdown(peer->fd, SHUT_WR); /* the peer hears its end and leaves */
		char bytes[4096];
		struct pollfd wait = {peer->fd, POLLIN, 0};
		double end = now_ms() + 2000;
		while (now_ms() < end && poll(&wait, 1, 100) >= 0)
			if ((wait.revents & (POLLIN | POLLHUP)) &&
			    read(peer->fd, bytes, sizeof bytes) <= 0)
				break;
		close(peer->fd);
		peer->fd = -1;
	}
	if (peer->pid <= 0)
		return;
	for (int tries = 0; tries < 20; tries++) {
		if (waitpid(peer->pid, &status, WNOHANG) == peer->pid) {
			peer->pid = 0;
			return;
		}
		sleep_ms(25);
	}
	kill(peer->pid, SIGKILL);
	waitpid(peer->pid, &status, WNOHANG);
	peer->pid = 0;
}

int role_hear(char *line, size_t bytes, double ms)
{
	static char input[4096];
	static size_t used;
	double end = now_ms() + ms;

	if (end > options.deadline_ms)
		end = options.deadline_ms;
	return next_line(role_fd, input, sizeof input, &used, line, bytes, end) > 0;
}

void role_say(const char *format, ...)
{
	char text[512];
	va_list arguments;

	va_start(arguments, format);
	int length = vsnprintf(text, sizeof text - 1, format, arguments);
	va_end(arguments);
	if (length < 0 || (size_t)length >= sizeof text - 1)
		return;
	text[length] = '\n';
	send(role_fd, text, (size_t)length + 1, MSG_NOSIGNAL);
}

int peer_main(const char *name, int fd, int count, char **arguments)
{
	role_fd = fd;
	options.record_fd = fd;
	for (const struct role *role = roles; role->name; role++)
		if (strcmp(role->name, name) == 0)
			return role->run(count, arguments);
	role_say("failed: no role %s", name);
	return EXIT_USAGE;
}
