// SPDX-License-Identifier: GPL-2.0
/*
 * user-verbs COMMAND DEVICE PEER: a process with both ends of a connection, over libibverbs.
 *
 * access            tries permitted and forbidden accesses; prints `good N, refused N`
 * takeback ROUNDS   deregisters and reuses memory while the peer writes to it; prints `writes N`
 * write             prints `writing`, and writes to the peer's memory; prints why that ends: `gone` (DEVICE is
 *                   removed) or `lost` (the peer is)
 */
#include <errno.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096, SIZE = 16 * PAGE, LARGE = 1 << 20, LEN = 64, FROM = 100, DEPTH = 16, QKEY = 0x1234, GRH = 40 };
enum { READ = IBV_ACCESS_REMOTE_READ, WRITE = IBV_ACCESS_REMOTE_WRITE, LOCAL = IBV_ACCESS_LOCAL_WRITE, ALL = READ | WRITE | LOCAL };
/* The key of all memory, which is reserved for the kernel. */
static const uint32_t all_memory = 0xffffff00;

struct end {
	struct ibv_context *ctx;
	/* `other` is a protection domain with one memory region only. */
	struct ibv_pd *pd, *other;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	uint8_t *memory;
	uint16_t lid;
};

static struct end a, b;

static void die(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	printf("\n");
	exit(1);
}

#define must(what) ({ __typeof__(what) got = (what); if (!got) die("%s: %s", #what, strerror(errno)); got; })
#define done(what) do { int error = (what); if (error) die("%s: %s", #what, strerror(error)); } while (0)

static void *pages(size_t size, int rights)
{
	void *at = mmap(NULL, size, rights, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED)
		die("mmap: %s", strerror(errno));
	return at;
}

static struct ibv_qp *queue_pair(struct end *e, enum ibv_qp_type type)
{
	struct ibv_qp_init_attr init = {
		.send_cq = e->cq, .recv_cq = e->cq, .qp_type = type, .sq_sig_all = 1,
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 2, .max_recv_sge = 2 },
	};

	return must(ibv_create_qp(e->pd, &init));
}

static void open_end(struct end *e, const char *name)
{
	struct ibv_device **list = must(ibv_get_device_list(NULL)), **d = list;

	while (*d && strcmp(ibv_get_device_name(*d), name))
		d++;
	if (!*d)
		die("%s: no such device", name);
	e->ctx = must(ibv_open_device(*d));
	ibv_free_device_list(list);
	struct ibv_port_attr port;

	done(ibv_query_port(e->ctx, 1, &port));
	e->lid = port.lid;
	e->pd = must(ibv_alloc_pd(e->ctx));
	e->other = must(ibv_alloc_pd(e->ctx));
	e->channel = must(ibv_create_comp_channel(e->ctx));
	e->cq = must(ibv_create_cq(e->ctx, 4 * DEPTH, NULL, e->channel, 0));
	e->qp = queue_pair(e, IBV_QPT_RC);
	e->memory = pages(SIZE, PROT_READ | PROT_WRITE);
}

static bool readable(int fd, int ms)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, ms) == 1;
}

/* Returns the next event within `ms` milliseconds, or -1. */
static int event(struct end *e, int ms)
{
	struct ibv_async_event event;

	if (!readable(e->ctx->async_fd, ms) || ibv_get_async_event(e->ctx, &event))
		return -1;
	ibv_ack_async_event(&event);
	return event.event_type;
}

/* Waits for an event of this kind, at most 5 s for each event. Skips all others. */
static bool told(struct end *e, int kind)
{
	int got;

	while ((got = event(e, 5000)) >= 0)
		if (got == kind)
			return true;
	return false;
}

static void to_reset(struct end *e)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };

	done(ibv_modify_qp(e->qp, &attr, IBV_QP_STATE));
	while (event(e, 0) >= 0)
		;
}

