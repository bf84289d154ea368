/*
 * Step 9: cuCheckpointProcess* on victims in several states, above all "evicted": an
 * address reservation without frames and registered host memory. By another process,
 * by the victim itself, and with fewer rights. Every call runs in a peer that can be
 * killed; a victim is used once.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "session.h"
#include "steps.h"

enum { SEED = 777, NOBODY = 65534, LOCK_TIMEOUT_MS = 3000 };
enum { CAPABILITY_PTRACE = 19, CAPABILITY_ADMIN = 21 };
#define KEPT_BYTES (64 * MIB)

static const char *state_name(int pid)
{
	static const char *const name[] = {"running", "locked", "checkpointed", "failed",
					   "checkpointing", "restoring"};
	int state = -1;
	CUresult result = CU(cuCheckpointProcessGetState, pid, &state);

	if (result != CUDA_SUCCESS)
		return "not told";
	return state >= 0 && state < 6 ? name[state] : "unknown";
}

/* Records the call; true if it succeeded. A locked process blocks in every call but
 * cuCheckpoint*: the victim itself must not ask for names or for free memory. */
static int record_call(const char *who, const char *victim, const char *call, CUresult result,
		       double ms, int pid)
{
	int itself = pid == getpid();

	record_begin("checkpoint call");
	record_text("caller", who);
	record_text("victim", victim);
	record_text("call", call);
	record_int("code", result);
	record_text("name", itself && result != CUDA_SUCCESS ? "" : driver_result_name(result));
	record_real("ms", ms);
	record_text("state_after", state_name(pid));
	record_int("free_mib", itself ? -1 : (long long)(device_free_bytes() / MIB));
	record_end();
	return result == CUDA_SUCCESS;
}

