/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Counts the packets that a kernel data-plane function handles: for which task,
 * on which CPU, how many bytes, how long.
 *
 * A pair of these programs is attached to each function: fentry and fexit, loaded
 * separately for each function, if it has BTF, otherwise kprobe and kretprobe. The
 * functions of UDP sockets have a program only at their end.
 */
#include "vmlinux_min.h"
#include <bpf/bpf_tracing.h>
#include "marks/context.bpf.h"
#include "marks/socket.bpf.h"

char LICENSE[] SEC("license") = "GPL";

const volatile struct gth_trace_what what SEC(".rodata.what");
const volatile struct gth_trace_types types;

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, GTH_TRACE_KEYS);
	__type(key, struct gth_trace_key);
	__type(value, struct gth_trace_count);
} counts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 22);
} events SEC(".maps");

struct gth_trace_lost lost SEC(".bss.lost");

/* Two buckets per power of two; the last one takes all longer times. */
static __always_inline u32 bucket_of(u64 ns)
{
	u32 log = 0, half;

	if (ns < 2)
		return 0;
	log = 63 - __builtin_clzll(ns);
	half = (ns >> (log - 1)) & 1;
	log = 2 * log + half;
	return log < GTH_TRACE_BUCKETS ? log : GTH_TRACE_BUCKETS - 1;
}

#include "trace/drops.bpf.h"
#include "trace/latency.bpf.h"
#include "trace/teids.bpf.h"

/*
 * The call in progress on this CPU, for each function. A data plane runs with softirqs
 * disabled, or in one, so no other call preempts or interrupts a call. With other functions
 * this may happen, as any function can be traced. A function may also call itself, or its task
 * may move to another CPU. In all these cases, the end of the call finds another call here or
 * none, and the time of the call is not counted.
 */
struct call {
	u64 began_ns;		/* 0: none */
	u64 migrations;		/* of the task */
	struct gth_trace_key key;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, GTH_TRACE_FUNCTIONS);
	__type(key, u32);
	__type(value, struct call);
} calls SEC(".maps");

/* ---- the task that a call runs for ---- */

/* The id of a process or thread in its own PID namespace. */
static __always_inline u32 number_inside(struct pid *pid)
{
	u32 level = BPF_CORE_READ(pid, level);
	int nr = 0;

	/* The size of an element depends on the kernel. */
	bpf_core_read(&nr, sizeof(nr), (void *)&pid->numbers[0].nr + level * bpf_core_type_size(struct upid));
	return nr;
}

static __always_inline void describe(struct task_struct *p, u32 *tid_inside, u32 *tgid_inside, char *comm)
{
	struct pid *pid = BPF_CORE_READ(p, thread_pid), *tgid = NULL;
	u32 type = bpf_core_enum_value(enum pid_type, PIDTYPE_TGID);
	struct signal_struct *signal = BPF_CORE_READ(p, signal);

	bpf_probe_read_kernel(&tgid, sizeof(tgid), (void *)signal + bpf_core_field_offset(struct signal_struct, pids) +
						   type * sizeof(tgid));
	*tid_inside = number_inside(pid);
	*tgid_inside = number_inside(tgid);
	bpf_probe_read_kernel_str(comm, GTH_TRACE_COMM_LEN, p->comm);
}

/* ---- a call begins and ends ---- */

enum {
	WAKEUP_BYTES = 1 << 16,	/* user space is woken up once this much waits; it also polls */
};

static __always_inline void send(const struct gth_trace_key *key, const struct gth_trace_count *count, u64 now,
				 u32 bytes)
{
	struct gth_trace_event *event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);
	u64 waiting;

	if (!event) {
		__sync_fetch_and_add(&lost.events, 1);
		return;
	}
	event->at_ns = now;
	event->key = *key;
	event->cpu = bpf_get_smp_processor_id();
	event->bytes = bytes;
	event->tid_inside = count->tid_inside;
	event->tgid_inside = count->tgid_inside;
	__builtin_memcpy(event->comm, count->comm, sizeof(event->comm));
	waiting = bpf_ringbuf_query(&events, BPF_RB_AVAIL_DATA);
	bpf_ringbuf_submit(event, waiting >= WAKEUP_BYTES ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP);
}

static __always_inline void packet_begins(u64 cookie, const struct sk_buff *skb)
{
	struct packet *packet;

	if (!follows_packets())
		return;
	packet_enters(cookie, skb);
	packet = current_packet();
	if (packet_what.latency && packet && skb && is_entry(cookie))
		take_arrival(packet, skb);
}

static __always_inline void packet_ends(u64 cookie, u64 returned)
{
	struct packet *packet;

	if (!follows_packets())
		return;
	packet = current_packet();
	if (!packet)
		return;
	if (packet->entry != function_of(cookie) + 1) {
		note_verdict(packet, cookie, returned);
		return;
	}
	if (judges_packets())
		count_if_left(packet, cookie, returned);
	if (packet_what.teids)
		count_teid(packet);
	if (packet_what.latency)
		count_latency(packet, bpf_ktime_get_ns());
	packet->skb = 0;
}

