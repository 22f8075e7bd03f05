// SPDX-License-Identifier: GPL-2.0
/* The target's side of the InfiniBand CM. It follows scripts instead of the protocol. */
#include <time.h>

#include "cm.h"
#include "commands.h"
#include "gsi.h"
#include "login.h"
#include "manager.h"

enum { PEERS = 64, SCRIPTS = 16, SCRIPT = 400 };

/* The sender of a connection request. */
struct peer {
	struct gsi *at;
	struct ibv_ah *ah;
	uint32_t qpn, id, local;
	uint8_t req[MAD];
	/* The reply, if there is one, and whether it was confirmed by an RTU. */
	uint8_t answer[MAD];
	bool answered, heard;
	struct channel *channel;
	/* The remaining steps, and when the next one is due (0: never). */
	char script[SCRIPT], *next;
	long due;
};

static struct gsi places[DEVICES];
static int n_places;
static struct peer peers[PEERS];
static uint32_t last_id;
/* Scripts for future requests, each with the remaining number of them. */
static struct { char steps[SCRIPT]; int left; } scripts[SCRIPTS];

static long now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000L + t.tv_nsec / 1000000;
}

static void leave(struct peer *p)
{
	struct channel *c = p->channel;

	if (c) {
		/* Handle completions that precede the end of the connection. */
		poll_channel(c);
		say("gone channel=%d", number(c));
		forget(c, -1, 0);
		ibv_destroy_qp(c->qp);
		close_channel(c);
	}
	ibv_destroy_ah(p->ah);
	memset(p, 0, sizeof(*p));
}

/* Returns the peer with this local communication ID. */
static struct peer *known(uint32_t local)
{
	for (struct peer *p = peers; p < peers + PEERS; p++)
		if (p->at && p->local == local)
			return p;
	return NULL;
}

static uint8_t *begin(struct peer *p, uint8_t *mad, enum message kind)
{
	return cm_message(mad, kind, get(p->req + 8, 8), p->local, p->id);
}

static void send_mad(struct peer *p, const uint8_t *mad)
{
	gsi_send(p->at, mad, p->ah, p->qpn);
}

static void reject(struct peer *p, int reason, const uint8_t *info, int info_len, const uint8_t *bytes, int len)
{
	uint8_t mad[MAD], *m = begin(p, mad, REJ);

	m[8] = (p->answered ? OF_REP : OF_REQ) << 6;
	m[9] = info_len << 1;
	put(m + 10, 2, reason);
	memcpy(m + REJ_INFO, info, info_len);
	memcpy(m + REJ_DATA, bytes, len);
	send_mad(p, mad);
}

/* Creates and connects the queue pair of a channel. The request has the packet number of our first
 * packet. */
static void connect_qp(struct channel *c, struct peer *p, const struct request *r, struct ibv_qp_init_attr *init)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT, .port_num = 1, .pkey_index = gsi_partition(p->at, r->pkey),
		.path_mtu = r->mtu, .dest_qp_num = r->qpn, .max_dest_rd_atomic = 1, .min_rnr_timer = 12,
		.ah_attr = { .dlid = r->slid, .sl = r->sl, .port_num = 1 },
		.sq_psn = r->psn, .timeout = r->ack_timeout, .retry_cnt = r->retries, .rnr_retry = 7, .max_rd_atomic = r->reads < 4 ? r->reads : 4,
	};

	c->qp = ibv_create_qp(c->device->pd, init);
	check(c->qp, "create_qp");
	check(!ibv_modify_qp(c->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), "INIT");
	post_receives(c);
	attr.qp_state = IBV_QPS_RTR;
	check(!ibv_modify_qp(c->qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER), "RTR");
	attr.qp_state = IBV_QPS_RTS;
	check(!ibv_modify_qp(c->qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			     IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC), "RTS");
}

