// SPDX-License-Identifier: GPL-2.0
/*
 * Wrappers of the functions of rdma-core and the C library that src/ calls. Their structures stay in C, so that Rust
 * needs no bindings. Functions return 0 or a pointer, and on failure a negative errno or NULL with errno set.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/signalfd.h>
#include <unistd.h>

/* Keep in sync with src/cm.rs, src/memory.rs, src/connection.rs and src/ffi.rs. */
enum { CM_REQUEST, CM_ESTABLISHED, CM_ENDED, CM_ADDRESS, CM_ROUTE, CM_REMOVED, CM_OTHER };
enum { ASYNC_PORT, ASYNC_QP, ASYNC_CQ, ASYNC_FATAL, ASYNC_OTHER };
struct cm_event {
	struct rdma_cm_id *id;
	struct rdma_cm_id *listener;
	uint32_t what;
	uint32_t len;
	uint32_t depth;
	uint8_t data[256];
};
/* A work request. op: 0 SEND, 1 RDMA READ, 2 RDMA WRITE. */
enum { SENDS_AT_ONCE = 32 };
struct send {
	void *memory;
	uint64_t id;
	uint64_t va;
	uint32_t len;
	uint32_t lkey;
	uint32_t rkey;
	uint32_t op;
};
struct completion {
	uint64_t id;
	uint32_t status;
	uint32_t len;
};
struct async_event {
	const char *text;
	uint64_t token;
	uint32_t what;
	uint32_t number;
};
/*
 * Without this, libibverbs fails to destroy, and so leaks, the objects of a device that the kernel has taken away. It
 * reads the variable when it is first used.
 */
__attribute__((constructor)) static void destroy_without_device(void)
{
	setenv("RDMAV_ALLOW_DISASSOC_DESTROY", "1", 1);
}

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

/*
 * Connects. The peer may issue as many RDMA READs at once as the device supports. With iWARP the kernel may wait here
 * for TCP, for minutes.
 */
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
		out->what = CM_ENDED;
		break;
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		out->what = CM_REMOVED;
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

/*
 * Creates an identifier that is bound to the device of another one. librdmacm closes its context of a removed device
 * when the last identifier of the device is destroyed.
 */
/* Later events of the identifier, and those that nothing has read, go to this channel. */
int shim_migrate(struct rdma_cm_id *id, struct rdma_event_channel *events)
{
	return result(rdma_migrate_id(id, events));
}

struct rdma_cm_id *shim_hold(struct rdma_event_channel *events, struct rdma_cm_id *id)
{
	struct sockaddr_storage address = id->route.addr.src_storage;
	struct rdma_cm_id *hold;
	int error = 0;

	/* The port is in the same place in all families. */
	((struct sockaddr_in *)&address)->sin_port = 0;
	if (rdma_create_id(events, &hold, NULL, RDMA_PS_TCP))
		return NULL;
	if (rdma_bind_addr(hold, (struct sockaddr *)&address))
		error = errno;
	else if (hold->verbs != id->verbs)
		error = ENODEV;
	if (!error)
		return hold;
	rdma_destroy_id(hold);
	errno = error;
	return NULL;
}

const char *shim_name(struct ibv_context *device)
{
	return ibv_get_device_name(device->device);
}

/* Returns how many RDMA READs a queue pair of the device issues at once. */
int shim_depth(struct ibv_context *device)
{
	struct ibv_device_attr attr;
	int error = ibv_query_device(device, &attr);

	return error ? -error : attr.max_qp_init_rd_atom;
}

/* Closes a context of shim_open. */
void shim_close(struct ibv_context *device)
{
	ibv_close_device(device);
}

/* Returns the descriptor of the asynchronous events, which does not block. */
int shim_async_fd(struct ibv_context *device)
{
	return nonblock(device->async_fd) ? -errno : device->async_fd;
}

/* Copies the next asynchronous event. Returns -EAGAIN if there is none. */
int shim_async(struct ibv_context *device, struct async_event *out)
{
	struct ibv_async_event event;

	if (ibv_get_async_event(device, &event))
		return -errno;
	*out = (struct async_event){ .what = ASYNC_OTHER, .text = ibv_event_type_str(event.event_type) };
	switch (event.event_type) {
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
		out->what = ASYNC_QP;
		out->number = event.element.qp->qp_num;
		break;
	case IBV_EVENT_CQ_ERR:
		out->what = ASYNC_CQ;
		out->token = (uintptr_t)event.element.cq->cq_context;
		break;
	case IBV_EVENT_DEVICE_FATAL:
		out->what = ASYNC_FATAL;
		break;
	case IBV_EVENT_PORT_ACTIVE:
	case IBV_EVENT_PORT_ERR:
		out->what = ASYNC_PORT;
		out->number = event.element.port_num;
		break;
	default:
		break;
	}
	ibv_ack_async_event(&event);
	return 0;
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

/* Interrupts of an adapter go to the CPU of the vector: connections with different tokens share them out. */
struct ibv_cq *shim_cq(struct ibv_context *device, struct ibv_comp_channel *wakeups, int entries, uint64_t token)
{
	int vectors = device->num_comp_vectors;

	return ibv_create_cq(device, entries, (void *)(uintptr_t)token, wakeups, vectors > 0 ? token % vectors : 0);
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

int shim_receive(struct ibv_qp *qp, uint64_t wr_id, void *memory, uint32_t len, uint32_t lkey)
{
	struct ibv_sge sge = { (uintptr_t)memory, len, lkey };
	struct ibv_recv_wr wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = 1 }, *bad;

	return -ibv_post_recv(qp, &wr, &bad);
}

/* Posts n work requests, at most SENDS_AT_ONCE, by one doorbell. */
int shim_send(struct ibv_qp *qp, const struct send *list, uint32_t n)
{
	static const enum ibv_wr_opcode ops[] = { IBV_WR_SEND, IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE };
	struct ibv_sge sges[SENDS_AT_ONCE];
	struct ibv_send_wr wrs[SENDS_AT_ONCE], *bad;
	uint32_t i;

	if (!n || n > SENDS_AT_ONCE)
		return -EINVAL;
	for (i = 0; i < n; i++) {
		sges[i] = (struct ibv_sge){ (uintptr_t)list[i].memory, list[i].len, list[i].lkey };
		wrs[i] = (struct ibv_send_wr){
			.wr_id = list[i].id, .next = i + 1 < n ? &wrs[i + 1] : NULL, .sg_list = &sges[i], .num_sge = 1,
			.opcode = ops[list[i].op], .send_flags = IBV_SEND_SIGNALED,
			.wr.rdma = { .remote_addr = list[i].va, .rkey = list[i].rkey },
		};
	}
	return -ibv_post_send(qp, wrs, &bad);
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
