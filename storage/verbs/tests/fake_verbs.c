// SPDX-License-Identifier: GPL-2.0
/* The libibverbs of fake.h. */
#include "fake.h"

pthread_mutex_t fake_lock = PTHREAD_MUTEX_INITIALIZER;
struct device *fake_devices[DEVICES];
struct context *fake_contexts[64];
unsigned int fake_count_contexts;
static char misuse[512];

#define KEYS 65536
static struct mr *mrs[KEYS];
static size_t registered, most = SIZE_MAX;
static unsigned int slow_ms;
static int slow_now, slow_most;
static unsigned int next_key = 1;

void fake_wrong(const char *what, const char *how)
{
	if (!misuse[0])
		snprintf(misuse, sizeof(misuse), "%s: %s", what, how);
}

void fake_open_queue(struct queue *q)
{
	if (pipe2(q->fds, O_NONBLOCK | O_CLOEXEC))
		abort();
}

void fake_push(struct queue *q, void *item)
{
	q->items[q->tail++ % DEPTH] = item;
	if (write(q->fds[1], "", 1) != 1)
		abort();
}

/* Closes the completion channels for good: their descriptors stay ready, as those of a removed device do. */
void fake_end_channels(struct context *c)
{
	struct channel *ch;

	for (ch = c->channels; ch; ch = ch->next) {
		close(ch->events.fds[1]);
		ch->events.fds[1] = -1;
	}
}

/* The number of times that a source of events was asked. */
static int asked;

int fake_asked(void)
{
	return asked;
}

void *fake_pull(struct queue *q)
{
	char byte;

	asked++;
	switch (read(q->fds[0], &byte, 1)) {
	case 1:
		return q->items[q->head++ % DEPTH];
	case 0:
		errno = EIO;
	}
	return NULL;
}

struct context *fake_context_of(struct ibv_context *ctx, const char *what)
{
	struct context *c = (struct context *)ctx;

	if (c->closed)
		fake_wrong(what, "its context is closed");
	return c;
}

struct device *fake_make(int number)
{
	struct device *d = calloc(1, sizeof(*d));

	d->number = number;
	d->here = 1;
	snprintf(d->dev.name, sizeof(d->dev.name), "fake%d", number);
	d->dev.transport_type = IBV_TRANSPORT_IB;
	return d;
}

void fake_init(void)
{
	int i;

	for (i = 0; i < DEVICES; i++)
		if (!fake_devices[i])
			fake_devices[i] = fake_make(i);
}

void fake_close_context(struct context *c)
{
	if (c->objects)
		fake_wrong("ibv_close_device", "the context has objects");
	if (c->closed)
		fake_wrong("ibv_close_device", "twice");
	c->closed = 1;
}

static int poll_cq(struct ibv_cq *ibv, int n, struct ibv_wc *wc)
{
	struct cq *cq = (struct cq *)ibv;
	int i;

	pthread_mutex_lock(&fake_lock);
	fake_context_of(ibv->context, "ibv_poll_cq");
	if (cq->freed)
		fake_wrong("ibv_poll_cq", "it is destroyed");
	for (i = 0; i < n && cq->head != cq->tail; i++)
		wc[i] = cq->wcs[cq->head++ % DEPTH];
	pthread_mutex_unlock(&fake_lock);
	return i;
}

static int notify_cq(struct ibv_cq *ibv, int solicited)
{
	struct cq *cq = (struct cq *)ibv;

	(void)solicited;
	pthread_mutex_lock(&fake_lock);
	fake_context_of(ibv->context, "ibv_req_notify_cq");
	cq->armed = 1;
	pthread_mutex_unlock(&fake_lock);
	return 0;
}

static void complete(struct ibv_cq *ibv, struct ibv_wc wc)
{
	struct cq *cq = (struct cq *)ibv;
	struct channel *ch = (struct channel *)ibv->channel;

	if (!((struct context *)ibv->context)->device->here)
		return;
	cq->wcs[cq->tail++ % DEPTH] = wc;
	if (cq->armed)
		fake_push(&ch->events, cq);
	cq->armed = 0;
}

/* Checks that a piece of memory is registered in the domain of the queue pair. */
static void check_key(struct ibv_qp *ibv, struct ibv_sge *sge, const char *what)
{
	struct mr *mr = sge->lkey < KEYS ? mrs[sge->lkey] : NULL;

	if (!mr || mr->freed)
		fake_wrong(what, "the key is of no region");
	else if (mr->mr.pd != ibv->pd)
		fake_wrong(what, "the key is of another domain");
}