/* Decides on a request according to the orders about logins. Returns whether there is a reply. */
static bool answer(struct peer *p)
{
	uint8_t bytes[ANSWER], *m;
	struct ibv_qp_init_attr init;
	struct request r = cm_request(p->req);
	struct asks asks = { .tag = r.data + 8, .flags = r.data[26], .len = REQ_DATA_LEN };
	struct channel *c;
	int len;

	if (p->answered)
		return true;
	switch (login(&asks, bytes, &len)) {
	case IGNORE:
		return false;
	case REFUSE:
		reject(p, CONSUMER, bytes, 0, bytes, len);
		leave(p);
		return false;
	default:
		break;
	}
	c = free_channel();
	check(c, "a free channel");
	open_channel(c, p->at->verbs, &init);
	c->connection = p;
	p->channel = c;
	connect_qp(c, p, &r, &init);
	m = begin(p, p->answer, REP);
	put(m + 12, 3, c->qp->qp_num);
	m[24] = 1;
	m[25] = r.reads < 4 ? r.reads : 4;
	m[27] = 7 << 5;
	memcpy(m + REP_DATA, bytes, len);
	return p->answered = true;
}

/* Sends the reply, with some bytes changed by `OFFSET:HEX`, if given. */
static void reply(struct peer *p, const char *change)
{
	uint8_t mad[MAD], bytes[MAD];
	char *hex;
	int offset, len;

	memcpy(mad, p->answer, MAD);
	if (*change) {
		offset = strtol(change, &hex, 10);
		len = digits(hex + 1, bytes, MAD - MAD_HEADER - offset);
		check(*hex == ':' && len > 0, "bytes of the answer");
		memcpy(cm_bytes(mad) + offset, bytes, len);
	}
	send_mad(p, mad);
}

static void disconnect(struct peer *p)
{
	uint8_t mad[MAD], *m = begin(p, mad, DREQ);

	put(m + 8, 3, get(cm_bytes(p->req) + 32, 3));
	send_mad(p, mad);
}

/* Sends a REJ. The argument is `REASON[:INFO[:DATA]]`. */
static void reject_with(struct peer *p, char *args)
{
	uint8_t info[REJ_INFO_LEN] = { 0 }, bytes[REJ_DATA_LEN] = { 0 };
	char *reason = strsep(&args, ":"), *hex = strsep(&args, ":");
	int n = hex ? digits(hex, info, sizeof(info)) : 0, len = args ? digits(args, bytes, sizeof(bytes)) : 0;

	check(n >= 0 && len >= 0, "bytes of a REJ");
	reject(p, atoi(reason), info, n, bytes, len);
	leave(p);
}

/* Executes a step. Returns false if the script continues later or the peer is gone. */
static bool step(struct peer *p, char *what)
{
	char *args = what + strcspn(what, ":");
	uint8_t mad[MAD], *m;

	if (*args)
		*args++ = 0;
	if (!strcmp(what, "wait")) {
		p->due = now() + atoi(args);
		return false;
	} else if (!strcmp(what, "rep")) {
		if (!answer(p))
			return false;
		reply(p, args);
	} else if (!strcmp(what, "rej")) {
		reject_with(p, args);
		return false;
	} else if (!strcmp(what, "mra")) {
		m = begin(p, mad, MRA);
		m[9] = atoi(args) << 3;
		send_mad(p, mad);
	} else if (!strcmp(what, "dreq")) {
		disconnect(p);
	} else if (strcmp(what, "nothing")) {
		say("FAILED: step %s", what);
	}
	return true;
}

static void go_on(struct peer *p)
{
	char *what;

	p->due = 0;
	while ((what = strsep(&p->next, " ")))
		if (*what && !step(p, what))
			return;
}

/* Selects the script for a new request. */
static void prepare(struct peer *p)
{
	strcpy(p->script, "rep");
	for (int i = 0; i < SCRIPTS; i++)
		if (scripts[i].left) {
			scripts[i].left--;
			strcpy(p->script, scripts[i].steps);
			break;
		}
	p->next = p->script;
}

static void asked(struct gsi *g, uint8_t *mad, struct ibv_ah *back, uint32_t qpn)
{
	uint32_t id = get(cm_bytes(mad), 4);
	struct peer *p = NULL;

	for (int i = PEERS; i--;) {
		if (!peers[i].at)
			p = &peers[i];
		else if (peers[i].id == id && !memcmp(peers[i].req + MAD_HEADER, mad + MAD_HEADER, MAD - MAD_HEADER)) {
			p = &peers[i];
			break;
		}
	}
	check(p, "too many requests");
	if (p->at) {
		ibv_destroy_ah(back);
		say("req again%s", p->answered ? " after the answer" : "");
		/* Apparently the peer has not received the reply. */
		if (p->answered)
			reply(p, "");
		if (p->answered || p->due)
			return;
	} else {
		*p = (struct peer) { .at = g, .ah = back, .qpn = qpn, .id = id, .local = ++last_id };
		memcpy(p->req, mad, MAD);
		cm_say_request(p->req, g->name);
	}
	prepare(p);
	go_on(p);
}

