/*
 * Step 6: a graph captured over mapped frames (kernel, copy and memset nodes) is
 * replayed after its frames were unmapped, released and replaced at the same address:
 * once with other frames for certain, then many times, also with other handle sizes.
 */
#include <stdlib.h>
#include <string.h>

#include "session.h"
#include "steps.h"

enum { WORDS = 8 << 20, MARKED_WORDS = 1024, MARK = 7 };
#define BYTES ((size_t)WORDS * 4)

struct subject {
	struct range source, copy;
	CUstream stream;
	CUgraph graph;
	CUgraphExec executable;
	uint32_t *host;
};

/* source += 1; copy = source; the first words of copy = MARK. */
static int capture(struct session *session, struct subject *s)
{
	const uint64_t parameters[] = {s->source.base, WORDS, 1};

	if (!TRY("capture", cuStreamBeginCapture, s->stream, CAPTURE_THREAD_LOCAL))
		return 0;
	int good = driver_check(launch(session->add, 512, 256, s->stream, parameters, 3),
				"cuLaunchKernel", "capture") &&
		   TRY("capture", cuMemcpyDtoDAsync, s->copy.base, s->source.base, BYTES, s->stream) &&
		   TRY("capture", cuMemsetD32Async, s->copy.base, MARK, MARKED_WORDS, s->stream);
	return TRY("capture", cuStreamEndCapture, s->stream, &s->graph) && good &&
	       TRY("capture", cuGraphInstantiate, &s->executable, s->graph, 0);
}

static int set_source(struct subject *s, uint32_t value)
{
	return TRY("graph", cuMemsetD32Async, s->source.base, value, WORDS, s->stream) &&
	       TRY("graph", cuMemsetD32Async, s->copy.base, 0, WORDS, s->stream) &&
	       TRY("graph", cuStreamSynchronize, s->stream);
}

static int replay(struct subject *s)
{
	return TRY("replay", cuGraphLaunch, s->executable, s->stream) &&
	       TRY("replay", cuStreamSynchronize, s->stream);
}

/* How many words of both buffers are not what a replay should have left. */
static long long wrong_words(struct subject *s, uint32_t expected)
{
	long long wrong = 0;

	if (!TRY("graph", cuMemcpyDtoH, s->host, s->source.base, BYTES))
		return -1;
	for (size_t i = 0; i < WORDS; i++)
		wrong += s->host[i] != expected;
	if (!TRY("graph", cuMemcpyDtoH, s->host, s->copy.base, BYTES))
		return -1;
	for (size_t i = 0; i < WORDS; i++)
		wrong += s->host[i] != (i < MARKED_WORDS ? (uint32_t)MARK : expected);
	return wrong;
}

static void record_replay(const char *after, int cycles, long long wrong, int good)
{
	record_begin("graph replay");
	record_text("after", after);
	record_int("cycles", cycles);
	record_bool("all_calls_good", good);
	record_int("wrong_words", wrong);
	record_bool("correct", good && wrong == 0);
	record_end();
}

static int rechunk(struct range *range, size_t chunk)
{
	size_t count = range->size / chunk;
	CUmemHandle *handle = realloc(range->handle, count * sizeof *handle);

	if (!handle)
		return 0;
	range->handle = handle;
	range->chunk = chunk;
	range->count = count;
	return 1;
}

static int replace_frames(struct subject *s, size_t chunk)
{
	return range_unback(&s->source) && range_unback(&s->copy) && rechunk(&s->source, chunk) &&
	       rechunk(&s->copy, chunk) && range_back(&s->source) && range_back(&s->copy);
}

/* Takes the frames just released, so that the new ones must be others. */
static int with_other_frames(struct subject *s)
{
	struct range decoy;

	if (!range_unback(&s->source) || !range_unback(&s->copy) ||
	    !range_reserve(&decoy, 2 * BYTES, BYTES))
		return 0;
	int good = range_back(&decoy) && range_back(&s->source) && range_back(&s->copy) &&
		   set_source(s, 41) && replay(s);
	record_replay("unmap and remap with other frames", 1, good ? wrong_words(s, 42) : -1, good);
	range_free(&decoy);
	return good;
}

static int many_cycles(struct subject *s, const char *after, int cycles, size_t first, size_t second)
{
	int good = 1, done = 0;
	long long wrong = 0;

	for (; done < cycles && good && wrong == 0 && left_ms() > 1000; done++) {
		good = replace_frames(s, done % 2 ? second : first) &&
		       set_source(s, (uint32_t)done) && replay(s);
		wrong = good ? wrong_words(s, (uint32_t)done + 1) : -1;
	}
	record_replay(after, done, wrong, good);
	return good;
}

int step_graph(void)
{
	struct session session;
	struct subject s;
	int cycles = options.quick ? 3 : 15;

	memset(&s, 0, sizeof s);
	s.host = malloc(BYTES);
	if (!s.host || !session_open(&session) || !session_kernels(&session) ||
	    !range_reserve(&s.source, BYTES, BYTES) || !range_reserve(&s.copy, BYTES, BYTES) ||
	    !range_back(&s.source) || !range_back(&s.copy) ||
	    !TRY("graph", cuStreamCreate, &s.stream, STREAM_NON_BLOCKING) ||
	    !capture(&session, &s) || !set_source(&s, 0))
		return EXIT_STEP_FAILED;
	int good = replay(&s) && replay(&s);
	record_replay("capture", 2, good ? wrong_words(&s, 2) : -1, good);
	good = good && with_other_frames(&s) &&
	       many_cycles(&s, "many replacements", cycles, BYTES, BYTES) &&
	       many_cycles(&s, "replacements of other handle sizes", cycles, 2 * MIB, BYTES);
	return good ? EXIT_DONE : EXIT_STEP_FAILED;
}
