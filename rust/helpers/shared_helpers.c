// SPDX-License-Identifier: GPL-2.0
/* Helpers of both modules. Each module has its own copy, because modules do not link with each other. */
#include "srp_helpers.h"

/* linux/cpumask.h */
unsigned int srp_helper_num_online_cpus(void)
{
	return num_online_cpus();
}

/* linux/irqflags.h */
bool srp_helper_irqs_disabled(void)
{
	return irqs_disabled();
}

/* linux/scatterlist.h */
void srp_helper_sg_set_dma(struct scatterlist *sg, dma_addr_t addr, unsigned int len)
{
	sg_dma_address(sg) = addr;
	sg_dma_len(sg) = len;
}

/* linux/spinlock.h */
unsigned long srp_helper_spin_lock_irqsave(spinlock_t *lock)
{
	unsigned long flags;

	spin_lock_irqsave(lock, flags);
	return flags;
}

bool srp_helper_spin_trylock_irqsave(spinlock_t *lock, unsigned long *flags)
{
	return spin_trylock_irqsave(lock, *flags);
}

void srp_helper_spin_unlock_irqrestore(spinlock_t *lock, unsigned long flags)
{
	spin_unlock_irqrestore(lock, flags);
}