/* Confirms the DREQ of an unknown peer, so that it can end its connection. */
static void unknown(struct gsi *g, uint8_t *mad, struct ibv_ah *back, uint32_t qpn)
{
	uint8_t drep[MAD], *m = cm_bytes(mad);

	if (cm_kind(mad) == DREQ) {
		cm_message(drep, DREP, get(mad + 8, 8), get(m + 4, 4), get(m, 4));
		gsi_send(g, drep, back, qpn);
	}
}

static void heard(struct gsi *g, uint8_t *mad, struct ibv_ah *back, uint32_t qpn)
{
	uint8_t *m = cm_bytes(mad), drep[MAD];
	struct peer *p = known(get(m + 4, 4));

	if (!is_cm(mad)) {
		say("FAILED: a datagram of class %d", mad[1]);
	} else if (cm_kind(mad) == REQ) {
		return asked(g, mad, back, qpn);
	} else if (cm_kind(mad) == REJ && !p && !get(m + 4, 4)) {
		/* The peer gives up a request without a reply. */
		say("rej reason=%d of=%d", (int)get(m + 10, 2), m[8] >> 6);
		for (p = peers; p < peers + PEERS; p++)
			if (p->at == g && p->id == get(m, 4) && !p->answered)
				leave(p);
	} else if (!p) {
		say("message %02x for nobody", cm_kind(mad));
		unknown(g, mad, back, qpn);
	} else switch (cm_kind(mad)) {
	case RTU:
		say("rtu%s", p->heard ? " again" : "");
		if (p->channel && !p->heard)
			logged_in(number(p->channel));
		p->heard = true;
		break;
	case MRA:
		say("mra of=%d timeout=%d", m[8] >> 6, m[9] >> 3);
		break;
	case REJ:
		say("rej reason=%d of=%d", (int)get(m + 10, 2), m[8] >> 6);
		leave(p);
		break;
	case DREQ:
		say("dreq");
		begin(p, drep, DREP);
		send_mad(p, drep);
		leave(p);
		break;
	case DREP:
		say("drep");
		leave(p);
		break;
	default:
		say("FAILED: message %02x", cm_kind(mad));
	}
	ibv_destroy_ah(back);
}

static int attend(void)
{
	long t, first = 0;

	for (int i = 0; i < n_places; i++)
		gsi_poll(&places[i], heard);
	t = now();
	for (struct peer *p = peers; p < peers + PEERS; p++) {
		if (p->due && p->due <= t)
			go_on(p);
		if (p->due && (!first || p->due < first))
			first = p->due;
	}
	t = now();
	return !first ? -1 : first <= t ? 0 : first - t;
}

static int fds(struct pollfd *fds)
{
	for (int i = 0; i < n_places; i++)
		fds[i] = (struct pollfd) { .fd = places[i].arrivals->fd, .events = POLLIN };
	return n_places;
}

static void hang_up(struct channel *c)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };

	ibv_modify_qp(c->qp, &attr, IBV_QP_STATE);
	disconnect(c->connection);
}

/* `requests [N] STEP...` or `requests forget`: sets the script of the next N requests. */
static bool told(const char *line)
{
	int n = 1, at = 0;

	if (!strcmp(line, "requests forget")) {
		memset(scripts, 0, sizeof(scripts));
		return true;
	}
	if (strncmp(line, "requests ", 9))
		return false;
	line += 9;
	if (sscanf(line, "%d %n", &n, &at) < 1)
		n = 1;
	for (int i = 0; i < SCRIPTS; i++) {
		/* Keep the order of the remaining scripts. */
		bool rest = true;

		for (int j = i; j < SCRIPTS; j++)
			rest = rest && !scripts[j].left;
		if (rest) {
			scripts[i].left = n;
			snprintf(scripts[i].steps, SCRIPT, "%s", line + at);
			return true;
		}
	}
	return false;
}

const struct manager *by_ib(char **devices)
{
	static const struct manager manager = { .fds = fds, .attend = attend, .hang_up = hang_up, .told = told };

	for (; *devices; devices++) {
		check(n_places < DEVICES, "too many devices");
		gsi_open(&places[n_places++], *devices);
	}
	return &manager;
}
