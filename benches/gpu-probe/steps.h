/*
 * The steps and the roles of their peers, one file or two questions each. steps.c
 * puts them in order; a step returns EXIT_DONE if it could do its work, whatever it
 * found, and EXIT_STEP_FAILED if it could not.
 */
#ifndef PROBE_STEPS_H
#define PROBE_STEPS_H

int step_identity(void);
int step_frames(void);
int step_duplex(void);
int step_stall(void);
int step_register(void);
int step_attributes(void);
int step_graph(void);
int step_evict_managed(void);
int step_managed_rates(void);
int step_checkpoint(void);
int step_fingerprint(void);
int step_lookup(void);
int step_rdma(void);
int step_context(void);
int step_latency(void);

int role_copy(int count, char **arguments);
int role_watch(int count, char **arguments);
int role_managed(int count, char **arguments);
int role_victim(int count, char **arguments);
int role_checkpoint_caller(int count, char **arguments);
int role_meter(int count, char **arguments);
int role_wake(int count, char **arguments);

#endif
