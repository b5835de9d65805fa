// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * /dev/halt: a reader halts its CPU until the next interrupt, or until another task needs the CPU. A
 * writer halts its CPU for at most the number of ns that it writes. To the scheduler, the task uses its
 * CPU, but the emulator's host has nothing to do. So a host with few CPUs can emulate many busy ones.
 */
#include <linux/fs.h>
#include <linux/hrtimer.h>
#include <linux/irqflags.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/sched.h>
#include <linux/uaccess.h>

static void halt_this_cpu(void)
{
	local_irq_disable();
	if (need_resched())
		local_irq_enable();
	else
		safe_halt();
}

static ssize_t halt_read(struct file *file, char __user *to, size_t size, loff_t *at)
{
	halt_this_cpu();
	return 0;
}

/* The timer only has to cause an interrupt. */
static enum hrtimer_restart over(struct hrtimer *timer)
{
	return HRTIMER_NORESTART;
}

static ssize_t halt_write(struct file *file, const char __user *from, size_t size, loff_t *at)
{
	struct hrtimer timer;
	u64 ns;

	if (size != sizeof(ns))
		return -EINVAL;
	if (copy_from_user(&ns, from, sizeof(ns)))
		return -EFAULT;
	hrtimer_setup_on_stack(&timer, over, CLOCK_MONOTONIC, HRTIMER_MODE_REL_PINNED_HARD);
	hrtimer_start(&timer, ns_to_ktime(ns), HRTIMER_MODE_REL_PINNED_HARD);
	halt_this_cpu();
	hrtimer_cancel(&timer);
	destroy_hrtimer_on_stack(&timer);
	return size;
}

static const struct file_operations halt_operations = {
	.owner = THIS_MODULE,
	.read = halt_read,
	.write = halt_write,
};

static struct miscdevice halt_device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "halt",
	.fops = &halt_operations,
	/* For tasks of all users. */
	.mode = 0666,
};

module_misc_device(halt_device);
MODULE_DESCRIPTION("Busy tasks that cost an emulator's host nothing");
MODULE_LICENSE("GPL");
