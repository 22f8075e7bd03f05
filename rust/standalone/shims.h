/* SPDX-License-Identifier: GPL-2.0 */
/* Interfaces that the kernel crate uses and this kernel lacks or has in another form. */
#ifndef SRP_SHIMS_H
#define SRP_SHIMS_H

#include <linux/errno.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/timer.h>
#include <linux/vmalloc.h>

/* Without CONFIG_RUST, lib/vsprintf.c cannot print Rust arguments (%pA): the kernel crate formats them instead. */
int srp_shim_printk(const char *format, ...);
struct seq_file;
void srp_shim_seq_printf(struct seq_file *file, const char *format, ...);
/* Defined in the kernel crate. */
char *rust_fmt_argument(char *buf, char *end, const void *arguments);

/*
 * kmalloc() aligns to the largest power of two that divides the size, which the kernel crate makes a multiple of the
 * alignment. The node is only a hint.
 */
#ifndef krealloc_node_align
#define krealloc_node_align(p, size, align, flags, node)	krealloc(p, size, flags)
#define kvrealloc_node_align(p, size, align, flags, node)	kvrealloc(p, size, flags)
#define vrealloc_node_align(p, size, align, flags, node)	vrealloc(p, size, flags)
#endif

#ifndef EFTYPE
#define EFTYPE		134
#define EFSBADCRC	EBADMSG
#define EFSCORRUPTED	EUCLEAN
#endif

/* Declared only: a module that calls one of these does not link. */
void local_interrupt_disable(void);
void local_interrupt_enable(void);
void spin_lock_irq_disable(spinlock_t *lock);
int spin_trylock_irq_disable(spinlock_t *lock);
void spin_unlock_irq_enable(spinlock_t *lock);

#endif
