// SPDX-License-Identifier: GPL-2.0
/* Like shim.c, for queue pairs without RDMA/CM. */
#include <endian.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdint.h>
#include <string.h>

/* Keep in sync with src/ffi.rs. */
struct rc_peer {
	uint32_t qpn;
	uint32_t psn;
	uint16_t lid;
	uint8_t sl;
	uint8_t mtu;
	uint8_t timeout;
	uint8_t retries;
	uint8_t reads;
};
struct datagram {
	uint64_t id;
	struct ibv_ah *back;
	uint32_t qpn;
};
/* The Q_Key of all queue pairs 1. */
static const uint32_t gsi_qkey = 0x80010000;

/* Stores LID and GID of port 1. */
int shim_port(struct ibv_context *device, uint16_t *lid, uint8_t *gid)
{
	struct ibv_port_attr port;
	union ibv_gid first;

	if (ibv_query_port(device, 1, &port) || ibv_query_gid(device, 1, 0, &first))
		return -EIO;
	*lid = port.lid;
	memcpy(gid, first.raw, sizeof(first.raw));
	return 0;
}

/* Returns the index of a partition in the P_Key table of port 1, whatever the membership, or -ENOENT. */
int shim_partition(struct ibv_context *device, uint16_t pkey)
{
	__be16 entry;
	int i;

	for (i = 0; !ibv_query_pkey(device, 1, i, &entry); i++)
		if (((be16toh(entry) ^ pkey) & 0x7fff) == 0)
			return i;
	return -ENOENT;
}

/* Creates a queue pair at port 1 that can receive, in this partition. */
struct ibv_qp *shim_rc(struct ibv_pd *pd, struct ibv_cq *cq, uint32_t sends, uint32_t receives, int partition)
{
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC, .send_cq = cq, .recv_cq = cq,
		.cap = { .max_send_wr = sends, .max_recv_wr = receives, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .pkey_index = partition };
	struct ibv_qp *qp = ibv_create_qp(pd, &init);

	if (qp && (errno = ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))) {
		int error = errno;

		ibv_destroy_qp(qp);
		errno = error;
		return NULL;
	}
	return qp;
}

/* Connects a queue pair. The first packet from the peer has PSN 0, ours has `psn`. */
int shim_rc_connect(struct ibv_qp *qp, const struct rc_peer *peer)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR, .path_mtu = peer->mtu, .dest_qp_num = peer->qpn, .max_dest_rd_atomic = 1,
		.min_rnr_timer = 12, .ah_attr = { .dlid = peer->lid, .sl = peer->sl, .port_num = 1 },
		.sq_psn = peer->psn, .timeout = peer->timeout, .retry_cnt = peer->retries, .rnr_retry = 7,
		.max_rd_atomic = peer->reads,
	};
	int error = ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				  IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);

	if (error)
		return -error;
	attr.qp_state = IBV_QPS_RTS;
	return -ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			      IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

/* Ends the connection of a queue pair: all its work requests are flushed. */
int shim_rc_end(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };

	return -ibv_modify_qp(qp, &attr, IBV_QP_STATE);
}

void shim_rc_free(struct ibv_qp *qp)
{
	ibv_destroy_qp(qp);
}

uint32_t shim_qpn(struct ibv_qp *qp)
{
	return qp->qp_num;
}

/* Creates a queue pair at port 1 for `depth` management datagrams in each direction. */
struct ibv_qp *shim_gsi(struct ibv_pd *pd, struct ibv_cq *cq, uint32_t depth)
{
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_UD, .send_cq = cq, .recv_cq = cq,
		.cap = { .max_send_wr = depth, .max_recv_wr = depth, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = gsi_qkey };
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	int error;

	if (!qp)
		return NULL;
	error = ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
	attr.qp_state = IBV_QPS_RTR;
	if (!error)
		error = ibv_modify_qp(qp, &attr, IBV_QP_STATE);
	attr.qp_state = IBV_QPS_RTS;
	if (!error)
		error = ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN);
	if (!error)
		return qp;
	ibv_destroy_qp(qp);
	errno = error;
	return NULL;
}

/*
 * Polls for a datagram. Returns 1, 0 if there is none, or a negative errno. For a receive (an id below `receives`)
 * stores an address handle of the sender. The received buffer, buffers[id], starts with the GRH.
 */
int shim_datagram(struct ibv_cq *cq, struct ibv_pd *pd, void *const *buffers, uint64_t receives, struct datagram *out)
{
	struct ibv_wc wc;
	int n = ibv_poll_cq(cq, 1, &wc);

	if (n <= 0)
		return n;
	*out = (struct datagram){ .id = wc.wr_id };
	if (wc.wr_id >= receives)
		return 1;
	if (wc.status != IBV_WC_SUCCESS)
		return -EIO;
	out->qpn = wc.src_qp;
	out->back = ibv_create_ah_from_wc(pd, &wc, buffers[wc.wr_id], 1);
	return out->back ? 1 : -errno;
}

/* Sends a datagram to a queue pair. */
int shim_datagram_send(struct ibv_qp *qp, uint64_t wr_id, void *memory, uint32_t len, uint32_t lkey, struct ibv_ah *to,
		       uint32_t qpn)
{
	struct ibv_sge sge = { (uintptr_t)memory, len, lkey };
	struct ibv_send_wr wr = {
		.wr_id = wr_id, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED,
		.wr.ud = { .ah = to, .remote_qpn = qpn, .remote_qkey = gsi_qkey },
	}, *bad;

	return -ibv_post_send(qp, &wr, &bad);
}

void shim_ah_free(struct ibv_ah *ah)
{
	ibv_destroy_ah(ah);
}
