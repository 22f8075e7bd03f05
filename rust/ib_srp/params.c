// SPDX-License-Identifier: GPL-2.0
/*
 * The module parameters, with the names, defaults and permissions of the C driver. Only this driver
 * has keep_alive, static_read_max and poll_queues. rust/ib_srp/params.rs reads them. Also the version, which the macro
 * `module!` cannot state.
 */
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/scatterlist.h>
#include <linux/sysfs.h>
#include <scsi/scsi.h>
#include <scsi/scsi_host.h>
#include <scsi/scsi_transport_srp.h>

#include "srp_params.h"

MODULE_VERSION(SRP_VERSION);

/* Maximum of keep_alive in seconds: a day. */
#define KEEP_ALIVE_MAX	86400

unsigned int srp_param_sg_tablesize;
module_param_named(srp_sg_tablesize, srp_param_sg_tablesize, uint, 0444);
MODULE_PARM_DESC(srp_sg_tablesize, "Old name of cmd_sg_entries, used if that one is 0");

unsigned int srp_param_cmd_sg_entries;
module_param_named(cmd_sg_entries, srp_param_cmd_sg_entries, uint, 0444);
MODULE_PARM_DESC(cmd_sg_entries,
		 "Default number of memory descriptors in an SRP command, 1 to 255 (0: 12)");

unsigned int srp_param_indirect_sg_entries;
module_param_named(indirect_sg_entries, srp_param_indirect_sg_entries, uint, 0444);
MODULE_PARM_DESC(indirect_sg_entries,
		 "Default of the largest number of memory segments of an I/O, up to "
		 __stringify(SG_MAX_SEGMENTS) " (0: cmd_sg_entries)");

bool srp_param_allow_ext_sg;
module_param_named(allow_ext_sg, srp_param_allow_ext_sg, bool, 0444);
MODULE_PARM_DESC(allow_ext_sg,
		 "Whether an I/O may need more descriptors than fit in the SRP command, by default");

int srp_param_topspin_workarounds = 1;
module_param_named(topspin_workarounds, srp_param_topspin_workarounds, int, 0444);
MODULE_PARM_DESC(topspin_workarounds,
		 "Work around bugs of Topspin and Cisco targets if not 0");

bool srp_param_register_always = true;
module_param_named(register_always, srp_param_register_always, bool, 0444);
MODULE_PARM_DESC(register_always, "Accepted and ignored: memory is always registered");

bool srp_param_never_register;
module_param_named(never_register, srp_param_never_register, bool, 0444);
MODULE_PARM_DESC(never_register, "Accepted and ignored: memory is always registered");

/*
 * The three timeouts, in seconds; -1 is "off". The SRP transport class keeps pointers to them and reads them for each
 * new remote port. Setters are serialised by the lock of the module's parameters.
 */
int srp_param_reconnect_delay = 10;
int srp_param_fast_io_fail_tmo = 15;
int srp_param_dev_loss_tmo = 600;

static int timeout_get(char *page, const struct kernel_param *param)
{
	int seconds = *(int *)param->arg;

	return seconds < 0 ? sysfs_emit(page, "off\n") : sysfs_emit(page, "%d\n", seconds);
}

static int timeout_set(const char *text, const struct kernel_param *param)
{
	int delay = srp_param_reconnect_delay;
	int fast = srp_param_fast_io_fail_tmo;
	int loss = srp_param_dev_loss_tmo;
	int *mine = param->arg == &srp_param_reconnect_delay ? &delay :
		    param->arg == &srp_param_fast_io_fail_tmo ? &fast : &loss;
	int error = srp_parse_tmo(mine, text);

	if (!error)
		error = srp_tmo_valid(delay, fast, loss);
	if (!error)
		WRITE_ONCE(*(int *)param->arg, *mine);
	return error;
}

static const struct kernel_param_ops timeout_ops = { .set = timeout_set, .get = timeout_get };

module_param_cb(reconnect_delay, &timeout_ops, &srp_param_reconnect_delay, 0644);
MODULE_PARM_DESC(reconnect_delay,
		 "Seconds from one attempt to reconnect to the next, from 1, or \"off\"");

module_param_cb(fast_io_fail_tmo, &timeout_ops, &srp_param_fast_io_fail_tmo, 0644);
MODULE_PARM_DESC(fast_io_fail_tmo,
		 "Seconds from the loss of a connection to failing all I/O, 0 to 600 and less than dev_loss_tmo, or \"off\"");

module_param_cb(dev_loss_tmo, &timeout_ops, &srp_param_dev_loss_tmo, 0644);
MODULE_PARM_DESC(dev_loss_tmo,
		 "Seconds from the loss of a connection to removing the SCSI host, at most 600 if fast_io_fail_tmo is off, or \"off\"");

unsigned int srp_param_keep_alive = 5;

static int keep_alive_set(const char *text, const struct kernel_param *param)
{
	return param_set_uint_minmax(text, param, 0, KEEP_ALIVE_MAX);
}

static const struct kernel_param_ops keep_alive_ops = {
	.set = keep_alive_set,
	.get = param_get_uint,
};

module_param_cb(keep_alive, &keep_alive_ops, &srp_param_keep_alive, 0644);
__MODULE_PARM_TYPE(keep_alive, "uint");
MODULE_PARM_DESC(keep_alive,
		 "Seconds after which an idle connection is tested, up to "
		 __stringify(KEEP_ALIVE_MAX) " (0: never)");

bool srp_param_use_imm_data = true;
module_param_named(use_imm_data, srp_param_use_imm_data, bool, 0644);
MODULE_PARM_DESC(use_imm_data, "Whether to ask at login for sending small writes with the command");

unsigned int srp_param_static_read_max = 4 * 1024;
module_param_named(static_read_max, srp_param_static_read_max, uint, 0644);
MODULE_PARM_DESC(static_read_max,
		 "Longest read in bytes that is copied from memory which stays registered, up to 32768 (0: none)");

unsigned int srp_param_poll_queues;
module_param_named(poll_queues, srp_param_poll_queues, uint, 0644);
MODULE_PARM_DESC(poll_queues,
		 "Number of channels per target, beside ch_count, without interrupts, for polled I/O, up to 8 (0: none)");

unsigned int srp_param_max_imm_data = 8 * 1024;
module_param_named(max_imm_data, srp_param_max_imm_data, uint, 0644);
MODULE_PARM_DESC(max_imm_data, "Largest write sent with the command, in bytes");

unsigned int srp_param_ch_count;
module_param_named(ch_count, srp_param_ch_count, uint, 0444);
MODULE_PARM_DESC(ch_count,
		 "Number of RDMA channels per target (0: the larger of four per NUMA node and the completion vectors of the device, at most 16), at most one per CPU");
