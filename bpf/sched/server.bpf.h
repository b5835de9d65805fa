/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The kernel's ext servers: each gives the tasks of sched_ext a twentieth of its CPU beside real-time
 * tasks that never sleep.
 */
#ifndef GTH_SERVER_H
#define GTH_SERVER_H

#include "sched/idle.bpf.h"

/*
 * The kernel starts a server when the first task of a CPU arrives (enqueue_task_scx()). The server
 * stops when it asks for a task and there is none to run, or when the CPU was idle for long enough
 * (kernel/sched/deadline.c, __pick_task_dl() and dl_server_timer()). Tasks that are there at that
 * moment (held back by a limit, about to be matched, or just woken up) do not arrive again: they would
 * wait until the real-time task sleeps. No BPF program can start a server, so user space does, once a
 * second.
 */
static __always_inline bool server_has_stopped(s32 cpu)
{
	const struct rq *rq = rq_of(cpu);

	return rq && rq->scx.nr_running && !BPF_CORE_READ_BITFIELD(rq, ext_server.dl_server_active);
}

#endif
