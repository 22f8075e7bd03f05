// SPDX-License-Identifier: GPL-2.0
/* The helpers that the kernel crate's modules listed in `files` call. */
#include <linux/debugfs.h>
#include <linux/dma-mapping.h>
#include <linux/scatterlist.h>
#include "shims.h"
#ifdef __BINDGEN__
#define __rust_helper
#endif
#include "helpers/atomic.c"
#include "helpers/atomic_ext.c"
#include "helpers/barrier.c"
#include "helpers/bug.c"
#include "helpers/build_bug.c"
#include "helpers/completion.c"
#include "helpers/device.c"
#include "helpers/err.c"
#include "helpers/jump_label.c"
#include "helpers/mutex.c"
#include "helpers/page.c"
#include "helpers/pid_namespace.c"
#include "helpers/processor.c"
#include "helpers/rcu.c"
#include "helpers/refcount.c"
#include "helpers/scatterlist.c"
#include "helpers/signal.c"
#include "helpers/slab.c"
#include "helpers/spinlock.c"
#include "helpers/sync.c"
#include "helpers/task.c"
#include "helpers/time.c"
#include "helpers/uaccess.c"
#include "helpers/vmalloc.c"
#include "helpers/wait.c"
#include "helpers/workqueue.c"

/* linux/timer.h: this kernel has the function under another name */
__rust_helper void rust_helper_timer_init_key(struct timer_list *timer, void (*func)(struct timer_list *),
	unsigned int flags, const char *name, struct lock_class_key *key)
{
	init_timer_key(timer, func, flags, name, key);
}

/* linux/debugfs.h: this kernel has no auxiliary data of a file, and the kernel crate passes none */
__rust_helper struct dentry *rust_helper_debugfs_create_file_full(const char *name, umode_t mode,
	struct dentry *parent, void *data, const void *aux, const struct file_operations *fops)
{
	return debugfs_create_file(name, mode, parent, data, fops);
}
