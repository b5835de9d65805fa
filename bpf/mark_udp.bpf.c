/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Marks the tasks that receive or send datagrams on a UDP port, in maps that the scheduler
 * reads, as mark.bpf.c does for the functions of modules. Also counts these datagrams.
 *
 * A receiver is marked after it has received a datagram and before it returns to user space:
 * it may have waited for the datagram longer than a mark lasts.
 */
#include "vmlinux_min.h"
#include <bpf/bpf_helpers.h>
#include "marks/mark.bpf.h"
#include "marks/socket.bpf.h"

char LICENSE[] SEC("license") = "GPL";

/* Counts for the ports that the live policy asks about; user space adds and removes these ports. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, 2 * GTH_NR_MARKS);
	__type(key, u32);
	__type(value, struct gth_passed);
} passed SEC(".maps");

static __always_inline void count_passed(u32 key, u32 bytes)
{
	struct gth_passed *sum = bpf_map_lookup_elem(&passed, &key);

	if (!sum)
		return;
	/* atomic: another task may preempt this one here */
	__sync_fetch_and_add(&sum->packets, 1);
	__sync_fetch_and_add(&sum->bytes, bytes);
}

/* @way: 0 or GTH_PASSED_SENT. */
static __always_inline int count_datagram(const struct sock *sk, u16 family, u32 by, u32 way, u32 bytes)
{
	u16 port = port_of(sk, family);
	struct packet packet = {.p = bpf_get_current_task_btf(), .port = port, .by = by};

	if (port && count_in_conditions(&packet))
		count_passed(port | way, bytes);
	return 0;
}

/*
 * Runs at the end of a function. A datagram does not count if the kernel did not receive it, or did not
 * accept it because it had no room or no route. The function's arguments are the socket, the message, its
 * size and, for receivers, flags; Linux before 7.1 has a fifth.
 */
static __always_inline int count_result(u64 *ctx, u16 family, u32 by, u32 way)
{
	u64 result = 0;

	bpf_get_func_ret(ctx, &result);
	return (int)result < 0 ? 0 : count_datagram((const struct sock *)ctx[0], family, by, way, result);
}

static __always_inline int count_received(u64 *ctx, u16 family, u32 by)
{
	return takes_datagram(ctx[3]) ? count_result(ctx, family, by, 0) : 0;
}

static __always_inline int count_sent(u64 *ctx, u16 family, u32 by)
{
	return count_result(ctx, family, by, GTH_PASSED_SENT);
}

SEC("fexit/udp_recvmsg")
int udp_received(u64 *ctx)
{
	return count_received(ctx, AF_INET, GTH_BY_UDP_RECVMSG);
}

SEC("fexit/udpv6_recvmsg")
int udpv6_received(u64 *ctx)
{
	return count_received(ctx, AF_INET6, GTH_BY_UDPV6_RECVMSG);
}

SEC("fexit/udp_sendmsg")
int udp_sent(u64 *ctx)
{
	return count_sent(ctx, AF_INET, GTH_BY_UDP_SENDMSG);
}

SEC("fexit/udpv6_sendmsg")
int udpv6_sent(u64 *ctx)
{
	return count_sent(ctx, AF_INET6, GTH_BY_UDPV6_SENDMSG);
}
