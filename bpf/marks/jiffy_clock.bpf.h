/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The clock of marks.
 */
#ifndef GTH_MARKS_JIFFY_CLOCK_H
#define GTH_MARKS_JIFFY_CLOCK_H

#include "vmlinux_min.h"
#include <bpf/bpf_helpers.h>

enum {
	JIFFY_BITS = (1 << 20) - 1,	/* in ns: 1 ms, the length of the shortest jiffy (HZ=1000) */
};

/* The time at the current jiffy, with the jiffy's number in its lowest bits: a single word needs no lock. */
u64 time_of_jiffy SEC(".bss.marked");

/*
 * CLOCK_MONOTONIC at the current jiffy, ns. It is up to 11 ms late (HZ=100); a mark lasts 100 ms or more.
 * It is read for each packet and for each wake-up of a marked task. Reading the clock itself takes 97
 * instructions.
 *
 * The lowest bits of the jiffies repeat after 17 minutes or more. If this function was not called in between,
 * a new mark may have expired already. The next packet begins it again.
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
