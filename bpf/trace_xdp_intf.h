/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Definitions shared by bpf/trace_xdp.bpf.c and user space, as in intf.h. Times are in ns.
 */
#ifndef GTH_TRACE_XDP_H
#define GTH_TRACE_XDP_H

#include "vmlinux_min.h"

enum gth_xdp_limit {
	GTH_XDP_DEVICES = 16,	/* the devices of a bond, and the bond itself */
};

/* enum xdp_action, include/uapi/linux/bpf.h; any other value aborts, too. */
enum gth_xdp_verdict {
	GTH_XDP_ABORTED,
	GTH_XDP_DROP,
	GTH_XDP_PASS,
	GTH_XDP_TX,
	GTH_XDP_REDIRECT,
	GTH_XDP_NR_VERDICTS,
};

/* Set before loading. */
struct gth_xdp_what {
	u32 netns;			/* the inode number of the devices' network namespace; 0: any */
	u32 devices[GTH_XDP_DEVICES];	/* the indices of the traced devices; 0: none */
};

/* A CPU's runs of the traced program. */
struct gth_xdp_runs {
	u64 began_ns;		/* of the run in progress; 0: none */
	u64 time_ns;		/* of all runs */
	u64 longest_ns;
	u64 verdicts[GTH_XDP_NR_VERDICTS];	/* how many runs ended with each */
};

/* Only for its BTF, as struct gth_trace_types. */
struct gth_xdp_types {
	enum gth_xdp_limit limit;
	enum gth_xdp_verdict verdict;
};

#endif
