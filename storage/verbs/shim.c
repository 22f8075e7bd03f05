// SPDX-License-Identifier: GPL-2.0
/*
 * Wrappers of the functions of rdma-core and the C library that src/ calls. Their structures stay in C, so that Rust
 * needs no bindings. Functions return 0 or a pointer, and on failure a negative errno or NULL with errno set.
 */
#define _GNU_SOURCE
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/file.h>
#include <sys/signalfd.h>
#include <unistd.h>

/* Keep in sync with src/cm.rs and src/ffi.rs. */
enum { CM_REQUEST, CM_ESTABLISHED, CM_ENDED, CM_ADDRESS, CM_ROUTE, CM_OTHER };
struct cm_event {
	struct rdma_cm_id *id;
	struct rdma_cm_id *listener;
	uint32_t what;
	uint32_t len;
	uint32_t depth;
	uint8_t data[256];
};
struct completion {
	uint64_t id;
	uint32_t status;
	uint32_t len;
};
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

static int result(int ret)
{
	return ret ? -errno : 0;
}

static int nonblock(int fd)
{
	return fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

struct rdma_event_channel *shim_events(void)
{
	struct rdma_event_channel *events = rdma_create_event_channel();

	if (events && nonblock(events->fd)) {
		rdma_destroy_event_channel(events);
		return NULL;
	}
	return events;
}

int shim_events_fd(struct rdma_event_channel *events)
{
	return events->fd;
}

void shim_events_free(struct rdma_event_channel *events)
{
	rdma_destroy_event_channel(events);
}

/* Listens with a backlog of n if the flags contain RAI_PASSIVE; else resolves the address within n ms. */
static struct rdma_cm_id *create(struct rdma_event_channel *events, const char *address, const char *port, int flags, int n)
{
	struct rdma_addrinfo hints = { .ai_flags = flags, .ai_port_space = RDMA_PS_TCP }, *info;
	struct rdma_cm_id *id;
	int error;

	if (rdma_getaddrinfo(address, port, &hints, &info)) {
		errno = EADDRNOTAVAIL;
		return NULL;
	}
	if (rdma_create_id(events, &id, NULL, RDMA_PS_TCP)) {
		id = NULL;
	} else if (flags & RAI_PASSIVE ? rdma_bind_addr(id, info->ai_src_addr) || rdma_listen(id, n) :
					 rdma_resolve_addr(id, info->ai_src_addr, info->ai_dst_addr, n)) {
		error = errno;
		rdma_destroy_id(id);
		id = NULL;
		errno = error;
	}
	error = errno;
	rdma_freeaddrinfo(info);
	errno = error;
	return id;
}

struct rdma_cm_id *shim_listen(struct rdma_event_channel *events, const char *address, const char *port, int backlog)
{
	return create(events, address, port, RAI_PASSIVE, backlog);
}

/* Starts address resolution; CM_ADDRESS follows. */
struct rdma_cm_id *shim_resolve(struct rdma_event_channel *events, const char *address, const char *port, int ms)
{
	return create(events, address, port, 0, ms);
}

/* Starts route resolution; CM_ROUTE follows. */
int shim_route(struct rdma_cm_id *id, int ms)
{
	return result(rdma_resolve_route(id, ms));
}

/* Connects. The peer may issue as many RDMA READs at once as the device supports. */
int shim_connect(struct rdma_cm_id *id, const void *data, uint8_t len)
{
	struct rdma_conn_param param = {
		.private_data = data, .private_data_len = len, .responder_resources = RDMA_MAX_RESP_RES,
		.retry_count = 7, .rnr_retry_count = 7,
	};

	return result(rdma_connect(id, &param));
}

/* Copies the next event. Returns -EAGAIN if there is none. */
int shim_next(struct rdma_event_channel *events, struct cm_event *out)
{
	struct rdma_cm_event *event;

	if (rdma_get_cm_event(events, &event))
		return -errno;
	memset(out, 0, sizeof(*out));
	out->id = event->id;
	switch (event->event) {
	case RDMA_CM_EVENT_CONNECT_REQUEST:
		out->what = CM_REQUEST;
		out->listener = event->listen_id;
		out->depth = event->param.conn.initiator_depth;
		out->len = event->param.conn.private_data_len;
		if (out->len > sizeof(out->data))
			out->len = sizeof(out->data);
		if (out->len)
			memcpy(out->data, event->param.conn.private_data, out->len);
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
		out->what = CM_ESTABLISHED;
		break;
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		out->what = CM_ADDRESS;
		break;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		out->what = CM_ROUTE;
		break;
	case RDMA_CM_EVENT_ADDR_ERROR:
	case RDMA_CM_EVENT_ROUTE_ERROR:
	case RDMA_CM_EVENT_DISCONNECTED:
	case RDMA_CM_EVENT_CONNECT_ERROR:
	case RDMA_CM_EVENT_UNREACHABLE:
	case RDMA_CM_EVENT_REJECTED:
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		out->what = CM_ENDED;
		break;
	default:
		out->what = CM_OTHER;
	}
	rdma_ack_cm_event(event);
	return 0;
}

/* Returns the device of a connection. librdmacm has one context per device, shared by all connections. */
struct ibv_context *shim_device(struct rdma_cm_id *id)
{
	return id->verbs;
}

int shim_accept(struct rdma_cm_id *id, const void *data, uint8_t len, uint8_t depth)
{
	struct rdma_conn_param param = {
		.private_data = data, .private_data_len = len, .initiator_depth = depth, .rnr_retry_count = 7,
	};

	return result(rdma_accept(id, &param));
}

int shim_reject(struct rdma_cm_id *id, const void *data, uint8_t len)
{
	return result(rdma_reject(id, data, len));
}

int shim_disconnect(struct rdma_cm_id *id)
{
	return result(rdma_disconnect(id));
}

void shim_id_free(struct rdma_cm_id *id)
{
	rdma_destroy_id(id);
}

struct ibv_pd *shim_pd(struct ibv_context *device)
{
	return ibv_alloc_pd(device);
}

void shim_pd_free(struct ibv_pd *pd)
{
	ibv_dealloc_pd(pd);
}

struct ibv_comp_channel *shim_wakeups(struct ibv_context *device)
{
	struct ibv_comp_channel *wakeups = ibv_create_comp_channel(device);

	if (wakeups && nonblock(wakeups->fd)) {
		ibv_destroy_comp_channel(wakeups);
		return NULL;
	}
	return wakeups;
}

int shim_wakeups_fd(struct ibv_comp_channel *wakeups)
{
	return wakeups->fd;
}

void shim_wakeups_free(struct ibv_comp_channel *wakeups)
{
	ibv_destroy_comp_channel(wakeups);
}

/* Stores the token of the next queue with completions. Returns -EAGAIN if there is none. */
int shim_wakeup(struct ibv_comp_channel *wakeups, uint64_t *token)
{
	struct ibv_cq *cq;
	void *context;

	if (ibv_get_cq_event(wakeups, &cq, &context))
		return -errno;
	*token = (uintptr_t)context;
	ibv_ack_cq_events(cq, 1);
	return 0;
}

/*
 * Access to memory on a device of a transport. `remote`: peers may read and write it. The sink of an RDMA READ of
 * iWARP is written by the peer.
 */
int shim_access(int transport, int remote)
{
	int access = IBV_ACCESS_LOCAL_WRITE;

	if (remote || transport == IBV_TRANSPORT_IWARP)
		access |= IBV_ACCESS_REMOTE_WRITE;
	if (remote)
		access |= IBV_ACCESS_REMOTE_READ;
	return access;
}

/* Registers memory. `remote`: peers may read and write the memory. */
struct ibv_mr *shim_register(struct ibv_pd *pd, void *memory, size_t len, int remote)
{
	return ibv_reg_mr(pd, memory, len, shim_access(pd->context->device->transport_type, remote));
}

uint32_t shim_lkey(struct ibv_mr *mr)
{
	return mr->lkey;
}

uint32_t shim_rkey(struct ibv_mr *mr)
{
	return mr->rkey;
}

void shim_deregister(struct ibv_mr *mr)
{
	ibv_dereg_mr(mr);
}

struct ibv_cq *shim_cq(struct ibv_context *device, struct ibv_comp_channel *wakeups, int entries, uint64_t token)
{
	return ibv_create_cq(device, entries, (void *)(uintptr_t)token, wakeups, 0);
}

int shim_arm(struct ibv_cq *cq)
{
	return -ibv_req_notify_cq(cq, 0);
}

int shim_poll(struct ibv_cq *cq, struct completion *out)
{
	struct ibv_wc wc;
	int n = ibv_poll_cq(cq, 1, &wc);

	if (n > 0) {
		out->id = wc.wr_id;
		out->status = wc.status;
		out->len = wc.byte_len;
	}
	return n;
}

const char *shim_status(uint32_t status)
{
	return ibv_wc_status_str(status);
}

void shim_cq_free(struct ibv_cq *cq)
{
	ibv_destroy_cq(cq);
}

int shim_qp(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_cq *cq, uint32_t sends, uint32_t receives)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC, .send_cq = cq, .recv_cq = cq,
		.cap = { .max_send_wr = sends, .max_recv_wr = receives, .max_send_sge = 1, .max_recv_sge = 1 },
	};

	return result(rdma_create_qp(id, pd, &attr));
}

