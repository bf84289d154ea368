/*
 * What the parts of the probe share: options, time, records, host facts, helper
 * processes ("peers") and the list of steps. A step runs in a process of its own,
 * writes flat records as it goes, and returns; it must not assume that the driver
 * answers, or answers well. Read main.c for the order of events, steps.c for the list.
 */
#ifndef PROBE_H
#define PROBE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)

/* Exit codes of the program and of a step's process. */
enum {
	EXIT_DONE = 0,
	EXIT_STEP_FAILED = 1, /* a step could not do its work; its records say why */
	EXIT_NO_DEVICE = 2,
	EXIT_NO_REPORT = 3,
	EXIT_USAGE = 64
};

struct options {
	int device;
	int quick;
	int record_fd;        /* where record_end() writes, in a step or a peer */
	double deadline_ms;   /* of this process, by now_ms() */
	const char *json_path;
	const char *map_path; /* where the lookup step writes its table, or NULL */
};

extern struct options options;

/* Time of the monotonic clock. */
double now_ms(void);
double now_us(void);
double left_ms(void); /* until this process's deadline */
void sleep_ms(double ms);

/*
 * Records: flat JSON objects, one a line, each written by one write(), so that a
 * crash of the process keeps all records before it. The first field is "measure".
 */
void record_begin(const char *measure);
void record_int(const char *key, long long value);
void record_real(const char *key, double value); /* not finite: null */
void record_text(const char *key, const char *value);
void record_bool(const char *key, int value);
void record_end(void);
void record_note(const char *text); /* a record with a "note" only */

enum { RECORD_FIELDS = 32 };
struct field {
	const char *key, *value; /* value as JSON text, into the line */
	int key_bytes, value_bytes;
};

/* The fields of one line, or -1 if it is not a record as written here. */
int record_parse(const char *line, struct field fields[RECORD_FIELDS]);
/* Prints tables; a measure that begins with "dump" is for the report only. */
void records_print(char *const *lines, size_t count);

/* Host facts; host.c. */
size_t host_available_bytes(void); /* MemAvailable, within the cgroup's limit */
int host_read_line(const char *path, char *line, size_t bytes);
int host_cpu_name(char *name, size_t bytes);
long long host_status_number(const char *path, const char *key); /* -1 when absent */

/*
 * Peers: this program again, in the role named, tied to its parent by a socket that
 * carries lines. A line that begins with '{' is a record and is passed on.
 */
struct peer {
	pid_t pid;
	int fd;
	size_t used;
	char input[16384];
};

/* Up to five arguments after the role, ended by NULL. True on success. */
int peer_start(struct peer *peer, const char *role, const char *const *arguments);
int peer_tell(struct peer *peer, const char *line);
/* Waits for a line that begins with `word`; the rest of it to `rest`, unless NULL.
 * False after `ms`, at the peer's end, or on a line "failed"; that is recorded. */
int peer_await(struct peer *peer, const char *word, char *rest, size_t bytes, double ms);
void peer_end(struct peer *peer);
/* A peer whose arguments are a printf format; words are split at spaces. */
int peer_startf(struct peer *peer, const char *role, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* The peer's side. */
int peer_main(const char *role, int fd, int count, char **arguments);
int role_hear(char *line, size_t bytes, double ms); /* 0 at the end or the time */
void role_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

struct role {
	const char *name;
	int (*run)(int count, char **arguments);
};
extern const struct role roles[];

struct step {
	int number;
	const char *name;
	const char *question;
	int limit_s;
	int (*run)(void);
};
extern const struct step steps[];
extern const size_t step_count;

struct step_result {
	const char *outcome; /* done, failed, timed out, crashed, skipped */
	int exit_code, signal;
	double seconds;
	size_t count, garbled;
	char **lines;
};

/* Runs one step in a process of its own, for at most limit_ms. runner.c */
void step_run(const struct step *step, double limit_ms, struct step_result *result);

#endif
