// SPDX-License-Identifier: GPL-2.0
/* Wrappers that make inline functions and macros callable from Rust. No logic here. */
#include "shared_helpers.c"

/* linux/completion.h */
void srp_helper_reinit_completion(struct completion *c)
{
	unsigned long flags;

	/* reinit_completion() must not run between a waiter's check and decrement, which are under this lock. */
	raw_spin_lock_irqsave(&c->wait.lock, flags);
	reinit_completion(c);
	raw_spin_unlock_irqrestore(&c->wait.lock, flags);
}

/* linux/dma-mapping.h */
int srp_helper_dma_get_cache_alignment(void)
{
	return dma_get_cache_alignment();
}

/* linux/kernfs.h */
struct kernfs_node *srp_helper_kernfs_find_and_get(struct kernfs_node *kn, const char *name)
{
	return kernfs_find_and_get(kn, name);
}

/* linux/netdevice.h */
struct net_device *srp_helper_dev_get_by_name(struct net *net, const char *name)
{
	return dev_get_by_name(net, name);
}

int srp_helper_dev_ifindex(const struct net_device *dev)
{
	return READ_ONCE(dev->ifindex);
}

void srp_helper_dev_put(struct net_device *dev)
{
	dev_put(dev);
}

/* linux/nodemask.h */
unsigned int srp_helper_num_online_nodes(void)
{
	return num_online_nodes();
}

/* linux/scatterlist.h */
u64 srp_helper_sg_dma_address(struct scatterlist *sg)
{
	return sg_dma_address(sg);
}

unsigned int srp_helper_sg_dma_len(struct scatterlist *sg)
{
	return sg_dma_len(sg);
}

void *srp_helper_sg_lowmem(struct scatterlist *sg)
{
	return PageHighMem(sg_page(sg)) ? NULL : sg_virt(sg);
}

/* linux/sched/mm.h */
void srp_helper_memalloc_noio_restore(unsigned int flags)
{
	memalloc_noio_restore(flags);
}

unsigned int srp_helper_memalloc_noio_save(void)
{
	return memalloc_noio_save();
}

/* linux/signal.h */
void srp_helper_allow_kernel_signal(int sig)
{
	allow_kernel_signal(sig);
}

void srp_helper_disallow_signal(int sig)
{
	disallow_signal(sig);
}

void srp_helper_set_notify_signal(struct task_struct *task)
{
	set_tsk_thread_flag(task, TIF_NOTIFY_SIGNAL);
}

void srp_helper_clear_notify_signal(void)
{
	clear_notify_signal();
}

bool srp_helper_task_work_pending(struct task_struct *task)
{
	return task_work_pending(task);
}

/* linux/spinlock.h */
void srp_helper_spin_lock_bh(spinlock_t *lock)
{
	spin_lock_bh(lock);
}

bool srp_helper_spin_trylock_bh(spinlock_t *lock)
{
	return spin_trylock_bh(lock);
}

bool srp_helper_spin_is_locked(spinlock_t *lock)
{
	return spin_is_locked(lock);
}

void srp_helper_spin_unlock_bh(spinlock_t *lock)
{
	spin_unlock_bh(lock);
}

/* linux/suspend.h: both do nothing without CONFIG_PM_SLEEP */
int srp_helper_register_pm_notifier(struct notifier_block *nb)
{
	return register_pm_notifier(nb);
}

int srp_helper_unregister_pm_notifier(struct notifier_block *nb)
{
	return unregister_pm_notifier(nb);
}

/* linux/wait.h */
void srp_helper_init_waitqueue_head(struct wait_queue_head *head)
{
	init_waitqueue_head(head);
}

/* linux/workqueue.h */
struct workqueue_struct *srp_helper_alloc_workqueue(const char *name, unsigned int flags,
	int max_active)
{
	return alloc_workqueue("%s", flags, max_active, name);
}

/* net/net_namespace.h */
struct net *srp_helper_current_net(void)
{
	return current->nsproxy ? current->nsproxy->net_ns : NULL;
}

void srp_helper_get_net(struct net *net)
{
	get_net(net);
}

const void *srp_helper_net_sysfs_tag(struct net *net)
{
#ifdef SRP_HAS_NAMESPACE_TAG_TYPE
	return to_ns_common(net);
#else
	return net;
#endif
}

void srp_helper_put_net(struct net *net)
{
	put_net(net);
}

