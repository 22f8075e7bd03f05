/* SPDX-License-Identifier: GPL-2.0 */
/* What only the test device ib_vfab needs of C: prototypes of rust/vfab_helpers.c, variables of rust/vfab_params.c. */
#ifndef SRP_VFAB_H
#define SRP_VFAB_H

#include <linux/device.h>
#include <linux/hrtimer.h>
#include <linux/irq_work.h>
#include <linux/platform_device.h>
#include <rdma/ib_mad.h>
#include <rdma/ib_verbs.h>

/* A constant without the name of its type is not in the bindings. */
enum srp_vfab_node {
	SRP_VFAB_NODE_IB_CA = RDMA_NODE_IB_CA,
};

extern unsigned int srp_vfab_devices;
extern unsigned int srp_vfab_ports;
extern unsigned int srp_vfab_dma_bits;
extern bool srp_vfab_static_lids;

/* linux/dma-direct.h, linux/mm.h */
void *srp_vfab_dma_to_virt(struct device *dev, u64 addr, size_t len);

/* linux/dma-mapping.h */
void srp_vfab_dma_set_max_seg_size(struct device *dev, unsigned int size);

/* linux/irq_work.h */
bool srp_vfab_irq_work_has_interrupt(void);
void srp_vfab_irq_work_init(struct irq_work *work, void (*func)(struct irq_work *));

/* rdma/ib_verbs.h */
struct ib_device *srp_vfab_alloc_device(size_t size);
void srp_vfab_set_parent(struct ib_device *dev, struct device *parent);

/* linux/workqueue.h */
struct workqueue_struct *srp_vfab_alloc_workqueue(void);
void srp_vfab_destroy_workqueue(struct workqueue_struct *queue);
void srp_vfab_flush_workqueue(struct workqueue_struct *queue);

#endif
