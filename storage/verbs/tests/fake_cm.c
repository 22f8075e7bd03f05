// SPDX-License-Identifier: GPL-2.0
/* The librdmacm of fake.h, and what its tests call. */
#include "fake.h"

static struct known *all_known[64];
static struct id *ids[4096];
static unsigned int count_known, count_ids, next_qp = 16, delay_ms;
static int refused, again;

/* librdmacm's list of devices. */
static struct known *know(struct device *d)
{
	struct known *k;
	unsigned int i;

	for (i = 0; i < count_known; i++)
		if (all_known[i]->device == d)
			return all_known[i];
	for (i = 0; i < count_known; i++) {
		k = all_known[i];
		if (k->device->here || k->dead)
			continue;
		k->dead = 1;
		if (!k->ids)
			fake_close_context(k->context);
	}
	k = calloc(1, sizeof(*k));
	k->device = d;
	k->context = fake_open_context(d);
	return all_known[count_known++] = k;
}

static int bind_id(struct id *id, struct device *d)
{
	if (!d || !d->here) {
		errno = ENODEV;
		return -1;
	}
	id->known = know(d);
	id->known->ids++;
	id->id.verbs = &id->known->context->ctx;
	return 0;
}

static struct device *at(const struct sockaddr *address)
{
	uint32_t n = ntohl(((const struct sockaddr_in *)address)->sin_addr.s_addr) & 255;

	fake_init();
	return n >= 1 && n <= DEVICES ? fake_devices[n - 1] : NULL;
}

static struct rdma_cm_event *make(struct id *to, enum rdma_cm_event_type what, const void *data, uint8_t len)
{
	struct rdma_cm_event *event = calloc(1, sizeof(*event) + len);

	event->id = &to->id;
	event->event = what;
	event->param.conn.initiator_depth = 2 * READS;
	event->param.conn.private_data = event + 1;
	event->param.conn.private_data_len = len;
	if (len)
		memcpy(event + 1, data, len);
	return event;
}

static void tell(struct id *to, enum rdma_cm_event_type what)
{
	fake_push((struct queue *)to->id.channel, make(to, what, NULL, 0));
}

struct rdma_event_channel *rdma_create_event_channel(void)
{
	struct { struct rdma_event_channel ch; } *fd;
	struct queue *q = calloc(1, sizeof(*q));

	_Static_assert(sizeof(fd->ch) == sizeof(int), "the channel is a descriptor");
	fake_open_queue(q);
	return (struct rdma_event_channel *)q;
}

void rdma_destroy_event_channel(struct rdma_event_channel *channel)
{
	(void)channel;
}

int rdma_get_cm_event(struct rdma_event_channel *channel, struct rdma_cm_event **event)
{
	struct rdma_cm_event *e;

	pthread_mutex_lock(&fake_lock);
	do
		e = fake_pull((struct queue *)channel);
	while (e && ((struct id *)e->id)->freed);
	pthread_mutex_unlock(&fake_lock);
	*event = e;
	return e ? 0 : -1;
}

int rdma_ack_cm_event(struct rdma_cm_event *event)
{
	free(event);
	return 0;
}

int rdma_getaddrinfo(const char *node, const char *service, const struct rdma_addrinfo *hints,
		     struct rdma_addrinfo **res)
{
	struct rdma_addrinfo *info = calloc(1, sizeof(*info));
	struct sockaddr_in *address = calloc(1, sizeof(*address));

	address->sin_family = AF_INET;
	address->sin_port = htons(atoi(service));
	if (inet_pton(AF_INET, node, &address->sin_addr) != 1)
		abort();
	if (hints->ai_flags & RAI_PASSIVE)
		info->ai_src_addr = (struct sockaddr *)address;
	else
		info->ai_dst_addr = (struct sockaddr *)address;
	*res = info;
	return 0;
}

void rdma_freeaddrinfo(struct rdma_addrinfo *info)
{
	free(info);
}

int rdma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **out, void *context, enum rdma_port_space ps)
{
	struct id *id = NULL;
	unsigned int i;

	(void)context;
	(void)ps;
	pthread_mutex_lock(&fake_lock);
	for (i = count_ids; again && !id && i--;)
		if (ids[i]->freed)
			id = ids[i];
	again = 0;
	if (!id)
		id = ids[count_ids++] = malloc(sizeof(*id));
	memset(id, 0, sizeof(*id));
	id->id.channel = channel;
	pthread_mutex_unlock(&fake_lock);
	*out = &id->id;
	return 0;
}

int rdma_destroy_id(struct rdma_cm_id *rdma)
{
	struct id *id = (struct id *)rdma;

	pthread_mutex_lock(&fake_lock);
	if (id->freed)
		fake_wrong("rdma_destroy_id", "twice");
	id->freed = 1;
	if (id->peer && !id->peer->freed && (!id->known || id->known->device->here))
		tell(id->peer, RDMA_CM_EVENT_DISCONNECTED);
	if (id->known && !--id->known->ids && id->known->dead)
		fake_close_context(id->known->context);
	pthread_mutex_unlock(&fake_lock);
	return 0;
}

