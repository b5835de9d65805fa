// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Two kernel threads that are bound to one CPU and never sleep, like ksoftirqd and a NAPI thread under
 * a flood of packets.
 *
 * insmod busy.ko cpu=N
 */
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/sched.h>

static unsigned int cpu;
module_param(cpu, uint, 0444);

static struct task_struct *threads[2];

static int work(void *unused)
{
	while (!kthread_should_stop())
		cond_resched();
	return 0;
}

static void stop(void)
{
	int i;

	for (i = 0; i < ARRAY_SIZE(threads); i++)
		if (threads[i])
			kthread_stop(threads[i]);
}

static int __init start(void)
{
	int i;

	for (i = 0; i < ARRAY_SIZE(threads); i++) {
		struct task_struct *thread = kthread_create_on_cpu(work, NULL, cpu, "busy/%u");

		if (IS_ERR(thread)) {
			stop();
			return PTR_ERR(thread);
		}
		threads[i] = thread;
		wake_up_process(thread);
	}
	return 0;
}

module_init(start);
module_exit(stop);
MODULE_DESCRIPTION("Kernel threads of one CPU that never sleep");
MODULE_LICENSE("GPL");