static void to_ready(struct end *e, const struct end *peer, int rights)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = rights,
		.path_mtu = IBV_MTU_4096, .dest_qp_num = peer->qp->qp_num, .max_dest_rd_atomic = 1, .min_rnr_timer = 1,
		.ah_attr = { .dlid = peer->lid, .port_num = 1 },
		.timeout = 10, .retry_cnt = 2, .rnr_retry = 7, .max_rd_atomic = 1,
	};

	done(ibv_modify_qp(e->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	attr.qp_state = IBV_QPS_RTR;
	done(ibv_modify_qp(e->qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			   IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	attr.qp_state = IBV_QPS_RTS;
	done(ibv_modify_qp(e->qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
			   IBV_QP_MAX_QP_RD_ATOMIC));
}

/* Reconnects both ends. The peer grants `rights`. */
static void connect_ends(int rights)
{
	to_reset(&a);
	to_reset(&b);
	to_ready(&b, &a, rights);
	to_ready(&a, &b, 0);
}

/* Returns the next completion. Waits for an event of the channel if there is none yet. */
static struct ibv_wc completion(struct end *e)
{
	struct ibv_wc wc;
	struct ibv_cq *cq;
	void *context;
	int n;

	while (!(n = ibv_poll_cq(e->cq, 1, &wc))) {
		done(ibv_req_notify_cq(e->cq, 0));
		n = ibv_poll_cq(e->cq, 1, &wc);
		if (n)
			break;
		if (!readable(e->channel->fd, 5000))
			die("no completion");
		if (ibv_get_cq_event(e->channel, &cq, &context))
			die("ibv_get_cq_event: %s", strerror(errno));
		ibv_ack_cq_events(cq, 1);
	}
	if (n < 0)
		die("ibv_poll_cq: %d", n);
	return wc;
}

static void completes(struct end *e, const char *what, enum ibv_wc_status wanted)
{
	struct ibv_wc wc = completion(e);

	if (wc.status != wanted)
		die("%s: %s, wanted %s", what, ibv_wc_status_str(wc.status), ibv_wc_status_str(wanted));
}

static void receive(struct ibv_qp *qp, uint8_t *at, uint32_t len, uint32_t key)
{
	struct ibv_sge sge = { (uintptr_t)at, len, key };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;

	done(ibv_post_recv(qp, &wr, &bad));
}

/* A send request of `a` with a single data segment. */
struct request {
	enum ibv_wr_opcode opcode;
	uint8_t *at;
	uint32_t key;
	/* Memory of the peer and its key, which is also the key to be invalidated. */
	uint8_t *to;
	uint32_t rkey;
};

static int post(const struct request *r, uint32_t len, int flags)
{
	struct ibv_sge sge = { (uintptr_t)r->at, len, r->key };
	struct ibv_send_wr wr = {
		.opcode = r->opcode, .sg_list = &sge, .num_sge = 1, .send_flags = flags,
		.wr.rdma = { .remote_addr = (uintptr_t)r->to, .rkey = r->rkey },
	}, *bad;

	if (r->opcode == IBV_WR_SEND_WITH_INV)
		wr.invalidate_rkey = r->rkey;
	return ibv_post_send(a.qp, &wr, &bad);
}

static void fill(void)
{
	for (int i = 0; i < SIZE; i++) {
		a.memory[i] = i * 7 + 1;
		b.memory[i] = i * 5 + 2;
	}
}

static uint8_t before[2][SIZE];
static int good, bad;

/* Checks that a request is refused, changes no memory, and leaves the queue pair in error. */
static void refuses(const char *what, struct request r, int rights, enum ibv_wc_status wanted)
{
	connect_ends(rights);
	fill();
	memcpy(before[0], a.memory, SIZE);
	memcpy(before[1], b.memory, SIZE);
	done(post(&r, LEN, 0));
	completes(&a, what, wanted);
	if (memcmp(before[0], a.memory, SIZE) || memcmp(before[1], b.memory, SIZE))
		die("%s: memory was changed", what);
	if (wanted == IBV_WC_REM_ACCESS_ERR && !told(&b, IBV_EVENT_QP_ACCESS_ERR))
		die("%s: no event at the peer", what);
	done(post(&r, LEN, 0));
	completes(&a, what, IBV_WC_WR_FLUSH_ERR);
	bad++;
}

/* Checks that a message fails if the memory for it does not permit receiving. */
static void refuses_to_receive(const char *what, struct request r, uint8_t *at, uint32_t key)
{
	connect_ends(ALL);
	fill();
	memcpy(before[1], b.memory, SIZE);
	receive(b.qp, at, LEN, key);
	done(post(&r, LEN, 0));
	completes(&a, what, IBV_WC_REM_OP_ERR);
	completes(&b, what, IBV_WC_LOC_PROT_ERR);
	if (memcmp(before[1], b.memory, SIZE))
		die("%s: memory was changed", what);
	bad++;
}

static void is_same(const char *what, const uint8_t *to, const uint8_t *from)
{
	if (memcmp(to, from, LEN))
		die("%s: other bytes have come", what);
	good++;
}

static void cannot_register(const char *what, void *at, size_t len, int rights, int wanted)
{
	errno = 0;
	if (ibv_reg_mr(a.pd, at, len, rights) || errno != wanted)
		die("%s is registered, or refused with '%s'", what, strerror(errno));
	bad++;
}

static void registrations(void)
{
	uint8_t *hole = pages(2 * PAGE, PROT_READ | PROT_WRITE), *constant = pages(PAGE, PROT_READ);

	munmap(hole + PAGE, PAGE);
	cannot_register("memory that is not there", hole, 2 * PAGE, LOCAL, EFAULT);
	cannot_register("memory that is only read", constant, PAGE, LOCAL, EFAULT);
	cannot_register("REMOTE_WRITE without LOCAL_WRITE", hole, PAGE, WRITE, EINVAL);
	cannot_register("atomic access", hole, PAGE, LOCAL | IBV_ACCESS_REMOTE_ATOMIC, EOPNOTSUPP);
	cannot_register("nothing", hole, 0, LOCAL, EINVAL);
}

static void connections(void)
{
	struct ibv_mr *own = must(ibv_reg_mr(a.pd, a.memory + FROM, SIZE - FROM, ALL));
	struct ibv_mr *own_constant = must(ibv_reg_mr(a.pd, a.memory, SIZE, 0));
	struct ibv_mr *own_other = must(ibv_reg_mr(a.other, a.memory, SIZE, ALL));
	struct ibv_mr *all = must(ibv_reg_mr(b.pd, b.memory + FROM, SIZE - FROM, ALL));
	struct ibv_mr *only_read = must(ibv_reg_mr(b.pd, b.memory, SIZE, READ));
	struct ibv_mr *only_written = must(ibv_reg_mr(b.pd, b.memory, SIZE, LOCAL | WRITE));
	struct ibv_mr *only_local = must(ibv_reg_mr(b.pd, b.memory, SIZE, LOCAL));
	struct ibv_mr *other = must(ibv_reg_mr(b.other, b.memory, SIZE, ALL));
	uint32_t gone = all->rkey;
	uint8_t *at = a.memory + PAGE - 10, *to = b.memory + 2 * PAGE - 20, *end = b.memory + SIZE;
	struct request send = { IBV_WR_SEND, at, own->lkey, NULL, 0 };
	struct request inv = { IBV_WR_SEND_WITH_INV, at, own->lkey, NULL, all->rkey };
	struct request write = { IBV_WR_RDMA_WRITE, at, own->lkey, to, all->rkey };
	struct request read = { IBV_WR_RDMA_READ, at, own->lkey, to, all->rkey };
	struct request r;

	connect_ends(ALL);
	fill();
	receive(b.qp, to, LEN, all->lkey);
	done(post(&send, LEN, 0));
	completes(&a, "send", IBV_WC_SUCCESS);
	completes(&b, "send", IBV_WC_SUCCESS);
	is_same("send", to, at);
	fill();
	done(post(&write, LEN, 0));
	completes(&a, "write", IBV_WC_SUCCESS);
	is_same("write", to, at);
	fill();
	done(post(&read, LEN, 0));
	completes(&a, "read", IBV_WC_SUCCESS);
	is_same("read", at, to);
	/* A whole region, and sending from a read-only one. */
	r = (struct request){ IBV_WR_RDMA_WRITE, a.memory + FROM, own_constant->lkey, b.memory + FROM, all->rkey };
	fill();
	done(post(&r, SIZE - FROM, 0));
	completes(&a, "write of all", IBV_WC_SUCCESS);
	is_same("write of all", end - LEN, a.memory + SIZE - LEN);
	if (!post(&send, LEN, IBV_SEND_INLINE))
		die("inline data is taken");
	bad++;

#define remote(what, base, rights, ...) do { \
		r = (base); \
		__VA_ARGS__; \
		refuses(what, r, rights, IBV_WC_REM_ACCESS_ERR); \
	} while (0)
	remote("write with another variant of the key", write, ALL, r.rkey ^= 1);
	remote("write with another key", write, ALL, r.rkey ^= 0x100);
	remote("read with a key far away", read, ALL, r.rkey ^= 0x40000000);
	remote("write with the key of all memory", write, ALL, r.rkey = all_memory);
	remote("read with the key of all memory", read, ALL, r.rkey = all_memory);
	remote("write before the beginning", write, ALL, r.to = b.memory + FROM - 1);
	remote("write beyond the end", write, ALL, r.to = end - LEN + 1);
	remote("read behind the end", read, ALL, r.to = end);
	remote("read at the end of all", read, ALL, r.to = (uint8_t *)-8);
	remote("write to what may be read", write, ALL, r.rkey = only_read->rkey);
	remote("read of what may be written", read, ALL, r.rkey = only_written->rkey);
	remote("write to what is local", write, ALL, r.rkey = only_local->rkey);
	remote("read of what is local", read, ALL, r.rkey = only_local->rkey);
	remote("write to another domain", write, ALL, r.rkey = other->rkey);
	remote("read of another domain", read, ALL, r.rkey = other->rkey);
	remote("write at a queue pair that grants reads", write, READ | LOCAL, );
	remote("read at a queue pair that grants writes", read, WRITE | LOCAL, );

#define local(what, base, ...) do { \
		r = (base); \
		__VA_ARGS__; \
		refuses(what, r, ALL, IBV_WC_LOC_PROT_ERR); \
	} while (0)
	local("write from all memory", write, r.key = all_memory);
	local("read to all memory", read, r.key = all_memory);
	local("write with another key of one's own", write, r.key ^= 0x200);
	local("write from another domain", write, r.key = own_other->lkey);
	local("write from beyond the end", write, r.at = a.memory + SIZE - LEN + 1);
	local("write from before the beginning", write, r.at = a.memory + FROM - 1);
	local("read to what is only read", read, r.key = own_constant->lkey);

	refuses_to_receive("receive to all memory", send, to, all_memory);
	refuses_to_receive("receive to what is only read", send, to, only_read->lkey);
	refuses_to_receive("receive to another domain", send, to, other->lkey);
	refuses_to_receive("receive beyond the end", send, end - LEN + 1, all->lkey);

	/* A message cannot invalidate a region of a process. */
	connect_ends(ALL);
	receive(b.qp, to, LEN, all->lkey);
	done(post(&inv, LEN, 0));
	completes(&a, "invalidation by the peer", IBV_WC_REM_ACCESS_ERR);
	completes(&b, "invalidation by the peer", IBV_WC_WR_FLUSH_ERR);
	bad++;
	connect_ends(ALL);
	done(post(&write, LEN, 0));
	completes(&a, "write after that", IBV_WC_SUCCESS);
	good++;

	done(ibv_dereg_mr(all));
	remote("write to what is deregistered", write, ALL, r.rkey = gone);
	remote("read of what is deregistered", read, ALL, r.rkey = gone);
}

static struct ibv_qp *datagram_pair(struct end *e)
{
	struct ibv_qp *qp = queue_pair(e, IBV_QPT_UD);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY };

	done(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY));
	attr.qp_state = IBV_QPS_RTR;
	done(ibv_modify_qp(qp, &attr, IBV_QP_STATE));
	attr.qp_state = IBV_QPS_RTS;
	done(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN));
	return qp;
}