static int post_recv(struct ibv_qp *ibv, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct qp *qp = (struct qp *)ibv;

	(void)bad;
	pthread_mutex_lock(&fake_lock);
	fake_context_of(ibv->context, "ibv_post_recv");
	check_key(ibv, wr->sg_list, "ibv_post_recv");
	qp->sges[qp->tail % DEPTH] = *wr->sg_list;
	qp->receives[qp->tail++ % DEPTH] = *wr;
	pthread_mutex_unlock(&fake_lock);
	return 0;
}

/* The number of calls of ibv_post_send(). */
static int doorbells;

int fake_doorbells(void)
{
	return doorbells;
}

/* The completion of the last RDMA READ, while READs complete late. */
static struct ibv_wc late;
static struct ibv_cq *late_cq;
static int late_reads;

/* With 1, an RDMA READ completes after what is posted later, as on siw; with 0, the one that waits does. */
void fake_late_reads(int on)
{
	pthread_mutex_lock(&fake_lock);
	late_reads = on;
	if (!on && late_cq)
		complete(late_cq, late);
	late_cq = NULL;
	pthread_mutex_unlock(&fake_lock);
}

/* Moves the data of an RDMA operation if the memory of its peer is registered. */
static void move_data(struct ibv_send_wr *wr)
{
	struct mr *mr = wr->wr.rdma.rkey < KEYS ? mrs[wr->wr.rdma.rkey] : NULL;
	uint64_t from = mr ? wr->wr.rdma.remote_addr - (uintptr_t)mr->mr.addr : 0;
	void *here = (void *)(uintptr_t)wr->sg_list->addr, *there;

	if (!mr || mr->freed || from > mr->mr.length || wr->sg_list->length > mr->mr.length - from)
		return;
	there = (char *)mr->mr.addr + from;
	if (wr->opcode == IBV_WR_RDMA_READ)
		memcpy(here, there, wr->sg_list->length);
	else
		memcpy(there, here, wr->sg_list->length);
}

static void send_one(struct ibv_qp *ibv, struct ibv_send_wr *wr)
{
	struct qp *qp = (struct qp *)ibv;
	struct ibv_wc done = { .wr_id = wr->wr_id };
	struct ibv_sge *to;
	unsigned int n;

	check_key(ibv, wr->sg_list, "ibv_post_send");
	if (!qp->peer || qp->peer->freed || qp->peer->head == qp->peer->tail) {
		done.status = IBV_WC_RETRY_EXC_ERR;
	} else if (wr->opcode == IBV_WR_SEND) {
		n = qp->peer->head++ % DEPTH;
		to = &qp->peer->sges[n];
		memcpy((void *)(uintptr_t)to->addr, (void *)(uintptr_t)wr->sg_list->addr, wr->sg_list->length);
		complete(qp->peer->qp.recv_cq, (struct ibv_wc){ .wr_id = qp->peer->receives[n].wr_id,
								.byte_len = wr->sg_list->length });
	} else {
		move_data(wr);
	}
	if (late_reads && wr->opcode == IBV_WR_RDMA_READ) {
		late = done;
		late_cq = ibv->send_cq;
	} else {
		complete(ibv->send_cq, done);
	}
}

static int post_send(struct ibv_qp *ibv, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	(void)bad;
	pthread_mutex_lock(&fake_lock);
	doorbells++;
	fake_context_of(ibv->context, "ibv_post_send");
	for (; wr; wr = wr->next)
		send_one(ibv, wr);
	pthread_mutex_unlock(&fake_lock);
	return 0;
}

struct context *fake_open_context(struct device *d)
{
	struct context *c = calloc(1, sizeof(*c));

	c->device = d;
	c->ctx.device = &d->dev;
	c->ctx.num_comp_vectors = VECTORS;
	c->ctx.ops.poll_cq = poll_cq;
	c->ctx.ops.req_notify_cq = notify_cq;
	c->ctx.ops.post_recv = post_recv;
	c->ctx.ops.post_send = post_send;
	fake_open_queue(&c->async);
	c->ctx.async_fd = c->async.fds[0];
	fake_contexts[fake_count_contexts++] = c;
	return c;
}

/* Without the variable, libibverbs keeps the objects of a removed device. */
int fake_destroy(struct ibv_context *ctx, int *freed, const char *what)
{
	struct context *c;
	int ret = 0;

	pthread_mutex_lock(&fake_lock);
	c = fake_context_of(ctx, what);
	if (*freed)
		fake_wrong(what, "twice");
	if (!c->device->here && !getenv("RDMAV_ALLOW_DISASSOC_DESTROY")) {
		ret = EIO;
	} else {
		*freed = 1;
		c->objects--;
	}
	pthread_mutex_unlock(&fake_lock);
	return ret;
}