/* Events that are not read move with the identifier. */
int rdma_migrate_id(struct rdma_cm_id *id, struct rdma_event_channel *channel)
{
	struct queue *from = (struct queue *)id->channel;
	struct rdma_cm_event *event;
	unsigned int n;

	pthread_mutex_lock(&fake_lock);
	for (n = from->tail - from->head; n; n--) {
		event = fake_pull(from);
		fake_push(event->id == id ? (struct queue *)channel : from, event);
	}
	id->channel = channel;
	pthread_mutex_unlock(&fake_lock);
	return 0;
}

int rdma_bind_addr(struct rdma_cm_id *rdma, struct sockaddr *address)
{
	struct id *id = (struct id *)rdma;
	int ret = 0;

	pthread_mutex_lock(&fake_lock);
	memcpy(&rdma->route.addr.src_sin, address, sizeof(struct sockaddr_in));
	if (rdma->route.addr.src_sin.sin_addr.s_addr != INADDR_ANY)
		ret = bind_id(id, at(address));
	pthread_mutex_unlock(&fake_lock);
	return ret;
}

int rdma_listen(struct rdma_cm_id *id, int backlog)
{
	((struct id *)id)->backlog = backlog;
	return 0;
}

int rdma_resolve_addr(struct rdma_cm_id *rdma, struct sockaddr *from, struct sockaddr *to, int ms)
{
	struct id *id = (struct id *)rdma;
	int ret;

	(void)from;
	(void)ms;
	pthread_mutex_lock(&fake_lock);
	memcpy(&rdma->route.addr.dst_sin, to, sizeof(struct sockaddr_in));
	memcpy(&rdma->route.addr.src_sin, to, sizeof(struct sockaddr_in));
	ret = bind_id(id, at(to));
	if (!ret)
		tell(id, RDMA_CM_EVENT_ADDR_RESOLVED);
	pthread_mutex_unlock(&fake_lock);
	return ret;
}

int rdma_resolve_route(struct rdma_cm_id *id, int ms)
{
	(void)ms;
	pthread_mutex_lock(&fake_lock);
	tell((struct id *)id, RDMA_CM_EVENT_ROUTE_RESOLVED);
	pthread_mutex_unlock(&fake_lock);
	return 0;
}

/* Waits as long as fake_delay() says if the port is 9, and fails if fake_refuse() says so. */
int rdma_connect(struct rdma_cm_id *rdma, struct rdma_conn_param *param)
{
	struct id *id = (struct id *)rdma, *listener = NULL, *new;
	struct sockaddr_in *to = &rdma->route.addr.dst_sin, *l;
	struct rdma_cm_event *event;
	unsigned int i;

	if (to->sin_port == htons(9))
		usleep(delay_ms * 1000);
	if (to->sin_port == htons(9) && refused) {
		errno = ECONNREFUSED;
		return -1;
	}
	pthread_mutex_lock(&fake_lock);
	for (i = 0; i < count_ids; i++) {
		l = &ids[i]->id.route.addr.src_sin;
		if (!ids[i]->freed && ids[i]->backlog && l->sin_port == to->sin_port &&
		    (l->sin_addr.s_addr == INADDR_ANY || l->sin_addr.s_addr == to->sin_addr.s_addr))
			listener = ids[i];
	}
	if (listener) {
		new = calloc(1, sizeof(*new));
		new->id.channel = listener->id.channel;
		new->id.route.addr.src_sin = *to;
		new->peer = id;
		ids[count_ids++] = new;
		if (!bind_id(new, at((struct sockaddr *)to))) {
			event = make(new, RDMA_CM_EVENT_CONNECT_REQUEST, param->private_data, param->private_data_len);
			event->listen_id = &listener->id;
			fake_push((struct queue *)new->id.channel, event);
		}
	} else {
		tell(id, RDMA_CM_EVENT_UNREACHABLE);
	}
	pthread_mutex_unlock(&fake_lock);
	return 0;
}

int rdma_accept(struct rdma_cm_id *rdma, struct rdma_conn_param *param)
{
	struct id *id = (struct id *)rdma;

	if (param->initiator_depth > READS) {
		errno = EINVAL;
		return -1;
	}
	pthread_mutex_lock(&fake_lock);
	if (id->peer->freed || !id->peer->id.qp) {
		tell(id, RDMA_CM_EVENT_DISCONNECTED);
		pthread_mutex_unlock(&fake_lock);
		return 0;
	}
	id->peer->peer = id;
	((struct qp *)rdma->qp)->peer = (struct qp *)id->peer->id.qp;
	((struct qp *)id->peer->id.qp)->peer = (struct qp *)rdma->qp;
	tell(id, RDMA_CM_EVENT_ESTABLISHED);
	tell(id->peer, RDMA_CM_EVENT_ESTABLISHED);
	pthread_mutex_unlock(&fake_lock);
	return 0;
}