static void datagrams(void)
{
	struct ibv_qp *from = datagram_pair(&a), *to = datagram_pair(&b);
	struct ibv_mr *own = must(ibv_reg_mr(a.pd, a.memory, SIZE, 0)), *theirs = must(ibv_reg_mr(b.pd, b.memory, SIZE, LOCAL));
	struct ibv_ah_attr way = { .dlid = b.lid, .port_num = 1 };
	struct ibv_ah *ah = must(ibv_create_ah(a.pd, &way));
	struct ibv_sge sge = { (uintptr_t)a.memory, LEN, own->lkey };
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND, .sg_list = &sge, .num_sge = 1 }, *refused;
	struct ibv_wc wc;

	fill();
	receive(to, b.memory, GRH + LEN, theirs->lkey);
	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = to->qp_num;
	/* With a wrong Q_Key the datagram is sent and dropped. */
	for (int wrong = 1; wrong >= 0; wrong--) {
		wr.wr.ud.remote_qkey = QKEY + wrong;
		done(ibv_post_send(from, &wr, &refused));
		completes(&a, "datagram", IBV_WC_SUCCESS);
		if (wrong && ibv_poll_cq(b.cq, 1, &wc))
			die("a datagram with a wrong key has come");
	}
	wc = completion(&b);
	if (wc.status || wc.byte_len != GRH + LEN || wc.src_qp != from->qp_num || wc.slid != a.lid)
		die("a datagram of %u bytes from %u at %u: %s", wc.byte_len, wc.src_qp, wc.slid, ibv_wc_status_str(wc.status));
	is_same("datagram", b.memory + GRH, a.memory);
	bad++;
	/* The sent data is checked too. */
	sge.lkey = all_memory;
	wr.wr.ud.remote_qkey = QKEY;
	receive(to, b.memory, GRH + LEN, theirs->lkey);
	done(ibv_post_send(from, &wr, &refused));
	completes(&a, "datagram of all memory", IBV_WC_LOC_PROT_ERR);
	if (ibv_poll_cq(b.cq, 1, &wc))
		die("a datagram of all memory has come");
	bad++;
	done(ibv_destroy_qp(from));
	done(ibv_destroy_qp(to));
	done(ibv_destroy_ah(ah));
}

