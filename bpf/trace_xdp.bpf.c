/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Counts the runs of an XDP program for some devices, their time and their verdicts. Loaded
 * for one such program and attached to its entry by fentry and fexit.
 *
 * No other run interrupts a run on its CPU: softirqs are disabled meanwhile.
 */
#include "trace_xdp_intf.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

char LICENSE[] SEC("license") = "GPL";

const volatile struct gth_xdp_what what SEC(".rodata.what");
const volatile struct gth_xdp_types types;

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct gth_xdp_runs);
} runs SEC(".maps");

static __always_inline struct gth_xdp_runs *my_runs(void)
{
	u32 zero = 0;

	return bpf_map_lookup_elem(&runs, &zero);
}

/* The program may also be attached to other devices, even to one of the same index in another namespace. */
static __always_inline bool is_traced(const struct net_device *device)
{
	u32 i;

	/* Without CONFIG_NET_NS there is one namespace. */
	if (what.netns && bpf_core_field_exists(device->nd_net.net) &&
	    device->nd_net.net->ns.inum != what.netns)
		return false;
	for (i = 0; i < GTH_XDP_DEVICES && what.devices[i]; i++) {
		if (what.devices[i] == device->ifindex)
			return true;
	}
	return false;
}

SEC("fentry")
int run_begins(u64 *ctx)
{
	const struct xdp_buff *packet = (const struct xdp_buff *)ctx[0];
	struct gth_xdp_runs *mine = my_runs();

	if (mine && is_traced(packet->rxq->dev))
		mine->began_ns = bpf_ktime_get_ns();
	return 0;
}

SEC("fexit")
int run_ends(u64 *ctx)
{
	struct gth_xdp_runs *mine = my_runs();
	u64 verdict = 0, took;

	if (!mine || !mine->began_ns)
		return 0;
	took = bpf_ktime_get_ns() - mine->began_ns;
	mine->began_ns = 0;
	mine->time_ns += took;
	if (took > mine->longest_ns)
		mine->longest_ns = took;
	bpf_get_func_ret(ctx, &verdict);
	verdict = (u32)verdict;
	mine->verdicts[verdict < GTH_XDP_NR_VERDICTS ? verdict : GTH_XDP_ABORTED]++;
	return 0;
}
