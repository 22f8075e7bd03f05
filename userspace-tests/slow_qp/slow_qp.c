// SPDX-License-Identifier: GPL-2.0
/*
 * Makes an RDMA device slow to move a queue pair to the error state, like an adapter with
 * unresponsive firmware. mlx5 waits 60 s for such a command.
 */

#include <linux/atomic.h>
#include <linux/delay.h>
#include <linux/module.h>
#include <linux/wait.h>
#include <rdma/ib_verbs.h>

static char *device;
module_param(device, charp, 0444);
MODULE_PARM_DESC(device, "name of the RDMA device");

static unsigned int hold_ms = 70000;
module_param(hold_ms, uint, 0644);
MODULE_PARM_DESC(hold_ms, "how long a queue pair takes");

static atomic_t times = ATOMIC_INIT(0);
module_param_named(times, times.counter, int, 0644);
MODULE_PARM_DESC(times, "how many more take so long");

static atomic_t inside = ATOMIC_INIT(0);
static struct ib_device *held;
static int (*modify_qp)(struct ib_qp *qp, struct ib_qp_attr *attr, int mask, struct ib_udata *udata);
static DECLARE_WAIT_QUEUE_HEAD(idle);

static int slow_modify_qp(struct ib_qp *qp, struct ib_qp_attr *attr, int mask, struct ib_udata *udata)
{
	int ret;

	atomic_inc(&inside);
	if (qp->qp_type == IB_QPT_RC && mask & IB_QP_STATE && attr->qp_state == IB_QPS_ERR &&
	    atomic_dec_if_positive(&times) >= 0)
		msleep(hold_ms);
	ret = modify_qp(qp, attr, mask, udata);
	if (atomic_dec_and_test(&inside))
		wake_up(&idle);
	return ret;
}

static int slow_qp_add(struct ib_device *dev)
{
	if (held || strcmp(dev_name(&dev->dev), device ?: ""))
		return -EOPNOTSUPP;
	held = dev;
	modify_qp = dev->ops.modify_qp;
	WRITE_ONCE(dev->ops.modify_qp, slow_modify_qp);
	return 0;
}

static void slow_qp_remove(struct ib_device *dev, void *data)
{
	WRITE_ONCE(dev->ops.modify_qp, modify_qp);
	wait_event(idle, !atomic_read(&inside));
	/* The last caller may not have returned yet. */
	msleep(100);
	held = NULL;
}

static struct ib_client client = {
	.name = "slow_qp",
	.add = slow_qp_add,
	.remove = slow_qp_remove,
};

static int __init slow_qp_init(void)
{
	return ib_register_client(&client);
}

static void __exit slow_qp_exit(void)
{
	ib_unregister_client(&client);
}

module_init(slow_qp_init);
module_exit(slow_qp_exit);
MODULE_DESCRIPTION("Slow queue pairs, for tests");
MODULE_LICENSE("GPL");
