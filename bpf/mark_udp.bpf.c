/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Marks the tasks that receive or send datagrams on a UDP port, in maps that the scheduler
 * reads, as mark.bpf.c does at the functions of modules.
 *
 * A receiver is marked when it has got a datagram, before it returns to user space: it may
 * have waited for it longer than a mark lasts.
 */
#include "vmlinux_min.h"
#include <bpf/bpf_helpers.h>
#include "marks/mark.bpf.h"
#include "marks/socket.bpf.h"

char LICENSE[] SEC("license") = "GPL";

static __always_inline int count_datagram(const struct sock *sk, u16 family, u32 by)
{
	u16 port = port_of(sk, family);

	if (port)
		count_in_conditions(bpf_get_current_task_btf(), 0, port, by);
	return 0;
}

/* Their arguments: the socket, the message, its size, flags; Linux before 7.1 has a fifth. */
static __always_inline int count_received(u64 *ctx, const struct sock *sk, u16 family, u32 by)
{
	u64 result = 0;

	bpf_get_func_ret(ctx, &result);
	return (int)result >= 0 && takes_datagram(ctx[3]) ? count_datagram(sk, family, by) : 0;
}

SEC("fexit/udp_recvmsg")
int udp_received(u64 *ctx)
{
	return count_received(ctx, (const struct sock *)ctx[0], AF_INET, GTH_BY_UDP_RECVMSG);
}

SEC("fexit/udpv6_recvmsg")
int udpv6_received(u64 *ctx)
{
	return count_received(ctx, (const struct sock *)ctx[0], AF_INET6, GTH_BY_UDPV6_RECVMSG);
}

SEC("fentry/udp_sendmsg")
int udp_is_sent(u64 *ctx)
{
	return count_datagram((const struct sock *)ctx[0], AF_INET, GTH_BY_UDP_SENDMSG);
}

SEC("fentry/udpv6_sendmsg")
int udpv6_is_sent(u64 *ctx)
{
	return count_datagram((const struct sock *)ctx[0], AF_INET6, GTH_BY_UDPV6_SENDMSG);
}
