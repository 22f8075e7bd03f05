/* SPDX-License-Identifier: GPL-2.0 */
/* Queue pairs for management datagrams. */
#ifndef TARGET_GSI_H
#define TARGET_GSI_H

#include <infiniband/verbs.h>

#include "bytes.h"

/* A queue pair at port 1 of a device. */
struct gsi {
	char name[16];
	struct ibv_context *verbs;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_comp_channel *arrivals;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	uint8_t *memory;
	int sent;
};

/* Opens a queue pair for `NAME:DEVICE`, and logs its address. */
void gsi_open(struct gsi *g, const char *name);
/* Calls `with` for each received datagram, with an address handle for the reply. */
void gsi_poll(struct gsi *g, void (*with)(struct gsi *g, uint8_t *mad, struct ibv_ah *back, uint32_t qpn));
void gsi_send(struct gsi *g, const uint8_t *mad, struct ibv_ah *to, uint32_t qpn);
/* Returns the index of a partition in the port's P_Key table. */
int gsi_partition(struct gsi *g, uint16_t pkey);

#endif
