/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The baseline that gthctl trace is compared with: a line of text in the trace pipe for
 * each packet, from the same functions.
 */
typedef unsigned int u32;
typedef unsigned long long u64;

#define SEC(name) __attribute__((section(name), used))

/* Numbers of helpers: include/uapi/linux/bpf.h */
static long (*const bpf_trace_printk)(const char *format, u32 size, ...) = (void *)6;
static u32 (*const bpf_get_smp_processor_id)(void) = (void *)8;
static u64 (*const bpf_get_current_pid_tgid)(void) = (void *)14;

char LICENSE[] SEC("license") = "GPL";

static const char format[] = "gtp: PID=%u TGID=%u CPU=%u\n";

static inline int print(void)
{
	u64 id = bpf_get_current_pid_tgid();

	bpf_trace_printk(format, sizeof(format), (u32)id, (u32)(id >> 32), bpf_get_smp_processor_id());
	return 0;
}

SEC("fentry/gtp_encap_recv")
int print_encap_recv(void *ctx)
{
	return print();
}

SEC("fentry/gtp_rx")
int print_rx(void *ctx)
{
	return print();
}
