/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The clock of marks.
 */
#ifndef GTH_MARKS_JIFFY_CLOCK_H
#define GTH_MARKS_JIFFY_CLOCK_H

#include "vmlinux_min.h"
#include <bpf/bpf_helpers.h>

enum {
	JIFFY_BITS = (1 << 20) - 1,	/* as ns: 1 ms, as the shortest jiffy (HZ=1000) */
};

/* The time as of the current jiffy, with the jiffy's number as its lowest bits: one word needs no lock. */
u64 time_of_jiffy SEC(".bss.marked");

/*
 * CLOCK_MONOTONIC as of the current jiffy, ns: up to 11 ms late (HZ=100), and a mark lasts 100 ms or more. Each
 * packet and each wake-up of a marked task ask for it. Reading the clock itself takes 97 instructions.
 *
 * The jiffies have the same lowest bits again after 17 minutes or more. If nobody has asked in between, a mark may
 * begin as one that has ended. The next packet begins it anew.
 */
static __always_inline u64 marks_now(void)
{
	u64 jiffy = bpf_jiffies64() & JIFFY_BITS, time = *(volatile u64 *)&time_of_jiffy;

	if ((time & JIFFY_BITS) != jiffy) {
		time = (bpf_ktime_get_ns() & ~(u64)JIFFY_BITS) | jiffy;
		*(volatile u64 *)&time_of_jiffy = time;
	}
	return time & ~(u64)JIFFY_BITS;
}

#endif
