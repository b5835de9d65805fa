/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Where the kernel runs a task's own softirqs: within __local_bh_enable_ip() (kernel/softirq.c).
 */
#ifndef GTH_BH_ENABLE_H
#define GTH_BH_ENABLE_H

#include "vmlinux_min.h"
#include <bpf/bpf_helpers.h>

/*
 * The address of __local_bh_enable_ip(); 0: the kernel hides it (kptr_restrict). This is not a
 * libbpf extern, because libbpf would read all of /proc/kallsyms for it, which takes half the
 * loading time.
 */
u64 bh_enable_at SEC(".bss.kernel");

/* For a SEC("syscall") program: only such programs may call bpf_kallsyms_lookup_name(). */
static __always_inline int look_up_bh_enable(void)
{
	static const char name[] = "__local_bh_enable_ip";

	return bpf_kallsyms_lookup_name(name, sizeof(name), 0, &bh_enable_at);
}

enum {
	BH_ENABLE_SIZE = 256,	/* larger than __local_bh_enable_ip() */
};

#endif
