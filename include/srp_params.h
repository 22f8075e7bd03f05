/* SPDX-License-Identifier: GPL-2.0 */
/* The module parameters: rust/ib_srp/params.c. */
#ifndef SRP_PARAMS_H
#define SRP_PARAMS_H

#include <linux/types.h>

extern unsigned int srp_param_sg_tablesize;
extern unsigned int srp_param_cmd_sg_entries;
extern unsigned int srp_param_indirect_sg_entries;
extern bool srp_param_allow_ext_sg;
extern int srp_param_topspin_workarounds;
extern bool srp_param_register_always;
extern bool srp_param_never_register;
extern int srp_param_reconnect_delay;
extern int srp_param_fast_io_fail_tmo;
extern int srp_param_dev_loss_tmo;
extern unsigned int srp_param_keep_alive;
extern unsigned int srp_param_static_read_max;
extern unsigned int srp_param_poll_queues;
extern bool srp_param_use_imm_data;
extern unsigned int srp_param_max_imm_data;
extern unsigned int srp_param_ch_count;

#endif
