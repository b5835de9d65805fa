/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A user plane in XDP. The first byte after the UDP header of a packet to the GTP-U port is the
 * verdict that the packet gets (enum xdp_action); all other packets pass.
 */
typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;

#define SEC(name) __attribute__((section(name), used))

/* Numbers of helpers, the context and verdicts: include/uapi/linux/bpf.h */
static long (*const bpf_redirect)(u32 device, u64 flags) = (void *)23;

struct xdp_md {
	u32 data;
	u32 data_end;
	u32 data_meta;
	u32 ingress_ifindex;
};

enum {
	XDP_PASS = 2,
	XDP_REDIRECT = 4,
};

/* Offsets after Ethernet and IPv4 headers without options, and the values there. */
enum {
	PROTOCOL_AT = 14 + 9,
	PORT_AT = 14 + 20 + 2,
	VERDICT_AT = 14 + 20 + 8,
	UDP = 17,
	GTP_U = 2152,
};

char LICENSE[] SEC("license") = "GPL";

SEC("xdp")
int user_plane_of_the_suite(struct xdp_md *ctx)
{
	const u8 *packet = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;

	if (packet + VERDICT_AT + 1 > end || packet[PROTOCOL_AT] != UDP ||
	    (packet[PORT_AT] << 8 | packet[PORT_AT + 1]) != GTP_U)
		return XDP_PASS;
	if (packet[VERDICT_AT] == XDP_REDIRECT)
		return bpf_redirect(ctx->ingress_ifindex, 0);
	return packet[VERDICT_AT];
}