/* rdma/ib_verbs.h */
int srp_helper_ib_dma_map_sg(struct ib_device *dev, struct scatterlist *sg, int nents,
	enum dma_data_direction dir)
{
	return ib_dma_map_sg(dev, sg, nents, dir);
}

u64 srp_helper_ib_dma_map_single(struct ib_device *dev, void *cpu_addr, size_t size,
	enum dma_data_direction dir)
{
	return ib_dma_map_single(dev, cpu_addr, size, dir);
}

int srp_helper_ib_dma_mapping_error(struct ib_device *dev, u64 addr)
{
	return ib_dma_mapping_error(dev, addr);
}

unsigned int srp_helper_ib_dma_max_seg_size(struct ib_device *dev)
{
	return ib_dma_max_seg_size(dev);
}

/* With swiotlb, mappings have a maximum length and preserve only the address bits in the device's min_align_mask. */
bool srp_helper_ib_dma_bounces(struct ib_device *dev, u32 page_mask)
{
	return !ib_uses_virt_dma(dev) && dma_max_mapping_size(dev->dma_device) != SIZE_MAX &&
		~dma_get_min_align_mask(dev->dma_device) & page_mask;
}

void srp_helper_ib_dma_sync_single_for_cpu(struct ib_device *dev, u64 addr, size_t size,
	enum dma_data_direction dir)
{
	ib_dma_sync_single_for_cpu(dev, addr, size, dir);
}

void srp_helper_ib_dma_sync_single_for_device(struct ib_device *dev, u64 addr, size_t size,
	enum dma_data_direction dir)
{
	ib_dma_sync_single_for_device(dev, addr, size, dir);
}

void srp_helper_ib_dma_unmap_sg(struct ib_device *dev, struct scatterlist *sg, int nents,
	enum dma_data_direction dir)
{
	ib_dma_unmap_sg(dev, sg, nents, dir);
}

void srp_helper_ib_dma_unmap_single(struct ib_device *dev, u64 addr, size_t size,
	enum dma_data_direction dir)
{
	ib_dma_unmap_single(dev, addr, size, dir);
}

int srp_helper_ib_post_recv(struct ib_qp *qp, const struct ib_recv_wr *wr,
	const struct ib_recv_wr **bad)
{
	return ib_post_recv(qp, wr, bad);
}

int srp_helper_ib_post_send(struct ib_qp *qp, const struct ib_send_wr *wr,
	const struct ib_send_wr **bad)
{
	return ib_post_send(qp, wr, bad);
}

struct device *srp_helper_ib_device_parent(struct ib_device *dev)
{
	return dev->dev.parent;
}

bool srp_helper_ib_device_try_get(struct ib_device *dev)
{
	return ib_device_try_get(dev);
}

struct net *srp_helper_rdma_dev_net(struct ib_device *dev)
{
	return read_pnet(&dev->coredev.rdma_net);
}

unsigned int srp_helper_rdma_end_port(const struct ib_device *dev)
{
	return rdma_end_port(dev);
}

unsigned int srp_helper_rdma_start_port(const struct ib_device *dev)
{
	return rdma_start_port(dev);
}

bool srp_helper_rdma_cap_ib_cm(const struct ib_device *dev, u32 port)
{
	return rdma_cap_ib_cm(dev, port);
}

bool srp_helper_rdma_cap_opa_ah(struct ib_device *dev, u32 port)
{
	return rdma_cap_opa_ah(dev, port);
}

bool srp_helper_rdma_protocol_roce(const struct ib_device *dev, u32 port)
{
	return rdma_protocol_roce(dev, port);
}

/* rdma/ib_addr.h */
void srp_helper_rdma_gid2ip(struct sockaddr *out, const union ib_gid *gid)
{
	rdma_gid2ip(out, gid);
}

/* rdma/ib_cm.h */
int srp_helper_ib_prepare_cm_mra(struct ib_cm_id *id)
{
#ifdef SRP_HAS_CM_MRA_PREPARED
	return ib_prepare_cm_mra(id);
#else
	/* Timeout 2^24 times 4 us; only sent to a peer that repeats its message. */
	return ib_send_cm_mra(id, IB_CM_MRA_FLAG_DELAY | 24, NULL, 0);
#endif
}

/* rdma/ib_sa.h */
void srp_helper_sa_path_set_dlid(struct sa_path_rec *rec, u32 dlid)
{
	sa_path_set_dlid(rec, dlid);
}

void srp_helper_sa_path_set_dmac(struct sa_path_rec *rec, u8 *dmac)
{
	sa_path_set_dmac(rec, dmac);
}
