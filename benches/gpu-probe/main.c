/*
 * gpu-probe: measures on a real card what a scheduler that moves device memory must
 * know about the driver. Order of events: step 0 (the card's identity; without a card
 * exit 2), then every step in a process of its own (runner.c), then the JSON report.
 * The same binary is the step's process (--child-step) and its peers (--peer).
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "probe.h"

enum { SCHEMA_VERSION = 1, MOST_STEPS = 32 };

struct options options = {.record_fd = -1};

struct command {
	int child_step, peer_fd, only, list;
	double limit_ms;
	const char *peer_role;
};

static const char usage[] =
	"usage: gpu-probe [--json FILE] [--map FILE] [--device N] [--step N] [--quick]\n"
	"                 [--total-s N] [--list]\n"
	"  --json FILE   write the report there; without it the report goes to stdout\n"
	"                and the tables to stderr\n"
	"  --map FILE    write what cuGetProcAddress answers, name by name, as TSV\n"
	"  --device N    the driver's index of the card (default 0)\n"
	"  --step N      only this step (and step 0)\n"
	"  --quick       fewer sizes and repeats, about a third of the time\n"
	"  --total-s N   start no step after this many seconds (default 170)\n"
	"  --list        the steps\n"
	"exit status: 0 report written, whatever the steps found; 2 no driver or device;\n"
	"             3 the report cannot be written; 64 wrong usage\n";

static int read_arguments(int count, char **arguments, struct command *command)
{
	static const struct option table[] = {
		{"json", 1, 0, 'j'}, {"map", 1, 0, 'm'}, {"device", 1, 0, 'd'},
		{"step", 1, 0, 's'}, {"quick", 0, 0, 'q'}, {"total-s", 1, 0, 't'},
		{"list", 0, 0, 'l'}, {"help", 0, 0, 'h'}, {"child-step", 1, 0, 'c'},
		{"record-fd", 1, 0, 'r'}, {"limit-ms", 1, 0, 'T'}, {"peer", 1, 0, 'p'},
		{"peer-fd", 1, 0, 'f'}, {0, 0, 0, 0}};
	int option;

	while ((option = getopt_long(count, arguments, "+", table, NULL)) != -1) {
		switch (option) {
		case 'j': options.json_path = optarg; break;
		case 'm': options.map_path = optarg; break;
		case 'd': options.device = atoi(optarg); break;
		case 's': command->only = atoi(optarg); break;
		case 'q': options.quick = 1; break;
		case 't': command->limit_ms = atof(optarg) * 1e3; break;
		case 'T': command->limit_ms = atof(optarg); break;
		case 'l': command->list = 1; break;
		case 'c': command->child_step = atoi(optarg); break;
		case 'r': options.record_fd = atoi(optarg); break;
		case 'p': command->peer_role = optarg; break;
		case 'f': command->peer_fd = atoi(optarg); break;
		case 'h': printf("%s", usage); exit(EXIT_DONE);
		default: return 0;
		}
	}
	return optind == count || command->peer_role != NULL;
}

static const struct step *step_by_number(int number)
{
	for (size_t i = 0; i < step_count; i++)
		if (steps[i].number == number)
			return &steps[i];
	return NULL;
}

/* The value of a field of step 0's identity record, as JSON text. */
static void print_identity(FILE *file, const struct step_result *first, const char *key)
{
	struct field fields[RECORD_FIELDS];

	for (size_t i = 0; i < first->count; i++) {
		int count = record_parse(first->lines[i], fields);
		if (count < 1 || strncmp(fields[0].value, "\"identity\"", 10) != 0)
			continue;
		for (int f = 1; f < count; f++)
			if ((size_t)fields[f].key_bytes == strlen(key) &&
			    strncmp(fields[f].key, key, strlen(key)) == 0) {
				fprintf(file, "  \"%s\": %.*s,\n", key, fields[f].value_bytes,
					fields[f].value);
				return;
			}
	}
	fprintf(file, "  \"%s\": null,\n", key);
}

static void print_step(FILE *file, const struct step *step, const struct step_result *result)
{
	fprintf(file,
		"    {\"number\": %d, \"name\": \"%s\", \"question\": \"%s\", \"outcome\": \"%s\",\n"
		"     \"exit_code\": %d, \"signal\": %d, \"seconds\": %.3f, \"limit_s\": %d,\n"
		"     \"garbled_lines\": %zu, \"records\": [",
		step->number, step->name, step->question, result->outcome, result->exit_code,
		result->signal, result->seconds, step->limit_s, result->garbled);
	for (size_t i = 0; i < result->count; i++)
		fprintf(file, "%s\n      %s", i ? "," : "", result->lines[i]);
	fprintf(file, "]}");
}

