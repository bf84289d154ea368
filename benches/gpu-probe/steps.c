/*
 * The list of steps, with what each asks, and of the roles of peers. The limits bound
 * a step that hangs; together with --total-s they keep the whole run under 3 minutes.
 */
#include "steps.h"

#include "probe.h"

const struct step steps[] = {
	{0, "identity", "which card, driver, host, and what the device says it can do", 20,
	 step_identity},
	{1, "frames", "what do create, map, access, unmap, release cost by handle size, cold and "
	 "right after a release (scrubbing)?", 25, step_frames},
	{2, "duplex", "how fast are copies in both directions at once, from one process with two "
	 "streams and from two processes?", 25, step_duplex},
	{3, "stall", "does mapping work stall the kernels of another process, or wait for one's "
	 "own?", 20, step_stall},
	{4, "register", "what does registering leased host memory cost, by kind of pages?", 20,
	 step_register},
	{5, "attributes", "in which pointer attributes do mapped frames differ from cuMemAlloc?", 10,
	 step_attributes},
	{6, "graph", "does a captured graph replay right after its memory got new frames at the "
	 "same address?", 10, step_graph},
	{7, "evict-managed", "does cuMemCreate push out another process's managed pages, and how "
	 "fast?", 25, step_evict_managed},
	{8, "managed-rates", "managed memory by faults and by prefetch against explicit copies", 30,
	 step_managed_rates},
	{9, "checkpoint", "does cuCheckpointProcess* take a process whose frames were moved out; "
	 "time, rights, registered memory", 45, step_checkpoint},
	{10, "fingerprint", "at which rate can 128 bits per 2 MiB be computed on the device?", 15,
	 step_fingerprint},
	{11, "lookup", "is every pointer of cuGetProcAddress an exported symbol?", 10, step_lookup},
	{12, "rdma", "does export for direct memory access fail cleanly without the RDMA flag?", 10,
	 step_rdma},
	{13, "context", "what does a context cost, in time and in device memory?", 15, step_context},
	{14, "latency", "how late is the first launch after idle time, after a wake-up by another "
	 "process, and beside a busy one?", 15, step_latency},
};
const size_t step_count = sizeof steps / sizeof *steps;

const struct role roles[] = {
	{"copy", role_copy},
	{"watch", role_watch},
	{"managed", role_managed},
	{"victim", role_victim},
	{"checkpoint-caller", role_checkpoint_caller},
	{"meter", role_meter},
	{"wake", role_wake},
	{0, 0},
};
