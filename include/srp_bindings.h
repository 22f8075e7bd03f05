/* SPDX-License-Identifier: GPL-2.0 */
/* The input of bindgen: the kernel headers that the Rust code uses, sorted. */
#ifndef SRP_BINDINGS_H
#define SRP_BINDINGS_H

#include <rdma/ib_cache.h>
#include <rdma/ib_cm.h>
#include <rdma/ib_sa.h>
#include <rdma/ib_verbs.h>
#include <rdma/rdma_cm.h>
#include <scsi/scsi.h>
#include <scsi/scsi_cmnd.h>
#include <scsi/scsi_dbg.h>
#include <scsi/scsi_device.h>
#include <scsi/scsi_eh.h>
#include <scsi/scsi_host.h>
#include <scsi/scsi_tcq.h>
#include <scsi/scsi_transport.h>
#include <scsi/scsi_transport_srp.h>

#include "srp_helpers.h"
#include "srp_params.h"
#include "srp_trace_calls.h"
#ifdef SRP_VFAB
#include "srp_vfab.h"
#endif

#endif
