// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * /dev/halt: a reader halts its CPU until the next interrupt, or until another task is to run.
 * For the scheduler that is a task which uses its CPU; the emulator's host has nothing to do.
 * So a host with few CPUs can emulate many that are busy.
 */
#include <linux/fs.h>
#include <linux/irqflags.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/sched.h>

static ssize_t halt_read(struct file *file, char __user *to, size_t size, loff_t *at)
{
	local_irq_disable();
	if (need_resched())
		local_irq_enable();
	else
		safe_halt();
	return 0;
}

static const struct file_operations halt_operations = {
	.owner = THIS_MODULE,
	.read = halt_read,
};

static struct miscdevice halt_device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "halt",
	.fops = &halt_operations,
};

module_misc_device(halt_device);
MODULE_DESCRIPTION("Busy tasks that cost an emulator's host nothing");
MODULE_LICENSE("GPL");