static struct request large;
static unsigned long writes;

/* Writes until a write is refused. */
static void *writer(void *unused)
{
	struct ibv_wc wc = { 0 };

	(void)unused;
	for (;; __atomic_add_fetch(&writes, 1, __ATOMIC_SEQ_CST)) {
		done(post(&large, LARGE, 0));
		while (!ibv_poll_cq(a.cq, 1, &wc))
			;
		if (wc.status)
			break;
	}
	if (wc.status != IBV_WC_REM_ACCESS_ERR)
		die("writes end with %s", ibv_wc_status_str(wc.status));
	return NULL;
}

static void takeback(int rounds)
{
	uint8_t *from = pages(LARGE, PROT_READ | PROT_WRITE), *to = pages(LARGE, PROT_READ | PROT_WRITE), *last = to + LARGE - PAGE;
	struct ibv_mr *own, *lent;
	pthread_t thread;

	memset(from, 0xa5, LARGE);
	own = must(ibv_reg_mr(a.pd, from, LARGE, 0));
	for (int i = 0; i < rounds; i++) {
		unsigned long had = writes;

		lent = must(ibv_reg_mr(b.pd, to, LARGE, ALL));
		connect_ends(ALL);
		large = (struct request){ IBV_WR_RDMA_WRITE, from, own->lkey, to, lent->rkey };
		done(pthread_create(&thread, NULL, writer, NULL));
		while (__atomic_load_n(&writes, __ATOMIC_SEQ_CST) == had)
			;
		usleep(i * 37 % 400);
		done(ibv_dereg_mr(lent));
		memset(last, 0x11, PAGE);
		done(pthread_join(thread, NULL));
		for (int n = 0; n < PAGE; n++)
			if (last[n] != 0x11)
				die("round %d: byte %d is written after the deregistration", i, n);
	}
	printf("writes %lu\n", writes);
}

