// SPDX-License-Identifier: GPL-2.0
/* Wrappers that make inline functions and macros callable from the test device's Rust code. */
#include <linux/dma-direct.h>
#include <linux/mm.h>
#include <rdma/ib_umem.h>

#include "shared_helpers.c"
#include "srp_vfab.h"

/* linux/dma-direct.h: NULL if the address is not memory. */
void *srp_vfab_dma_to_virt(struct device *dev, u64 addr, size_t len)
{
	phys_addr_t phys = dma_to_phys(dev, addr), last = phys + len - 1;

	if (!pfn_valid(PHYS_PFN(phys)) || (PHYS_PFN(phys) != PHYS_PFN(last) && !pfn_valid(PHYS_PFN(last))))
		return NULL;
	return phys_to_virt(phys);
}

/* linux/dma-mapping.h */
int srp_vfab_dma_set_mask(struct device *dev, unsigned int bits)
{
	return dma_set_mask_and_coherent(dev, DMA_BIT_MASK(bits));
}

void srp_vfab_dma_set_max_seg_size(struct device *dev, unsigned int size)
{
	dma_set_max_seg_size(dev, size);
}

/* linux/hrtimer.h: a timer by the monotonic clock */
void srp_vfab_hrtimer_setup(struct hrtimer *timer, enum hrtimer_restart (*function)(struct hrtimer *),
	enum hrtimer_mode mode)
{
#ifdef SRP_HAS_HRTIMER_SETUP
	hrtimer_setup(timer, function, CLOCK_MONOTONIC, mode);
#else
	hrtimer_init(timer, CLOCK_MONOTONIC, mode);
	timer->function = function;
#endif
}

/* linux/swiotlb.h */
void srp_vfab_dma_never_bounce(struct device *dev)
{
#ifdef CONFIG_SWIOTLB
	dev->dma_io_tlb_mem = NULL;
#endif
}

/* linux/irq_work.h */
bool srp_vfab_irq_work_has_interrupt(void)
{
	return arch_irq_work_has_interrupt();
}

void srp_vfab_irq_work_init(struct irq_work *work, void (*func)(struct irq_work *))
{
	init_irq_work(work, func);
}

/* linux/scatterlist.h */
u64 srp_vfab_sg_dma_address(struct scatterlist *sg)
{
	return sg_dma_address(sg);
}

unsigned int srp_vfab_sg_dma_len(struct scatterlist *sg)
{
	return sg_dma_len(sg);
}

/* rdma/ib_umem.h */
struct ib_umem *srp_vfab_umem_get(struct ib_device *dev, unsigned long addr, size_t len, int access)
{
#ifdef SRP_HAS_UMEM_GET_VA
	return ib_umem_get_va(dev, addr, len, access);
#else
	return ib_umem_get(dev, addr, len, access);
#endif
}

size_t srp_vfab_umem_pages(struct ib_umem *umem, u64 *pages, size_t count)
{
	struct sg_dma_page_iter iter;
	size_t n = 0;

	for_each_sgtable_dma_page(&umem->sgt_append.sgt, &iter, 0) {
		if (n < count)
			pages[n] = sg_page_iter_dma_address(&iter);
		n++;
	}
	return n;
}

void srp_vfab_umem_release(struct ib_umem *umem)
{
	ib_umem_release(umem);
}

/* rdma/ib_verbs.h */
struct ib_device *srp_vfab_alloc_device(size_t size)
{
#ifdef SRP_HAS_ALLOC_DEVICE_NET
	return _ib_alloc_device(size, &init_net);
#else
	return _ib_alloc_device(size);
#endif
}

void srp_vfab_set_parent(struct ib_device *dev, struct device *parent)
{
	dev->dev.parent = parent;
}

void srp_vfab_wait_for_work(struct ib_cq *cq)
{
	if (cq->poll_ctx == IB_POLL_UNBOUND_WORKQUEUE)
		flush_work(&cq->work);
}

struct srp_vfab_marker {
	struct ib_cqe cqe;
	struct completion done;
};

static void srp_vfab_marker_done(struct ib_cq *cq, struct ib_wc *wc)
{
	complete(&container_of(wc->wr_cqe, struct srp_vfab_marker, cqe)->done);
}

/* Moves a queue pair to the error state, posts a last request and waits for its completion, as ib_drain_sq() and
 * ib_drain_rq() do for a device that does not drain itself. A dead device flushes even if the move fails. */
void srp_vfab_drain(struct ib_qp *qp, bool recv, bool dead)
{
	struct ib_qp_attr attr = { .qp_state = IB_QPS_ERR };
	struct ib_cq *cq = recv ? qp->recv_cq : qp->send_cq;
	struct srp_vfab_marker marker = { .cqe.done = srp_vfab_marker_done };
	struct ib_rdma_wr send = { .wr = { .wr_cqe = &marker.cqe, .opcode = IB_WR_RDMA_WRITE } };
	struct ib_recv_wr receive = { .wr_cqe = &marker.cqe };

	init_completion(&marker.done);
	if ((ib_modify_qp(qp, &attr, IB_QP_STATE) && !dead) ||
	    (recv ? ib_post_recv(qp, &receive, NULL) : ib_post_send(qp, &send.wr, NULL)))
		return;
	while (!wait_for_completion_timeout(&marker.done, HZ / 10))
		if (cq->poll_ctx == IB_POLL_DIRECT)
			ib_process_cq_direct(cq, -1);
}

/* linux/workqueue.h */
struct workqueue_struct *srp_vfab_alloc_workqueue(void)
{
	return alloc_workqueue("ib_vfab", WQ_UNBOUND | WQ_MEM_RECLAIM, 0);
}

void srp_vfab_destroy_workqueue(struct workqueue_struct *queue)
{
	destroy_workqueue(queue);
}

void srp_vfab_flush_workqueue(struct workqueue_struct *queue)
{
	flush_workqueue(queue);
}
