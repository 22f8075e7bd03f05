// SPDX-License-Identifier: GPL-2.0
/* The parameters of the test device; rust/ib_vfab/vfab/params.rs reads them. */
#include <linux/module.h>
#include <linux/moduleparam.h>

#include "srp_vfab.h"

unsigned int srp_vfab_devices = 2;
module_param_named(devices, srp_vfab_devices, uint, 0444);
MODULE_PARM_DESC(devices, "Number of host channel adapters, 1 to 8");

unsigned int srp_vfab_ports = 1;
module_param_named(ports, srp_vfab_ports, uint, 0444);
MODULE_PARM_DESC(ports, "Number of ports of each adapter, 1 or 2");

unsigned int srp_vfab_dma_bits = 64;
module_param_named(dma_bits, srp_vfab_dma_bits, uint, 0444);
MODULE_PARM_DESC(dma_bits, "Width of the adapters' DMA addresses in bits, 32 to 64");

unsigned int srp_vfab_direct;
module_param_named(direct, srp_vfab_direct, uint, 0444);
MODULE_PARM_DESC(direct, "So many of the first adapters reach all memory and never use bounce buffers");

unsigned int srp_vfab_gaps;
module_param_named(gaps, srp_vfab_gaps, uint, 0444);
MODULE_PARM_DESC(gaps, "Adapters whose memory regions may have gaps, a bit for each");

bool srp_vfab_static_lids;
module_param_named(static_lids, srp_vfab_static_lids, bool, 0444);
MODULE_PARM_DESC(static_lids, "Have all ports active with a LID from the start, without a subnet manager");

unsigned int srp_vfab_interrupt_ns;
module_param_named(interrupt_ns, srp_vfab_interrupt_ns, uint, 0444);
MODULE_PARM_DESC(interrupt_ns, "Time from a completion to its interrupt in nanoseconds");

char *srp_vfab_personality[8];
module_param_array_named(personality, srp_vfab_personality, charp, NULL, 0444);
MODULE_PARM_DESC(personality, "Which adapters vfab0, vfab1 ... behave as, by the names of their drivers");
