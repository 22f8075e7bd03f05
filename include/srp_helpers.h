/* SPDX-License-Identifier: GPL-2.0 */
/* Prototypes of rust/helpers.c, so that bindgen sees them. */
#ifndef SRP_HELPERS_H
#define SRP_HELPERS_H

#include <rdma/ib_verbs.h>
#include <rdma/rdma_cm.h>

#endif