struct ibv_pd *ibv_alloc_pd(struct ibv_context *ctx)
{
	struct pd *pd = calloc(1, sizeof(*pd));

	pthread_mutex_lock(&fake_lock);
	fake_context_of(ctx, "ibv_alloc_pd")->objects++;
	pthread_mutex_unlock(&fake_lock);
	pd->pd.context = ctx;
	return &pd->pd;
}

int ibv_dealloc_pd(struct ibv_pd *pd)
{
	return fake_destroy(pd->context, &((struct pd *)pd)->freed, "ibv_dealloc_pd");
}

/* A registration or its end takes long. */
static void wait_for(size_t len)
{
	unsigned int ms;

	pthread_mutex_lock(&fake_lock);
	ms = len < LARGE ? 0 : slow_ms;
	if (ms && ++slow_now > slow_most)
		slow_most = slow_now;
	pthread_mutex_unlock(&fake_lock);
	if (!ms)
		return;
	usleep(ms * 1000);
	pthread_mutex_lock(&fake_lock);
	slow_now--;
	pthread_mutex_unlock(&fake_lock);
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t len, uint64_t iova, unsigned int access)
{
	struct mr *mr = calloc(1, sizeof(*mr));

	(void)iova;
	(void)access;
	wait_for(len);
	pthread_mutex_lock(&fake_lock);
	if (registered + len > most) {
		pthread_mutex_unlock(&fake_lock);
		errno = ENOMEM;
		return NULL;
	}
	registered += len;
	mr->mr.addr = addr;
	mr->mr.length = len;
	fake_context_of(pd->context, "ibv_reg_mr")->objects++;
	if (next_key < KEYS)
		mrs[next_key] = mr;
	mr->mr.lkey = mr->mr.rkey = next_key++;
	mr->mr.pd = pd;
	pthread_mutex_unlock(&fake_lock);
	mr->mr.context = pd->context;
	return &mr->mr;
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t len, int access)
{
	return ibv_reg_mr_iova2(pd, addr, len, 0, access);
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
	int ret;

	wait_for(mr->length);
	ret = fake_destroy(mr->context, &((struct mr *)mr)->freed, "ibv_dereg_mr");

	pthread_mutex_lock(&fake_lock);
	if (!ret)
		registered -= mr->length;
	pthread_mutex_unlock(&fake_lock);
	return ret;
}

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *ctx)
{
	struct channel *ch = calloc(1, sizeof(*ch));
	struct context *c;

	fake_open_queue(&ch->events);
	ch->ch.context = ctx;
	ch->ch.fd = ch->events.fds[0];
	pthread_mutex_lock(&fake_lock);
	c = fake_context_of(ctx, "ibv_create_comp_channel");
	c->objects++;
	ch->next = c->channels;
	c->channels = ch;
	pthread_mutex_unlock(&fake_lock);
	return &ch->ch;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *ch)
{
	return fake_destroy(ch->context, &((struct channel *)ch)->freed, "ibv_destroy_comp_channel");
}

/* The completion vectors that are in use, as bits. */
static int vectors;

int fake_vectors(void)
{
	return vectors;
}

struct ibv_cq *ibv_create_cq(struct ibv_context *ctx, int cqe, void *token, struct ibv_comp_channel *ch, int vector)
{
	struct cq *cq = calloc(1, sizeof(*cq));

	(void)cqe;
	if (vector < 0 || vector >= ctx->num_comp_vectors)
		fake_wrong("ibv_create_cq", "the device does not have this vector");
	vectors |= 1 << vector;
	cq->cq.context = ctx;
	cq->cq.channel = ch;
	cq->cq.cq_context = token;
	pthread_mutex_lock(&fake_lock);
	fake_context_of(ctx, "ibv_create_cq")->objects++;
	pthread_mutex_unlock(&fake_lock);
	return &cq->cq;
}

int ibv_destroy_cq(struct ibv_cq *cq)
{
	return fake_destroy(cq->context, &((struct cq *)cq)->freed, "ibv_destroy_cq");
}

