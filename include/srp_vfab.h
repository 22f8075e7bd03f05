/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Declarations for the test device ib_vfab: functions of rust/helpers/vfab_helpers.c, variables of
 * rust/ib_vfab/params.c.
 */
#ifndef SRP_VFAB_H
#define SRP_VFAB_H

#include <linux/device.h>
#include <linux/hrtimer.h>
#include <linux/irq_work.h>
#include <linux/platform_device.h>
#include <rdma/ib_mad.h>
#include <rdma/ib_verbs.h>

/* The bindings lack the constants of some enums: name them here. */
enum srp_vfab_node {
	SRP_VFAB_NODE_IB_CA = RDMA_NODE_IB_CA,
};

/* The constants of the user verbs commands, for the same reason. */
enum srp_vfab_command {
	SRP_VFAB_COMMAND_POLL_CQ = IB_USER_VERBS_CMD_POLL_CQ,
	SRP_VFAB_COMMAND_REQ_NOTIFY_CQ = IB_USER_VERBS_CMD_REQ_NOTIFY_CQ,
	SRP_VFAB_COMMAND_POST_SEND = IB_USER_VERBS_CMD_POST_SEND,
	SRP_VFAB_COMMAND_POST_RECV = IB_USER_VERBS_CMD_POST_RECV,
};

extern unsigned int srp_vfab_devices;
extern unsigned int srp_vfab_ports;
extern unsigned int srp_vfab_dma_bits;
extern unsigned int srp_vfab_direct;
extern unsigned int srp_vfab_gaps;
extern bool srp_vfab_static_lids;
extern unsigned int srp_vfab_interrupt_ns;
/* The names of the devices' personalities, from vfab0; NULL if not given. */
extern char *srp_vfab_personality[8];

/* linux/dma-direct.h, linux/mm.h */
void *srp_vfab_dma_to_virt(struct device *dev, u64 addr, size_t len);

/* linux/dma-mapping.h */
int srp_vfab_dma_set_mask(struct device *dev, unsigned int bits);
void srp_vfab_dma_set_max_seg_size(struct device *dev, unsigned int size);
void srp_vfab_dma_never_bounce(struct device *dev);

/* linux/hrtimer.h */
void srp_vfab_hrtimer_setup(struct hrtimer *timer, enum hrtimer_restart (*function)(struct hrtimer *),
	enum hrtimer_mode mode);

/* linux/irq_work.h */
bool srp_vfab_irq_work_has_interrupt(void);
void srp_vfab_irq_work_init(struct irq_work *work, void (*func)(struct irq_work *));

/* linux/scatterlist.h */
u64 srp_vfab_sg_dma_address(struct scatterlist *sg);
unsigned int srp_vfab_sg_dma_len(struct scatterlist *sg);

/* rdma/ib_umem.h: returns the number of pages; stores the DMA addresses of the first `count` in `pages` */
struct ib_umem;
struct ib_umem *srp_vfab_umem_get(struct ib_device *dev, unsigned long addr, size_t len, int access);
size_t srp_vfab_umem_pages(struct ib_umem *umem, u64 *pages, size_t count);
void srp_vfab_umem_release(struct ib_umem *umem);

/* rdma/ib_verbs.h */
struct ib_device *srp_vfab_alloc_device(size_t size);
void srp_vfab_set_parent(struct ib_device *dev, struct device *parent);
void srp_vfab_wait_for_work(struct ib_cq *cq);
void srp_vfab_drain(struct ib_qp *qp, bool recv, bool dead);

/* linux/workqueue.h */
struct workqueue_struct *srp_vfab_alloc_workqueue(void);
void srp_vfab_destroy_workqueue(struct workqueue_struct *queue);
void srp_vfab_flush_workqueue(struct workqueue_struct *queue);

#endif