static void print_report(FILE *file, const struct step_result *results, double seconds)
{
	char date[32];
	time_t now = time(NULL);
	const char *separator = "";

	strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", gmtime(&now));
	fprintf(file, "{\n  \"schema\": \"turnus-gpu-probe\",\n  \"schema_version\": %d,\n",
		SCHEMA_VERSION);
	fprintf(file, "  \"date\": \"%s\",\n  \"quick\": %s,\n  \"seconds\": %.1f,\n", date,
		options.quick ? "true" : "false", seconds);
	static const char *const identity[] = {"card", "uuid", "device_index", "driver_version",
					       "cuda_version", "kernel_version", "host_cpu"};
	for (size_t i = 0; i < sizeof identity / sizeof *identity; i++)
		print_identity(file, &results[0], identity[i]);
	fprintf(file, "  \"steps\": [");
	for (size_t i = 0; i < step_count; i++) {
		if (!results[i].outcome)
			continue;
		fprintf(file, "%s\n", separator);
		print_step(file, &steps[i], &results[i]);
		separator = ",";
	}
	fprintf(file, "\n  ]\n}\n");
}

/* Writes the report as far as it goes: to the file after each step, so that what was
 * measured survives; to stdout (kept as descriptor 3) only at the end. */
static int write_report(const struct step_result *results, double start_ms, int at_end)
{
	FILE *file = options.json_path ? fopen(options.json_path, "we")
		   : at_end ? fdopen(3, "w") : NULL;

	if (!file && !options.json_path && !at_end)
		return 1;
	if (file) {
		print_report(file, results, (now_ms() - start_ms) / 1e3);
		if (fclose(file) == 0)
			return 1;
	}
	fprintf(stderr, "gpu-probe: cannot write the report: %s\n", strerror(errno));
	return 0;
}

static void print_outcome(const struct step *step, const struct step_result *result)
{
	printf("\n[%d] %s: %s (%.1f s", step->number, step->name, result->outcome, result->seconds);
	if (result->signal)
		printf(", signal %d %s", result->signal, strsignal(result->signal));
	printf(")\n    %s\n", step->question);
	records_print(result->lines, result->count);
	fflush(stdout);
}

static void refuse(const struct step_result *first)
{
	struct field fields[RECORD_FIELDS];
	char why[512] = "";

	for (size_t i = 0; i < first->count; i++)
		if (record_parse(first->lines[i], fields) == 2 &&
		    strncmp(fields[0].value, "\"refused\"", 9) == 0)
			snprintf(why, sizeof why, "%.*s", fields[1].value_bytes - 2,
				 fields[1].value + 1);
	if (!*why)
		snprintf(why, sizeof why, "asking the driver for its devices %s",
			 first->outcome);
	fprintf(stderr, "gpu-probe: no usable NVIDIA device: %s\n", why);
}

static int run_all(const struct command *command)
{
	static struct step_result results[MOST_STEPS];
	double start = now_ms(), total_ms = command->limit_ms;

	for (size_t i = 0; i < step_count; i++) {
		const struct step *step = &steps[i];
		if (command->only >= 0 && step->number != 0 && step->number != command->only)
			continue;
		double left = total_ms - (now_ms() - start);
		if (left < 1000) {
			results[i].outcome = "skipped: no time left";
			print_outcome(step, &results[i]);
			continue;
		}
		step_run(step, step->limit_s * 1e3 < left ? step->limit_s * 1e3 : left, &results[i]);
		if (i == 0 && strcmp(results[0].outcome, "done") != 0) {
			refuse(&results[0]);
			return EXIT_NO_DEVICE;
		}
		print_outcome(step, &results[i]);
		if (!write_report(results, start, 0))
			return EXIT_NO_REPORT;
	}
	return write_report(results, start, 1) ? EXIT_DONE : EXIT_NO_REPORT;
}

/* Without --json the report owns stdout: tables go to stderr, the report to fd 3. */
static int part_outputs(void)
{
	return options.json_path || (dup3(1, 3, O_CLOEXEC) == 3 && dup2(2, 1) == 1);
}

int main(int count, char **arguments)
{
	struct command command = {-1, -1, -1, 0, 170e3, NULL};

	if (!read_arguments(count, arguments, &command)) {
		fprintf(stderr, "%s", usage);
		return EXIT_USAGE;
	}
	if (command.list) {
		for (size_t i = 0; i < step_count; i++)
			printf("%2d  %-18s %3d s  %s\n", steps[i].number, steps[i].name,
			       steps[i].limit_s, steps[i].question);
		return EXIT_DONE;
	}
	options.deadline_ms = now_ms() + command.limit_ms;
	if (command.peer_role)
		return peer_main(command.peer_role, command.peer_fd, count - optind,
				 arguments + optind);
	if (command.child_step >= 0) {
		const struct step *step = step_by_number(command.child_step);
		fcntl(options.record_fd, F_SETFD, FD_CLOEXEC);
		return step ? step->run() : EXIT_USAGE;
	}
	if ((command.only >= 0 && !step_by_number(command.only)) || options.device < 0) {
		fprintf(stderr, "gpu-probe: no such step or device; see --list\n");
		return EXIT_USAGE;
	}
	signal(SIGPIPE, SIG_IGN);
	if (!part_outputs())
		return EXIT_NO_REPORT;
	return run_all(&command);
}