static void write_on(void)
{
	struct ibv_mr *own = must(ibv_reg_mr(a.pd, a.memory, SIZE, LOCAL)), *lent = must(ibv_reg_mr(b.pd, b.memory, SIZE, ALL));
	struct request r = { IBV_WR_RDMA_WRITE, a.memory, own->lkey, b.memory, lent->rkey };
	struct ibv_wc wc = { 0 };
	int n = 1;

	connect_ends(ALL);
	printf("writing\n");
	while (n > 0 && !wc.status && !post(&r, SIZE, 0))
		while (!(n = ibv_poll_cq(a.cq, 1, &wc)))
			;
	/* The peer's region may be freed before its queue pair, and the peer removed before DEVICE. */
	if (told(&a, IBV_EVENT_DEVICE_FATAL))
		printf("gone\n");
	else if (n > 0 && (wc.status == IBV_WC_RETRY_EXC_ERR || wc.status == IBV_WC_REM_ACCESS_ERR))
		printf("lost\n");
	else
		die("%d completions, %s", n, ibv_wc_status_str(wc.status));
}

int main(int argc, char **argv)
{
	if (argc < 4)
		die("what?");
	setvbuf(stdout, NULL, _IOLBF, 0);
	open_end(&a, argv[2]);
	open_end(&b, argv[3]);
	if (!strcmp(argv[1], "access")) {
		registrations();
		connections();
		datagrams();
		printf("good %d, refused %d\n", good, bad);
	} else if (!strcmp(argv[1], "takeback") && argc == 5) {
		takeback(atoi(argv[4]));
	} else if (!strcmp(argv[1], "write")) {
		write_on();
	} else {
		die("what?");
	}
	return 0;
}