int ibv_get_cq_event(struct ibv_comp_channel *ch, struct ibv_cq **cq, void **context)
{
	struct cq *c;

	pthread_mutex_lock(&fake_lock);
	fake_context_of(ch->context, "ibv_get_cq_event");
	do
		c = fake_pull(&((struct channel *)ch)->events);
	while (c && c->freed);
	pthread_mutex_unlock(&fake_lock);
	if (!c)
		return -1;
	*cq = &c->cq;
	*context = c->cq.cq_context;
	return 0;
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int n)
{
	(void)cq;
	(void)n;
}

int ibv_get_async_event(struct ibv_context *ctx, struct ibv_async_event *event)
{
	struct ibv_async_event *next;

	pthread_mutex_lock(&fake_lock);
	next = fake_pull(&fake_context_of(ctx, "ibv_get_async_event")->async);
	pthread_mutex_unlock(&fake_lock);
	if (!next)
		return -1;
	*event = *next;
	return 0;
}

void ibv_ack_async_event(struct ibv_async_event *event)
{
	(void)event;
}

const char *ibv_event_type_str(enum ibv_event_type event)
{
	static char text[32];

	snprintf(text, sizeof(text), "event %d", event);
	return text;
}

const char *ibv_wc_status_str(enum ibv_wc_status status)
{
	return status == IBV_WC_RETRY_EXC_ERR ? "transport retry counter exceeded" : "error";
}

const char *ibv_get_device_name(struct ibv_device *device)
{
	return device->name;
}

struct ibv_device **ibv_get_device_list(int *n)
{
	struct ibv_device **list = calloc(DEVICES + 1, sizeof(*list));
	int i, count = 0;

	fake_init();
	for (i = 0; i < DEVICES; i++)
		if (fake_devices[i]->here)
			list[count++] = &fake_devices[i]->dev;
	if (n)
		*n = count;
	return list;
}

void ibv_free_device_list(struct ibv_device **list)
{
	free(list);
}

struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	return &fake_open_context((struct device *)device)->ctx;
}

int ibv_close_device(struct ibv_context *ctx)
{
	fake_close_context((struct context *)ctx);
	return 0;
}

int ibv_query_device(struct ibv_context *ctx, struct ibv_device_attr *attr)
{
	fake_context_of(ctx, "ibv_query_device");
	memset(attr, 0, sizeof(*attr));
	attr->max_qp_init_rd_atom = READS;
	return 0;
}

/* The InfiniBand CM is not here. */
#pragma GCC diagnostic ignored "-Wunused-parameter"
#define ABSENT(type, name, ...) type name(__VA_ARGS__) { abort(); }
ABSENT(int, ibv_query_port, struct ibv_context *c, uint8_t p, struct _compat_ibv_port_attr *a)
ABSENT(int, ibv_query_gid, struct ibv_context *c, uint8_t p, int i, union ibv_gid *g)
ABSENT(int, ibv_query_pkey, struct ibv_context *c, uint8_t p, int i, __be16 *k)
ABSENT(struct ibv_qp *, ibv_create_qp, struct ibv_pd *p, struct ibv_qp_init_attr *a)
ABSENT(int, ibv_modify_qp, struct ibv_qp *q, struct ibv_qp_attr *a, int m)
ABSENT(int, ibv_destroy_qp, struct ibv_qp *q)
ABSENT(struct ibv_ah *, ibv_create_ah_from_wc, struct ibv_pd *p, struct ibv_wc *w, struct ibv_grh *g, uint8_t n)
ABSENT(int, ibv_destroy_ah, struct ibv_ah *a)

/* Lets memory of no more than so many bytes above that of now be registered; -1: of any length. */
void fake_limit(long bytes)
{
	pthread_mutex_lock(&fake_lock);
	most = bytes < 0 ? SIZE_MAX : registered + bytes;
	pthread_mutex_unlock(&fake_lock);
}

/* Length of all registered memory, in bytes. */
long fake_registered(void)
{
	long bytes;

	pthread_mutex_lock(&fake_lock);
	bytes = registered;
	pthread_mutex_unlock(&fake_lock);
	return bytes;
}

/* Lets each call that registers or deregisters LARGE memory take so long. */
void fake_slow(unsigned int ms)
{
	pthread_mutex_lock(&fake_lock);
	slow_ms = ms;
	pthread_mutex_unlock(&fake_lock);
}

/* The most of these calls that have run at the same time, since the last call. */
int fake_at_once(void)
{
	int n;

	pthread_mutex_lock(&fake_lock);
	n = slow_most;
	slow_most = 0;
	pthread_mutex_unlock(&fake_lock);
	return n;
}

/* The first use of something that was closed or destroyed, or "". */
const char *fake_misuse(void)
{
	return misuse;
}
