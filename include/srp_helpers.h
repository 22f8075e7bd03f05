/* SPDX-License-Identifier: GPL-2.0 */
/* Prototypes of rust/helpers/helpers.c and shared_helpers.c, so that bindgen sees them. */
#ifndef SRP_HELPERS_H
#define SRP_HELPERS_H

#include <linux/completion.h>
#include <linux/cpumask.h>
#include <linux/irqflags.h>
#include <linux/kernfs.h>
#include <linux/netdevice.h>
#include <linux/nodemask.h>
#include <linux/scatterlist.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/spinlock.h>
#include <linux/suspend.h>
#include <linux/task_work.h>
#include <linux/wait.h>
#include <linux/workqueue.h>
#include <net/net_namespace.h>
#include <rdma/ib_addr.h>
#include <rdma/ib_cm.h>
#include <rdma/ib_sa.h>
#include <rdma/ib_verbs.h>
#include <rdma/rdma_cm.h>

/* linux/completion.h */
void srp_helper_reinit_completion(struct completion *c);

/* linux/cpumask.h */
unsigned int srp_helper_num_online_cpus(void);

/* linux/dma-mapping.h */
int srp_helper_dma_get_cache_alignment(void);

/* linux/irqflags.h */
bool srp_helper_irqs_disabled(void);

/* linux/kernfs.h */
struct kernfs_node *srp_helper_kernfs_find_and_get(struct kernfs_node *kn, const char *name);

/* linux/netdevice.h */
struct net_device *srp_helper_dev_get_by_name(struct net *net, const char *name);
int srp_helper_dev_ifindex(const struct net_device *dev);
void srp_helper_dev_put(struct net_device *dev);

/* linux/nodemask.h */
unsigned int srp_helper_num_online_nodes(void);

/* linux/scatterlist.h */
u64 srp_helper_sg_dma_address(struct scatterlist *sg);
unsigned int srp_helper_sg_dma_len(struct scatterlist *sg);
void *srp_helper_sg_lowmem(struct scatterlist *sg);
void srp_helper_sg_set_dma(struct scatterlist *sg, dma_addr_t addr, unsigned int len);

/* linux/sched/mm.h */
void srp_helper_memalloc_noio_restore(unsigned int flags);
unsigned int srp_helper_memalloc_noio_save(void);

/* linux/signal.h */
void srp_helper_allow_kernel_signal(int sig);
void srp_helper_disallow_signal(int sig);
void srp_helper_set_notify_signal(struct task_struct *task);
void srp_helper_clear_notify_signal(void);
bool srp_helper_task_work_pending(struct task_struct *task);

/* linux/spinlock.h */
void srp_helper_spin_lock_bh(spinlock_t *lock);
bool srp_helper_spin_trylock_bh(spinlock_t *lock);
bool srp_helper_spin_is_locked(spinlock_t *lock);
void srp_helper_spin_unlock_bh(spinlock_t *lock);
unsigned long srp_helper_spin_lock_irqsave(spinlock_t *lock);
bool srp_helper_spin_trylock_irqsave(spinlock_t *lock, unsigned long *flags);
void srp_helper_spin_unlock_irqrestore(spinlock_t *lock, unsigned long flags);

/* linux/suspend.h */
int srp_helper_register_pm_notifier(struct notifier_block *nb);
int srp_helper_unregister_pm_notifier(struct notifier_block *nb);

/* linux/wait.h */
void srp_helper_init_waitqueue_head(struct wait_queue_head *head);

/* linux/workqueue.h */
struct workqueue_struct *srp_helper_alloc_workqueue(const char *name, unsigned int flags,
	int max_active);

/* net/net_namespace.h */
struct net *srp_helper_current_net(void);
void srp_helper_get_net(struct net *net);
const void *srp_helper_net_sysfs_tag(struct net *net);
void srp_helper_put_net(struct net *net);

/* rdma/ib_verbs.h */
int srp_helper_ib_dma_map_sg(struct ib_device *dev, struct scatterlist *sg, int nents,
	enum dma_data_direction dir);
u64 srp_helper_ib_dma_map_single(struct ib_device *dev, void *cpu_addr, size_t size,
	enum dma_data_direction dir);
int srp_helper_ib_dma_mapping_error(struct ib_device *dev, u64 addr);
unsigned int srp_helper_ib_dma_max_seg_size(struct ib_device *dev);
bool srp_helper_ib_dma_bounces(struct ib_device *dev, u32 page_mask);
void srp_helper_ib_dma_sync_single_for_cpu(struct ib_device *dev, u64 addr, size_t size,
	enum dma_data_direction dir);
void srp_helper_ib_dma_sync_single_for_device(struct ib_device *dev, u64 addr, size_t size,
	enum dma_data_direction dir);
void srp_helper_ib_dma_unmap_sg(struct ib_device *dev, struct scatterlist *sg, int nents,
	enum dma_data_direction dir);
void srp_helper_ib_dma_unmap_single(struct ib_device *dev, u64 addr, size_t size,
	enum dma_data_direction dir);
int srp_helper_ib_post_recv(struct ib_qp *qp, const struct ib_recv_wr *wr,
	const struct ib_recv_wr **bad);
int srp_helper_ib_post_send(struct ib_qp *qp, const struct ib_send_wr *wr,
	const struct ib_send_wr **bad);
struct device *srp_helper_ib_device_parent(struct ib_device *dev);
bool srp_helper_ib_device_try_get(struct ib_device *dev);
struct net *srp_helper_rdma_dev_net(struct ib_device *dev);
unsigned int srp_helper_rdma_end_port(const struct ib_device *dev);
unsigned int srp_helper_rdma_start_port(const struct ib_device *dev);
bool srp_helper_rdma_cap_ib_cm(const struct ib_device *dev, u32 port);
bool srp_helper_rdma_cap_opa_ah(struct ib_device *dev, u32 port);
bool srp_helper_rdma_protocol_roce(const struct ib_device *dev, u32 port);

/* rdma/ib_addr.h */
void srp_helper_rdma_gid2ip(struct sockaddr *out, const union ib_gid *gid);

/* rdma/ib_cm.h */
int srp_helper_ib_prepare_cm_mra(struct ib_cm_id *id);

/* rdma/ib_sa.h */
void srp_helper_sa_path_set_dlid(struct sa_path_rec *rec, u32 dlid);
void srp_helper_sa_path_set_dmac(struct sa_path_rec *rec, u8 *dmac);

#endif
