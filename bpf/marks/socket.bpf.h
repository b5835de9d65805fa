/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Which calls of socket functions hand a datagram to user space or take one from it.
 *
 * These functions run in the context of the task that calls them. Packets that a socket's
 * encap_rcv() takes, as those of GTP drivers do, never get here.
 */
#ifndef GTH_SOCKET_H
#define GTH_SOCKET_H

#include "vmlinux_min.h"

/*
 * A function counts only for sockets of its own address family. Otherwise udp_sendmsg() would
 * count the datagrams to IPv4 addresses, which udpv6_sendmsg() hands on to it, a second time.
 */
static __always_inline u16 port_of(const struct sock *sk, u16 family)
{
	return sk->__sk_common.skc_family == family ? sk->__sk_common.skc_num : 0;
}

/* False if the call leaves the datagram in the queue, or reads from the error queue. */
static __always_inline bool takes_datagram(int flags)
{
	return !(flags & (MSG_PEEK | MSG_ERRQUEUE));
}

#endif
