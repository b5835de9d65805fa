/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Whose call of a socket function hands a datagram to user space or takes one from it.
 *
 * These functions run in the context of the task that calls them. What a socket's
 * encap_rcv() takes, as those of GTP drivers do, never comes here.
 */
#ifndef GTH_SOCKET_H
#define GTH_SOCKET_H

#include "vmlinux_min.h"

/*
 * A function counts for sockets of its own address family. Else udp_sendmsg() would count
 * once more what udpv6_sendmsg() hands on to it: datagrams to IPv4 addresses.
 */
static __always_inline u16 port_of(const struct sock *sk, u16 family)
{
	return sk->__sk_common.skc_family == family ? sk->__sk_common.skc_num : 0;
}

/* Neither a look at what stays in the queue, nor one into the queue of errors. */
static __always_inline bool takes_datagram(int flags)
{
	return !(flags & (MSG_PEEK | MSG_ERRQUEUE));
}

#endif