struct ibv_qp *shim_qp_of(struct rdma_cm_id *id)
{
	return id->qp;
}

void shim_qp_free(struct rdma_cm_id *id)
{
	rdma_destroy_qp(id);
}

/* Opens the device with this name. Returns NULL with errno ENODEV if there is none. */
struct ibv_context *shim_open(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL), **d = list;
	struct ibv_context *device = NULL;
	int error;

	if (!list)
		return NULL;
	while (*d && strcmp(ibv_get_device_name(*d), name))
		d++;
	errno = ENODEV;
	if (*d)
		device = ibv_open_device(*d);
	error = errno;
	ibv_free_device_list(list);
	errno = error;
	return device;
}

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

int shim_receive(struct ibv_qp *qp, uint64_t wr_id, void *memory, uint32_t len, uint32_t lkey)
{
	struct ibv_sge sge = { (uintptr_t)memory, len, lkey };
	struct ibv_recv_wr wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = 1 }, *bad;

	return -ibv_post_recv(qp, &wr, &bad);
}

/* op: 0 SEND, 1 RDMA READ, 2 RDMA WRITE. */
int shim_send(struct ibv_qp *qp, uint64_t wr_id, int op, void *memory, uint32_t len, uint32_t lkey, uint64_t va,
	      uint32_t rkey)
{
	static const enum ibv_wr_opcode ops[] = { IBV_WR_SEND, IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE };
	struct ibv_sge sge = { (uintptr_t)memory, len, lkey };
	struct ibv_send_wr wr = {
		.wr_id = wr_id, .sg_list = &sge, .num_sge = 1, .opcode = ops[op], .send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { .remote_addr = va, .rkey = rkey },
	}, *bad;

	return -ibv_post_send(qp, &wr, &bad);
}

/* Blocks SIGTERM and SIGINT, which are then read from the returned descriptor. */
int shim_signals(void)
{
	sigset_t set;
	int fd;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	errno = pthread_sigmask(SIG_BLOCK, &set, NULL);
	if (errno)
		return -errno;
	fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

/* Waits until a descriptor is readable. */
int shim_wait(const int *fds, uint8_t *ready, uint32_t n, int ms)
{
	struct pollfd poll_fds[64];
	uint32_t i;

	if (n > 64)
		return -EINVAL;
	for (i = 0; i < n; i++)
		poll_fds[i] = (struct pollfd){ .fd = fds[i], .events = POLLIN };
	if (poll(poll_fds, n, ms) < 0)
		return -errno;
	for (i = 0; i < n; i++)
		ready[i] = poll_fds[i].revents != 0;
	return 0;
}

/* Zeroes a range and frees its space. */
int shim_punch(int fd, uint64_t at, uint64_t len)
{
	return result(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at, len));
}

/* Locks the file until all descriptors of this open file description are closed, or returns -EWOULDBLOCK. */
int shim_lock(int fd)
{
	return result(flock(fd, LOCK_EX | LOCK_NB));
}