int rdma_reject(struct rdma_cm_id *id, const void *data, uint8_t len)
{
	(void)data;
	(void)len;
	pthread_mutex_lock(&fake_lock);
	tell(((struct id *)id)->peer, RDMA_CM_EVENT_REJECTED);
	pthread_mutex_unlock(&fake_lock);
	return 0;
}

int rdma_disconnect(struct rdma_cm_id *rdma)
{
	struct id *id = (struct id *)rdma;

	pthread_mutex_lock(&fake_lock);
	fake_context_of(rdma->verbs, "rdma_disconnect");
	if (id->known->device->here) {
		tell(id, RDMA_CM_EVENT_DISCONNECTED);
		if (id->peer && !id->peer->freed)
			tell(id->peer, RDMA_CM_EVENT_DISCONNECTED);
	}
	pthread_mutex_unlock(&fake_lock);
	return 0;
}

int rdma_create_qp(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct qp *qp = calloc(1, sizeof(*qp));

	pthread_mutex_lock(&fake_lock);
	fake_context_of(id->verbs, "rdma_create_qp")->objects++;
	if (pd->context != id->verbs)
		fake_wrong("rdma_create_qp", "the domain is of another device");
	qp->qp.context = id->verbs;
	qp->qp.pd = pd;
	qp->qp.send_cq = attr->send_cq;
	qp->qp.recv_cq = attr->recv_cq;
	qp->qp.qp_num = next_qp++;
	id->qp = &qp->qp;
	pthread_mutex_unlock(&fake_lock);
	return 0;
}

void rdma_destroy_qp(struct rdma_cm_id *id)
{
	fake_destroy(id->verbs, &((struct qp *)id->qp)->freed, "rdma_destroy_qp");
	id->qp = NULL;
}

static void happen(struct context *c, struct ibv_async_event event)
{
	struct ibv_async_event *copy = malloc(sizeof(*copy));

	*copy = event;
	fake_push(&c->async, copy);
}

/* Takes a device away, with or without an event for each of its identifiers. */
void fake_remove(int number, int tell_ids)
{
	struct device *d;
	unsigned int i;

	pthread_mutex_lock(&fake_lock);
	fake_init();
	d = fake_devices[number];
	d->here = 0;
	for (i = 0; i < count_ids; i++)
		if (tell_ids && !ids[i]->freed && ids[i]->known && ids[i]->known->device == d)
			tell(ids[i], RDMA_CM_EVENT_DEVICE_REMOVAL);
	for (i = 0; i < fake_count_contexts; i++)
		if (fake_contexts[i]->device == d && !fake_contexts[i]->closed) {
			happen(fake_contexts[i], (struct ibv_async_event){ .event_type = IBV_EVENT_DEVICE_FATAL });
			fake_end_channels(fake_contexts[i]);
		}
	pthread_mutex_unlock(&fake_lock);
}

void fake_add(int number)
{
	pthread_mutex_lock(&fake_lock);
	fake_devices[number] = fake_make(number);
	pthread_mutex_unlock(&fake_lock);
}

/* An event of the queue pair (0), or else of the completion queue (1), that has a peer at this port; of port 1 (2). */
void fake_event(int what, int port)
{
	struct ibv_async_event event = { .event_type = IBV_EVENT_PORT_ERR, .element.port_num = 1 };
	unsigned int i;

	pthread_mutex_lock(&fake_lock);
	for (i = 0; i < count_ids; i++) {
		struct id *id = ids[i];

		if (id->freed || !id->id.qp || id->id.route.addr.dst_sin.sin_port != htons(port))
			continue;
		if (what == 0) {
			event.event_type = IBV_EVENT_QP_FATAL;
			event.element.qp = id->id.qp;
		} else if (what == 1) {
			event.event_type = IBV_EVENT_CQ_ERR;
			event.element.cq = id->id.qp->send_cq;
		}
		happen(id->known->context, event);
		break;
	}
	pthread_mutex_unlock(&fake_lock);
}

void fake_delay(unsigned int ms)
{
	delay_ms = ms;
}

void fake_refuse(int refuse)
{
	refused = refuse;
}

/* Gives the next identifier the address of one that is destroyed, as malloc() may. */
void fake_again(void)
{
	again = 1;
}

/* The number of contexts that are open. */
int fake_open(void)
{
	unsigned int i, n = 0;

	pthread_mutex_lock(&fake_lock);
	for (i = 0; i < fake_count_contexts; i++)
		n += !fake_contexts[i]->closed;
	pthread_mutex_unlock(&fake_lock);
	return n;
}
