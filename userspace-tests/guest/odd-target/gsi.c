// SPDX-License-Identifier: GPL-2.0
#include <errno.h>
#include <fcntl.h>

#include "cm.h"
#include "gsi.h"

/* A datagram buffer starts with space for a GRH. */
enum { DEPTH = 64, GRH = 40, ROOM = GRH + MAD };
/* The Q_Key of all queue pairs 1. */
static const uint32_t qkey = 0x80010000;

static uint8_t *place(struct gsi *g, int i) { return g->memory + i * ROOM; }

static void post(struct gsi *g, int i)
{
	struct ibv_sge sge = { (uintptr_t)place(g, i), ROOM, g->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = i, .sg_list = &sge, .num_sge = 1 }, *bad;

	check(!ibv_post_recv(g->qp, &wr, &bad), "post_recv");
}

void gsi_open(struct gsi *g, const char *name)
{
	const char *device = strchr(name, ':');
	struct ibv_device **list = ibv_get_device_list(NULL), **d = list;
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = qkey };
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_UD,
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_port_attr port;
	union ibv_gid gid;

	check(device && list, "a device");
	snprintf(g->name, sizeof(g->name), "%.*s", (int)(device - name), name);
	while (*d && strcmp(ibv_get_device_name(*d), device + 1))
		d++;
	errno = ENODEV;
	check(*d, device);
	g->verbs = ibv_open_device(*d);
	check(g->verbs, device);
	ibv_free_device_list(list);
	g->pd = ibv_alloc_pd(g->verbs);
	g->arrivals = ibv_create_comp_channel(g->verbs);
	g->memory = calloc(2 * DEPTH, ROOM);
	check(g->pd && g->arrivals && g->memory, "memory of datagrams");
	fcntl(g->arrivals->fd, F_SETFL, O_NONBLOCK);
	g->mr = ibv_reg_mr(g->pd, g->memory, 2 * DEPTH * ROOM, IBV_ACCESS_LOCAL_WRITE);
	g->cq = ibv_create_cq(g->verbs, 4 * DEPTH, NULL, g->arrivals, 0);
	check(g->mr && g->cq && !ibv_req_notify_cq(g->cq, 0), "queue of datagrams");
	init.send_cq = init.recv_cq = g->cq;
	g->qp = ibv_create_qp(g->pd, &init);
	check(g->qp, "queue pair of datagrams");
	check(!ibv_modify_qp(g->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY), "INIT");
	for (int i = 0; i < DEPTH; i++)
		post(g, i);
	attr.qp_state = IBV_QPS_RTR;
	check(!ibv_modify_qp(g->qp, &attr, IBV_QP_STATE), "RTR");
	attr.qp_state = IBV_QPS_RTS;
	check(!ibv_modify_qp(g->qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN), "RTS");
	check(!ibv_query_port(g->verbs, 1, &port) && !ibv_query_gid(g->verbs, 1, 0, &gid), "port");
	say("at=%s device=%s qpn=%d lid=%d gid=%016llx%016llx", g->name, device + 1, g->qp->qp_num, port.lid,
	    (unsigned long long)get(gid.raw, 8), (unsigned long long)get(gid.raw + 8, 8));
}

void gsi_poll(struct gsi *g, void (*with)(struct gsi *g, uint8_t *mad, struct ibv_ah *back, uint32_t qpn))
{
	struct ibv_ah *back;
	struct ibv_cq *cq;
	struct ibv_wc wc;
	void *none;

	while (!ibv_get_cq_event(g->arrivals, &cq, &none))
		ibv_ack_cq_events(cq, 1);
	check(!ibv_req_notify_cq(g->cq, 0), "req_notify_cq");
	while (ibv_poll_cq(g->cq, 1, &wc) > 0) {
		if (wc.wr_id >= DEPTH)
			continue;
		check(wc.status == IBV_WC_SUCCESS, ibv_wc_status_str(wc.status));
		back = ibv_create_ah_from_wc(g->pd, &wc, (struct ibv_grh *)place(g, wc.wr_id), 1);
		check(back, "the way back");
		with(g, place(g, wc.wr_id) + GRH, back, wc.src_qp);
		post(g, wc.wr_id);
	}
}

void gsi_send(struct gsi *g, const uint8_t *mad, struct ibv_ah *to, uint32_t qpn)
{
	int i = DEPTH + g->sent++ % DEPTH;
	struct ibv_sge sge = { (uintptr_t)place(g, i), MAD, g->mr->lkey };
	struct ibv_send_wr wr = {
		.wr_id = i, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED,
		.wr.ud = { .ah = to, .remote_qpn = qpn, .remote_qkey = qkey },
	}, *bad;

	memcpy(place(g, i), mad, MAD);
	check(!ibv_post_send(g->qp, &wr, &bad), "post_send");
}

int gsi_partition(struct gsi *g, uint16_t pkey)
{
	__be16 one;

	for (int i = 0; !ibv_query_pkey(g->verbs, 1, i, &one); i++)
		if (((get((uint8_t *)&one, 2) ^ pkey) & 0x7fff) == 0)
			return i;
	return -1;
}