#define TIMED_CALL(call, arguments)                                              \
	(start = now_ms(), result = CU(call, pid, arguments), ms = now_ms() - start, \
	 record_call(who, victim, #call, result, ms, pid))

/* Lock, checkpoint, restore, unlock; true if all four succeed. */
static int series(int pid, const char *who, const char *victim)
{
	CUcheckpointLockArgs lock;
	CUcheckpointCheckpointArgs checkpoint;
	CUcheckpointRestoreArgs restore;
	CUcheckpointUnlockArgs unlock;
	CUresult result;
	double start, ms;
	int good, thread = 0;

	memset(&lock, 0, sizeof lock);
	memset(&checkpoint, 0, sizeof checkpoint);
	memset(&restore, 0, sizeof restore);
	memset(&unlock, 0, sizeof unlock);
	lock.timeoutMs = LOCK_TIMEOUT_MS;
	TIMED_CALL(cuCheckpointProcessGetRestoreThreadId, &thread);
	if (!TIMED_CALL(cuCheckpointProcessLock, &lock))
		return 0;
	good = TIMED_CALL(cuCheckpointProcessCheckpoint, &checkpoint) &&
	       TIMED_CALL(cuCheckpointProcessRestore, &restore);
	return TIMED_CALL(cuCheckpointProcessUnlock, &unlock) && good;
}

struct self {
	const char *victim;
	int good;
};

static void *self_series(void *argument)
{
	struct self *self = argument;

	self->good = series(getpid(), "itself", self->victim);
	return NULL;
}

static void become_nobody(void)
{
	if (setresgid(NOBODY, NOBODY, NOBODY) != 0 || setresuid(NOBODY, NOBODY, NOBODY) != 0)
		record_note("setresuid to nobody failed");
	prctl(PR_SET_DUMPABLE, 1); /* as after an exec by that user */
}

/* Brings the victim into its state; `has` is the state's name. */
static int victim_prepare(const char *has, struct range *range)
{
	int all = strcmp(has, "evicted") == 0;
	CUdeviceptr managed = 0;
	void *pinned = NULL;

	if (all || strcmp(has, "reserved") == 0) {
		/* Frames once, none now: the state after an evict. */
		if (!range_reserve(range, 256 * MIB, 64 * MIB) || !range_back(range) ||
		    !range_unback(range))
			return 0;
	}
	if (all || strcmp(has, "registered") == 0) {
		int fd = memfd_create("gpu-probe", MFD_CLOEXEC);
		if (fd < 0 || ftruncate(fd, (off_t)KEPT_BYTES) != 0)
			return 0;
		void *memory = mmap(NULL, KEPT_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		if (memory == MAP_FAILED ||
		    !TRY("victim", cuMemHostRegister, memory, KEPT_BYTES, HOST_REGISTER_PORTABLE))
			return 0;
	}
	if (strcmp(has, "mapped") == 0 &&
	    (!range_reserve(range, 256 * MIB, 64 * MIB) || !range_back(range)))
		return 0;
	if (strcmp(has, "managed") == 0 &&
	    !TRY("victim", cuMemAllocManaged, &managed, KEPT_BYTES, ATTACH_GLOBAL))
		return 0;
	return strcmp(has, "pinned") != 0 ||
	       TRY("victim", cuMemHostAlloc, &pinned, KEPT_BYTES, HOST_ALLOC_PORTABLE);
}

/* Is what the victim kept still there, and can it take frames at its address again? */
static int victim_check(struct session *session, CUdeviceptr kept, struct range *range)
{
	uint64_t sum = 0;
	int good = device_sum(session, kept, KEPT_BYTES, &sum) && sum == fill_sum(KEPT_BYTES / 8, SEED);

	if (range->base && !range->mapped)
		good = good && range_back(range);
	if (range->base)
		good = good && device_fill(session, range->base, range->size, 5) &&
		       device_sum(session, range->base, range->size, &sum) &&
		       sum == fill_sum(range->size / 8, 5);
	return good;
}

/* Peer: "victim STATE [nobody]"; "self" checkpoints itself, "check" looks after it. */
int role_victim(int count, char **arguments)
{
	const char *has = count > 0 ? arguments[0] : "plain";
	struct session session;
	struct range range;
	CUdeviceptr kept = 0;
	char line[64];

	memset(&range, 0, sizeof range);
	if (count > 1)
		become_nobody();
	if (!session_open(&session) || !session_kernels(&session) ||
	    !TRY("victim", cuMemAlloc, &kept, KEPT_BYTES) ||
	    !device_fill(&session, kept, KEPT_BYTES, SEED) || !victim_prepare(has, &range)) {
		role_say("failed: the victim could not get into state %s", has);
		return EXIT_STEP_FAILED;
	}
	role_say("ready");
	while (role_hear(line, sizeof line, 60000)) {
		struct self self = {has, 0};
		pthread_t thread;
		if (strcmp(line, "check") == 0)
			role_say("checked %d", victim_check(&session, kept, &range));
		else if (strcmp(line, "self") == 0 &&
			 pthread_create(&thread, NULL, self_series, &self) == 0 &&
			 pthread_join(thread, NULL) == 0)
			role_say("end %d", self.good);
		else
			role_say("failed: %s", line);
	}
	return EXIT_DONE;
}

/* Takes capabilities out of the effective and permitted sets. */
static void drop_capabilities(uint64_t dropped)
{
	struct { uint32_t version; int pid; } header = {0x20080522, 0};
	struct { uint32_t effective, permitted, inheritable; } set[2];

	if (syscall(SYS_capget, &header, set) != 0)
		return record_note("capget failed");
	for (int i = 0; i < 2; i++) {
		set[i].effective &= ~(uint32_t)(dropped >> 32 * i);
		set[i].permitted &= ~(uint32_t)(dropped >> 32 * i);
	}
	if (syscall(SYS_capset, &header, set) != 0)
		record_note("capset failed");
}

/* Peer: "checkpoint-caller RIGHTS PID STATE" runs the series on PID. */
int role_checkpoint_caller(int count, char **arguments)
{
	const char *rights = count > 2 ? arguments[0] : "";
	struct session session;
	char line[64];

	role_say("ready");
	if (count < 3 || !role_hear(line, sizeof line, 10000))
		return EXIT_STEP_FAILED;
	if (strcmp(rights, "nobody") == 0)
		become_nobody();
	else if (strcmp(rights, "without-ptrace") == 0)
		drop_capabilities(1ull << CAPABILITY_PTRACE);
	else if (strcmp(rights, "without-admin") == 0)
		drop_capabilities(1ull << CAPABILITY_ADMIN);
	else if (strcmp(rights, "without-capabilities") == 0)
		drop_capabilities(~0ull);
	if (!session_open(&session)) {
		role_say("failed: the caller could not open the device");
		return EXIT_STEP_FAILED;
	}
	role_say("end %d", series(atoi(arguments[1]), rights, arguments[2]));
	return EXIT_DONE;
}

static void conclude(const char *who, const char *victim, int all_calls, struct peer *peer)
{
	char rest[32] = "";
	int intact = 0;

	peer_tell(peer, "check");
	int answered = peer_await(peer, "checked", rest, sizeof rest, all_calls ? 5000 : 2000);
	if (answered)
		intact = atoi(rest);
	record_begin("checkpoint conclusion");
	record_text("caller", who);
	record_text("victim", victim);
	record_bool("all_calls_good", all_calls);
	record_bool("victim_answers", answered);
	record_bool("victim_intact", intact);
	record_end();
}

static void one_victim(const char *who, const char *state, const char *victim_user)
{
	static struct peer victim, caller;
	char rest[32] = "0", shown[64];
	int self = strcmp(who, "itself") == 0, good = 0;

	snprintf(shown, sizeof shown, "%s%s%s", state, *victim_user ? "/" : "", victim_user);
	caller.fd = -1;
	caller.pid = 0;
	if (peer_startf(&victim, "victim", "%s %s", state, victim_user)) {
		if (self)
			good = peer_tell(&victim, "self") &&
			       peer_await(&victim, "end", rest, sizeof rest, 8000);
		else
			good = peer_startf(&caller, "checkpoint-caller", "%s %d %s", who,
					   (int)victim.pid, shown) &&
			       peer_tell(&caller, "go") &&
			       peer_await(&caller, "end", rest, sizeof rest, 8000);
		conclude(who, shown, good && atoi(rest), &victim);
	}
	peer_end(&caller);
	peer_end(&victim);
}

int step_checkpoint(void)
{
	static const char *const runs[][3] = {
		{"as-is", "plain", ""},	 {"as-is", "evicted", ""},
		{"itself", "evicted", ""},    {"as-is", "mapped", ""},
		{"without-capabilities", "plain", ""}, {"nobody", "plain", ""},
		{"nobody", "plain", "nobody"}, {"without-ptrace", "plain", ""},
		{"without-admin", "plain", ""}, {"as-is", "reserved", ""},
		{"as-is", "registered", ""},   {"as-is", "pinned", ""},
		{"as-is", "managed", ""},      {"itself", "plain", ""}};
	size_t count = options.quick ? 4 : sizeof runs / sizeof *runs;
	const char *why = driver_open();

	if (why)
		return EXIT_STEP_FAILED;
	if (!driver.cuCheckpointProcessLock || !driver.cuCheckpointProcessCheckpoint) {
		record_note("this driver has no cuCheckpointProcess* (r570 and later have)");
		return EXIT_DONE;
	}
	for (size_t i = 0; i < count && left_ms() > 3000; i++) {
		int needs_root = strcmp(runs[i][0], "as-is") != 0 && strcmp(runs[i][0], "itself") != 0;
		if (needs_root && geteuid() != 0)
			continue;
		one_victim(runs[i][0], runs[i][1], runs[i][2]);
	}
	return EXIT_DONE;
}
