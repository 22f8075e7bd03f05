// SPDX-License-Identifier: GPL-2.0
/*
 * The module parameters, under the names and with the defaults and permissions of the C driver.
 * rust/params.rs reads them.
 */
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/scatterlist.h>

#include "srp_params.h"

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

bool srp_param_use_imm_data = true;
module_param_named(use_imm_data, srp_param_use_imm_data, bool, 0644);
MODULE_PARM_DESC(use_imm_data, "Whether to ask at login for sending small writes with the command");

unsigned int srp_param_max_imm_data = 8 * 1024;
module_param_named(max_imm_data, srp_param_max_imm_data, uint, 0644);
MODULE_PARM_DESC(max_imm_data, "Largest write sent with the command, in bytes");

unsigned int srp_param_ch_count;
module_param_named(ch_count, srp_param_ch_count, uint, 0444);
MODULE_PARM_DESC(ch_count,
		 "Number of RDMA channels per target (0: the larger of four per NUMA node and the completion vectors of the device, at most one per CPU)");