/* @skb: the packet; NULL if it is unknown, then @bytes is its size. */
static __always_inline int begin(u64 cookie, const struct sk_buff *skb, u32 bytes)
{
	u32 function = function_of(cookie);
	struct task_struct *p = bpf_get_current_task_btf();
	struct gth_trace_key key = {
		.started = p->start_boottime,
		.tid = p->pid,
		.tgid = p->tgid,
		.function = function,
		.context = context_of(p),
	};
	struct gth_trace_count *count, fresh = {};
	struct call *call;
	u64 now;

	if (what.tgid && what.tgid != key.tgid && what.tgid != key.tid)
		return 0;
	packet_begins(cookie, skb);
	if (skb)
		bytes = BPF_CORE_READ(skb, len);
	count = bpf_map_lookup_elem(&counts, &key);
	if (!count) {
		bpf_map_update_elem(&counts, &key, &fresh, 1 /* BPF_NOEXIST */);
		count = bpf_map_lookup_elem(&counts, &key);
		if (!count) {
			__sync_fetch_and_add(&lost.counts, 1);
			return 0;
		}
	}
	if (!count->packets)
		describe(p, &count->tid_inside, &count->tgid_inside, count->comm);
	count->packets++;
	count->bytes += bytes;
	now = bpf_ktime_get_ns();
	count->last_ns = now;
	if (what.events)
		send(&key, count, now, bytes);
	call = bpf_map_lookup_elem(&calls, &function);
	if (call) {
		call->key = key;
		call->migrations = p->se.nr_migrations;
		call->began_ns = now;
	}
	return 0;
}

static __always_inline int end(u64 cookie)
{
	u32 function = function_of(cookie);
	u64 now = bpf_ktime_get_ns();
	struct task_struct *p = bpf_get_current_task_btf();
	struct gth_trace_count *count;
	struct call *call;

	call = bpf_map_lookup_elem(&calls, &function);
	if (!call || !call->began_ns || call->key.tid != p->pid || call->key.started != p->start_boottime ||
	    call->migrations != p->se.nr_migrations)
		return 0;
	count = bpf_map_lookup_elem(&counts, &call->key);
	if (count)
		count->times[bucket_of(now - call->began_ns) & (GTH_TRACE_BUCKETS - 1)]++;
	call->began_ns = 0;
	return 0;
}

static __always_inline u32 arg_of(u64 cookie)
{
	return (cookie >> GTH_TRACE_ARG_SHIFT) & 0xff;
}

SEC("fentry")
int function_begins(u64 *ctx)
{
	u64 cookie = bpf_get_attach_cookie(ctx), skb = 0;

	if (arg_of(cookie) != GTH_TRACE_NO_ARG)
		bpf_get_func_arg(ctx, arg_of(cookie), &skb);
	return begin(cookie, (const void *)skb, 0);
}

SEC("fexit")
int function_ends(u64 *ctx)
{
	u64 cookie = bpf_get_attach_cookie(ctx), returned = 0;

	if (judges_packets())
		bpf_get_func_ret(ctx, &returned);
	packet_ends(cookie, returned);
	return end(cookie);
}

SEC("kprobe")
int probed_function_begins(struct pt_regs *ctx)
{
	u64 cookie = bpf_get_attach_cookie(ctx);
	u64 args[] = { PT_REGS_PARM1(ctx), PT_REGS_PARM2(ctx), PT_REGS_PARM3(ctx), PT_REGS_PARM4(ctx) };
	u32 arg = arg_of(cookie);

	return begin(cookie, arg < 4 ? (const void *)args[arg & 3] : NULL, 0);
}

SEC("kretprobe")
int probed_function_ends(struct pt_regs *ctx)
{
	u64 cookie = bpf_get_attach_cookie(ctx);

	packet_ends(cookie, PT_REGS_RC(ctx));
	return end(cookie);
}

/* Attached only if drops or tunnels are traced. */
SEC("tp_btf/kfree_skb")
int skb_is_dropped(u64 *ctx)
{
	packet_dropped((const struct sk_buff *)ctx[0], ctx[1], ctx[2]);
	return 0;
}

SEC("tp_btf/consume_skb")
int skb_is_consumed(u64 *ctx)
{
	packet_consumed((const struct sk_buff *)ctx[0], ctx[1]);
	return 0;
}

/* Attached only if tunnels are traced. */
SEC("kprobe/udp_tunnel_xmit_skb")
int tunnel_sends(struct pt_regs *ctx)
{
	note_sent_teid((const struct sk_buff *)PT_REGS_PARM3(ctx));
	return 0;
}

SEC("kprobe/udp_tunnel6_xmit_skb")
int tunnel6_sends(struct pt_regs *ctx)
{
	note_sent_teid((const struct sk_buff *)PT_REGS_PARM3(ctx));
	return 0;
}

/* Attached only if latencies are traced. */
SEC("tp_btf/netif_receive_skb")
int skb_arrives(u64 *ctx)
{
	packet_arrives((const struct sk_buff *)ctx[0]);
	return 0;
}

/* ---- sockets with a local UDP port ---- */

/*
 * Here the cookie has the function's address family in place of an argument number. A datagram
 * is counted when the call ends. A receiver waits within the call, so the time of the call says
 * nothing.
 */
static __always_inline int end_of_socket_call(u64 *ctx, const struct sock *sk)
{
	u64 cookie = bpf_get_attach_cookie(ctx), result = 0;

	bpf_get_func_ret(ctx, &result);
	if ((int)result < 0 || port_of(sk, arg_of(cookie)) != what.port)
		return 0;
	return begin(cookie, NULL, result);
}

SEC("fexit")
int datagram_received(u64 *ctx)
{
	return takes_datagram(ctx[3]) ? end_of_socket_call(ctx, (const struct sock *)ctx[0]) : 0;
}

SEC("fexit")
int datagram_sent(u64 *ctx)
{
	return end_of_socket_call(ctx, (const struct sock *)ctx[0]);
}

/* Run once, before the others are attached. */
SEC("syscall")
int look_up_kernel(void *ctx)
{
	look_up_stacks();
	return 0;
}
