// SPDX-License-Identifier: GPL-2.0
/*
 * target ADDRESS PORT ANSWERS: an SRP target over rdma_cm with a disk of 16 MiB in memory, for the tests of what the
 * kernel's target never does. ANSWERS is another port. Who logs in there gets no credits, but from then on the data and
 * the answers of commands, of which there is data. It says on standard output what arrives, and does what standard input tells:
 *
 * on OPCODE ACTION [COUNT]   the next COUNT (1) commands with this operation code (hexadecimal) are held
 *                            (`hold`), answered `twice`, with the tag of nobody (`astray`), with the status
 *                            BUSY (`busy`), with GOOD and no more than these bytes (`short:HEX`), or with CHECK
 *                            CONDITION, this sense, and so many bytes of what the disk has (`check:BYTES:HEX`; no
 *                            sense without HEX); the last two do not say how much data there is. It is instead of
 *                            what there was for this code, of which nothing is left with `normal`
 * answer                     the commands that are held are answered as if they were done, in their order
 * tmf CODE|drop [keep]       task management requests get this response code (0 at first), or no answer; with
 *                            `keep` the commands that they end stay held
 * abort CODE                 those that abort one command get another one; -1 for none
 * send logout REASON         a message to the first channel
 * send credits DELTA
 * send report KEY ASC ASCQ   an event report for LUN 0, with this sense (hexadecimal)
 * login ok|silent            logins are answered, or not
 * login only N               so many channels are let in
 * login reject REASON        with an SRP_LOGIN_REJ (hexadecimal)
 * login bytes OFFSET HEX     these bytes of the SRP_LOGIN_RSP are other ones
 * login length N             of the answer's private data
 * grant all|none [CHANNEL]   answers return their credits, or not; on this channel only, or on all
 * grant every SECONDS        answers do not, but the first channel gets one in so many seconds
 * receive off                what arrives from now on finds no buffer, after those that are posted
 * luns N [SIZE]              LUNs 0 to N - 1, in a list that says it has SIZE bytes (hexadecimal)
 * answers here|there         answers go where the commands came from, or through the port for answers if there is
 *                            somebody (at first)
 * disconnect [answers]       all channels, or that one
 */
#include <fcntl.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <unistd.h>

#include "target.h"
#include "target-rules.h"

enum { CHANNELS = 16, CREDITS = 32, RECEIVES = CREDITS + 8, SENDS = 64, IU = 1024, BLOCK = 512, HELD = 64 };
enum { DISK = 16 << 20 };

struct channel {
	struct rdma_cm_id *id;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	/* RECEIVES messages, SENDS messages, SENDS blocks of data. */
	uint8_t *memory;
	bool sending[SENDS];
	/* The one for answers. */
	bool answers;
};

struct held {
	struct channel *channel;
	uint8_t iu[IU];
};

static struct channel channels[CHANNELS];
static struct held held[HELD];
static int n_held;
static uint8_t *disk;
static struct ibv_pd *pd;
static struct ibv_mr *disk_mr;
static struct ibv_comp_channel *completions;
static struct rdma_event_channel *events;

static uint32_t luns_size = 8;
static int tmf_code, abort_code = -1, luns = 1, login_only = CHANNELS, login_offset = -1, login_length = 52;
static bool answers_here, tmf_drop, tmf_keep, login_silent, login_break, no_receives;
static long login_reject = -1;
static uint8_t login_bytes[32];
static int n_login_bytes;

/* Credits that come back with an answer; the only channel that this is for, or -1; or seconds for one. */
static int grant = 1, grant_channel = -1, grant_every;
static time_t granted_at;

static struct rdma_cm_id *answers_listener;

static int number(const struct channel *c) { return c - channels; }
static int grants(const struct channel *c) { return grant_channel < 0 || grant_channel == number(c) ? grant : 1; }
static uint8_t *receive(struct channel *c, int i) { return c->memory + i * IU; }
static uint8_t *message(struct channel *c, int i) { return c->memory + (RECEIVES + i) * IU; }
static uint8_t *data(struct channel *c, int i) { return c->memory + (RECEIVES + SENDS + i) * IU; }

static void post_receive(struct channel *c, int i)
{
	struct ibv_sge sge = { (uintptr_t)receive(c, i), IU, c->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = i, .sg_list = &sge, .num_sge = 1 }, *bad;

	if (ibv_post_recv(c->id->qp, &wr, &bad))
		say("cannot receive on channel=%d", number(c));
}

/* Where the answer to a command of a channel goes. */
static struct channel *answering(struct channel *c, const uint8_t *iu)
{
	if (iu[5] && !answers_here)
		for (int i = 0; i < CHANNELS; i++)
			if (channels[i].id && channels[i].answers)
				return &channels[i];
	return c;
}

/* Takes what was sent on a channel where nothing arrives; returns whether there was anything. */
static bool reap(struct channel *c)
{
	struct ibv_wc wc;
	bool any = false;

	while (ibv_poll_cq(c->cq, 1, &wc) > 0)
		if (wc.wr_id >= RECEIVES && wc.wr_id < RECEIVES + SENDS)
			any = true, c->sending[wc.wr_id - RECEIVES] = false;
	return any;
}

/* A free message, zeroed. */
static int take(struct channel *c)
{
	do {
		for (int i = 0; i < SENDS; i++)
			if (!c->sending[i]) {
				c->sending[i] = true;
				memset(message(c, i), 0, IU);
				return i;
			}
		/* Commands of all channels are answered there. */
		for (int ms = 0; c->answers && !reap(c) && ms < 5000; ms++)
			poll(NULL, 0, 1);
	} while (c->answers);
	say("FAILED: no free message");
	exit(1);
}

static void send_message(struct channel *c, int i, int len)
{
	struct ibv_sge sge = { (uintptr_t)message(c, i), len, c->mr->lkey };
	/* Not before the data that is read has arrived. */
	struct ibv_send_wr wr = {
		.wr_id = RECEIVES + i, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED | IBV_SEND_FENCE,
	}, *bad;

	if (ibv_post_send(c->id->qp, &wr, &bad))
		say("cannot send on channel=%d", number(c));
}

/* Moves `len` bytes between memory of ours and the buffers of a command; returns how many fit. */
static uint32_t transfer(struct channel *c, const uint8_t *iu, bool in, void *at, uint32_t lkey, uint32_t len)
{
	const uint8_t *list = iu + 48 + (iu[31] & ~3);
	int format = in ? iu[5] & 15 : iu[5] >> 4, n = 1;
	uint32_t done = 0;

	if (format == FMT_INDIRECT) {
		list += 20;
		n = in ? iu[7] : iu[6];
	} else if (format != FMT_DIRECT) {
		return 0;
	}
	for (; n-- && done < len; list += 16) {
		uint32_t part = get(list + 12, 4);

		if (part > len - done)
			part = len - done;
		struct ibv_sge sge = { (uintptr_t)at + done, part, lkey };
		struct ibv_send_wr wr = {
			.wr_id = RECEIVES + SENDS, .sg_list = &sge, .num_sge = 1,
			.opcode = in ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ,
			.wr.rdma = { .remote_addr = get(list, 8), .rkey = get(list + 8, 4) },
		}, *bad;

		if (ibv_post_send(c->id->qp, &wr, &bad))
			say("cannot transfer on channel=%d", number(c));
		done += part;
	}
	return done;
}

static void respond(struct channel *c, uint64_t tag, int status, uint32_t sense, uint32_t unused_in)
{
	int i = take(c);

	send_message(c, i, response(message(c, i), grants(c), tag, status, sense, unused_in));
}

/* Answers with `len` bytes, or as many as are wanted; returns whether they are fewer than there is room for. */
static uint32_t reply(struct channel *c, const uint8_t *iu, const uint8_t *bytes, uint32_t len)
{
	uint32_t space = room(iu);
	/* The answer takes the next free message, whose data this is. */
	int i = take(c);

	c->sending[i] = false;
	memcpy(data(c, i), bytes, len);
	return space - transfer(c, iu, true, data(c, i), c->mr->lkey, len < space ? len : space);
}

static void carry_out(struct channel *c, const uint8_t *iu, int times, uint64_t tag)
{
	const uint8_t *cdb = iu + 32;
	uint8_t b[IU] = { 0 };
	uint64_t lba = 0, blocks = 0;
	uint32_t unused = 0, sense = 0;
	int lun = get(iu + 20, 2) & 0x3fff;

	switch (cdb[0]) {
	case 0x28: case 0x2a: lba = get(cdb + 2, 4), blocks = get(cdb + 7, 2); break;
	case 0x88: case 0x8a: lba = get(cdb + 2, 8), blocks = get(cdb + 10, 4); break;
	}
	if (lun >= luns && cdb[0] != 0xa0 && cdb[0] != 0x12)
		sense = 0x52500;
	else if (lba + blocks > DISK / BLOCK)
		sense = 0x52100;
	else switch (cdb[0]) {
	case 0x00: case 0x35: case 0x91:
		break;
	case 0x12:
		if (!(cdb[1] & 1)) {
			b[0] = lun < luns ? 0 : 0x7f;
			b[2] = 6, b[3] = 2, b[4] = 31, b[7] = 2;
			memcpy(b + 8, "SRP     test target     0   ", 28);
			unused = reply(c, iu, b, 36);
		} else if (cdb[2] == 0x00) {
			b[3] = 2, b[5] = 0x80;
			unused = reply(c, iu, b, 6);
		} else if (cdb[2] == 0x80) {
			b[1] = 0x80, b[3] = 8;
			memcpy(b + 4, "test0000", 8);
			b[11] += lun;
			unused = reply(c, iu, b, 12);
		} else {
			sense = 0x52400;
		}
		break;
	case 0x25:
		put(b, 4, DISK / BLOCK - 1);
		put(b + 4, 4, BLOCK);
		unused = reply(c, iu, b, 8);
		break;
	case 0xa0:
		put(b, 4, luns_size);
		for (int i = 0; i < luns; i++)
			b[9 + 8 * i] = i;
		unused = reply(c, iu, b, 8 + 8 * luns);
		break;
	case 0x28: case 0x88:
		transfer(c, iu, true, disk + lba * BLOCK, disk_mr->lkey, blocks * BLOCK);
		break;
	case 0x2a: case 0x8a:
		transfer(c, iu, false, disk + lba * BLOCK, disk_mr->lkey, blocks * BLOCK);
		break;
	default:
		sense = 0x52000;
	}
	while (times--)
		respond(c, tag, sense ? CHECK_CONDITION : GOOD, sense, unused);
}

/* CHECK CONDITION with the sense of a rule, and the first bytes of a READ(10). */
static void fail(struct channel *c, const uint8_t *iu, const struct rule *rule)
{
	uint64_t at = get(iu + 34, 4) * BLOCK;
	int i, len;

	if (rule->sent && iu[32] == 0x28 && at + rule->sent <= DISK)
		transfer(c, iu, true, disk + at, disk_mr->lkey, rule->sent);
	i = take(c);
	len = response(message(c, i), grants(c), get(iu + 8, 8), CHECK_CONDITION, 0, 0);
	send_message(c, i, len + add_sense(message(c, i), rule->bytes, rule->length));
}

static void command(struct channel *c, const uint8_t *iu)
{
	uint64_t tag = get(iu + 8, 8);
	const struct rule *rule = rule_for(iu[32]);
	enum action action = rule ? rule->action : NORMAL;

	say("command channel=%d opcode=%02x lun=%d tag=%016llx%s", number(c), iu[32], (int)get(iu + 20, 2) & 0x3fff,
	    (unsigned long long)tag, action == HOLD ? " held" : "");
	if (action == HOLD) {
		check(n_held < HELD, "too many are held");
		held[n_held].channel = c;
		memcpy(held[n_held++].iu, iu, IU);
		return;
	}
	c = answering(c, iu);
	switch (action) {
	case BUSY_STATUS:
		respond(c, tag, BUSY, 0, 0);
		break;
	case SHORT:
		reply(c, iu, rule->bytes, rule->length);
		respond(c, tag, GOOD, 0, 0);
		break;
	case CHECK:
		fail(c, iu, rule);
		break;
	default:
		carry_out(c, iu, action == TWICE ? 2 : 1, action == ASTRAY ? tag ^ 1ULL << 40 : tag);
	}
}

/* Forgets held commands: of a channel (NULL for all), of a LUN (-1 for all), with a tag (0 for all). */
static void forget(const struct channel *c, int lun, uint64_t tag)
{
	int n = 0;

	for (int i = 0; i < n_held; i++) {
		const uint8_t *iu = held[i].iu;

		if ((!c || held[i].channel == c) && (lun < 0 || lun == (int)(get(iu + 20, 2) & 0x3fff)) &&
		    (!tag || tag == get(iu + 8, 8)))
			continue;
		if (n != i)
			held[n] = held[i];
		n++;
	}
	n_held = n;
}

static void task(struct channel *c, const uint8_t *iu)
{
	int function = iu[30], lun = get(iu + 20, 2) & 0x3fff, i;
	int code = function == 1 && abort_code >= 0 ? abort_code : tmf_code;
	uint64_t tag = get(iu + 8, 8), which = get(iu + 32, 8);
	uint8_t *rsp;

	say("task channel=%d function=%02x lun=%d of=%016llx", number(c), function, lun, (unsigned long long)which);
	if (tmf_drop)
		return;
	if (!tmf_keep && !code)
		forget(NULL, lun, function == 1 ? which : 0);
	i = take(c);
	rsp = message(c, i);
	rsp[0] = RSP;
	put(rsp + 4, 4, grants(c));
	put(rsp + 8, 8, tag);
	rsp[18] = 1 << 0;
	put(rsp + 32, 4, 4);
	rsp[39] = code;
	send_message(c, i, 40);
}

static void arrived(struct channel *c, int i, int len)
{
	const uint8_t *iu = receive(c, i);

	switch (iu[0]) {
	case CMD: command(c, iu); break;
	case TSK_MGMT: task(c, iu); break;
	default:
		say("message channel=%d opcode=%02x length=%d tag=%016llx", number(c), iu[0], len, (unsigned long long)get(iu + 8, 8));
	}
	if (!no_receives)
		post_receive(c, i);
}

static void leave(struct channel *c)
{
	say("gone channel=%d", number(c));
	forget(c, -1, 0);
	rdma_destroy_qp(c->id);
	ibv_destroy_cq(c->cq);
	ibv_dereg_mr(c->mr);
	free(c->memory);
	rdma_destroy_id(c->id);
	memset(c, 0, sizeof(*c));
}

static void poll_channel(struct channel *c)
{
	struct ibv_wc wc;

	check(!ibv_req_notify_cq(c->cq, 0), "req_notify_cq");
	while (c->cq && ibv_poll_cq(c->cq, 1, &wc) > 0) {
		if (wc.status != IBV_WC_SUCCESS) {
			if (wc.status != IBV_WC_WR_FLUSH_ERR)
				say("error channel=%d work=%d: %s", number(c), (int)wc.wr_id, ibv_wc_status_str(wc.status));
			continue;
		}
		if (wc.wr_id < RECEIVES)
			arrived(c, wc.wr_id, wc.byte_len);
		else if (wc.wr_id < RECEIVES + SENDS)
			c->sending[wc.wr_id - RECEIVES] = false;
	}
}

static void login(struct rdma_cm_id *id, bool answers, const struct rdma_conn_param *from)
{
	const uint8_t *req = from->private_data;
	struct rdma_conn_param param = { .rnr_retry_count = 7 };
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 256, .max_recv_wr = RECEIVES, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	uint8_t rsp[196] = { LOGIN_RSP };
	struct channel *c = NULL;
	int in_use = 0;

	check(from->private_data_len >= 56, "length of the login request");
	for (int i = CHANNELS; i--;) {
		if (channels[i].id)
			in_use++;
		else
			c = &channels[i];
	}
	if (answers)
		say("login for answers multi=%d", req[10] & 1);
	else
		say("login multi=%d length=%d", req[10] & 1, from->private_data_len);
	if (login_silent)
		return;
	if (login_reject >= 0 || in_use >= login_only) {
		uint8_t rej[32] = { LOGIN_REJ };

		put(rej + 4, 4, login_reject >= 0 ? login_reject : 0x10001);
		memcpy(rej + 8, req, 8);
		put(rej + 24, 2, 6);
		rdma_reject(id, rej, sizeof(rej));
		rdma_destroy_id(id);
		return;
	}
	check(c, "a free channel");
	if (!pd) {
		pd = ibv_alloc_pd(id->verbs);
		check(pd, "alloc_pd");
		disk_mr = ibv_reg_mr(pd, disk, DISK, IBV_ACCESS_LOCAL_WRITE);
		completions = ibv_create_comp_channel(id->verbs);
		check(disk_mr && completions, "memory of the disk");
		fcntl(completions->fd, F_SETFL, O_NONBLOCK);
	}
	c->id = id;
	c->answers = answers;
	id->context = c;
	c->memory = calloc(RECEIVES + 2 * SENDS, IU);
	c->mr = ibv_reg_mr(pd, c->memory, (RECEIVES + 2 * SENDS) * IU, IBV_ACCESS_LOCAL_WRITE);
	c->cq = ibv_create_cq(id->verbs, 512, c, completions, 0);
	check(c->mr && c->cq && !ibv_req_notify_cq(c->cq, 0), "memory of a channel");
	attr.send_cq = attr.recv_cq = c->cq;
	check(!rdma_create_qp(id, pd, &attr), "create_qp");
	for (int i = 0; i < RECEIVES; i++)
		post_receive(c, i);

	put(rsp + 4, 4, answers ? 0 : CREDITS);
	memcpy(rsp + 8, req, 8);
	put(rsp + 16, 4, IU);
	put(rsp + 20, 4, 96);
	put(rsp + 24, 2, 6);
	rsp[26] = req[10] & 1 ? 2 : 0;
	if (login_offset >= 0)
		memcpy(rsp + login_offset, login_bytes, n_login_bytes);
	param.private_data = rsp;
	param.private_data_len = login_length;
	param.initiator_depth = from->initiator_depth < 4 ? from->initiator_depth : 4;
	param.responder_resources = 1;
	if (rdma_accept(id, &param))
		leave(c);
}

static bool send_to_first(const char *what, const char *args)
{
	struct channel *c = NULL;
	int a = 0, b = 0, d = 0, i, len = 16;
	uint8_t *m;

	for (i = CHANNELS; i--;)
		if (channels[i].id)
			c = &channels[i];
	if (!c) {
		say("FAILED: no channel to send to");
		return false;
	}
	i = take(c);
	m = message(c, i);
	put(m + 8, 8, 0x1234567890abcdef);
	if (!strcmp(what, "logout") && sscanf(args, "%d", &a) == 1) {
		m[0] = T_LOGOUT;
		put(m + 4, 4, a);
	} else if (!strcmp(what, "credits") && sscanf(args, "%d", &a) == 1) {
		m[0] = CRED_REQ;
		put(m + 4, 4, (uint32_t)a);
	} else if (!strcmp(what, "report") && sscanf(args, "%x %x %x", &a, &b, &d) == 3) {
		m[0] = AER_REQ;
		put(m + 28, 4, 18);
		fixed_sense(m + 36, a << 16 | b << 8 | d);
		len = 36 + 18;
	} else {
		say("FAILED: send %s %s", what, args);
		c->sending[i] = false;
		return false;
	}
	send_message(c, i, len);
	return true;
}

static void cm_event(void)
{
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;
	int what;

	while (!rdma_get_cm_event(events, &event)) {
		id = event->id;
		what = event->event;
		if (what == RDMA_CM_EVENT_CONNECT_REQUEST)
			login(id, event->listen_id == answers_listener, &event->param.conn);
		rdma_ack_cm_event(event);
		switch (what) {
		case RDMA_CM_EVENT_ESTABLISHED:
			say("channel=%d", number(id->context));
			/* More credits than there can be. */
			if (login_break)
				send_to_first("credits", "2147483647");
			break;
		case RDMA_CM_EVENT_DISCONNECTED:
			rdma_disconnect(id);
			/* fall through */
		case RDMA_CM_EVENT_CONNECT_ERROR:
		case RDMA_CM_EVENT_UNREACHABLE:
		case RDMA_CM_EVENT_REJECTED:
			if (id->context) {
				/* What came before the end counts. */
				poll_channel(id->context);
				leave(id->context);
			} else {
				rdma_destroy_id(id);
			}
			break;
		}
	}
}

static void told(char *line)
{
	char a[32] = "", b[64] = "", rest[96] = "", args[160];
	int n = sscanf(line, "%*s %31s %63s %95[^\n]", a, b, rest);

	line[strcspn(line, "\n")] = 0;
	if (!strncmp(line, "on ", 3) && n >= 2) {
		check(add_rule(a, b, rest), line);
	} else if (!strcmp(line, "answer")) {
		for (int i = 0; i < n_held; i++)
			respond(answering(held[i].channel, held[i].iu), get(held[i].iu + 8, 8), GOOD, 0, 0);
		n_held = 0;
	} else if (!strncmp(line, "tmf ", 4) && n >= 1) {
		tmf_drop = !strcmp(a, "drop");
		tmf_code = atoi(a);
		tmf_keep = !strcmp(b, "keep");
	} else if (!strncmp(line, "abort ", 6) && n >= 1) {
		abort_code = atoi(a);
	} else if (!strncmp(line, "send ", 5) && n >= 2) {
		snprintf(args, sizeof(args), "%s %s", b, rest);
		if (!send_to_first(a, args))
			return;
	} else if (!strncmp(line, "login ", 6) && n >= 1) {
		login_silent = !strcmp(a, "silent");
		login_break = !strcmp(a, "break");
		login_only = !strcmp(a, "only") ? atoi(b) : CHANNELS;
		login_reject = !strcmp(a, "reject") ? strtol(b, NULL, 16) : -1;
		login_length = !strcmp(a, "length") ? atoi(b) : 52;
		login_offset = !strcmp(a, "bytes") ? atoi(b) : -1;
		n_login_bytes = strlen(rest) / 2;
		check(n_login_bytes <= (int)sizeof(login_bytes), line);
		put(login_bytes, n_login_bytes, strtoull(rest, NULL, 16));
	} else if (!strncmp(line, "grant ", 6) && n >= 1) {
		grant = !strcmp(a, "all");
		grant_every = !strcmp(a, "every") ? atoi(b) : 0;
		grant_channel = *b && !grant_every ? atoi(b) : -1;
		granted_at = time(NULL);
	} else if (!strncmp(line, "receive off", 11)) {
		no_receives = true;
	} else if (!strncmp(line, "luns ", 5) && n >= 1) {
		luns = atoi(a);
		luns_size = *b ? strtoul(b, NULL, 16) : 8ul * luns;
	} else if (!strncmp(line, "answers ", 8)) {
		answers_here = !strcmp(a, "here");
	} else if (!strncmp(line, "disconnect", 10)) {
		for (int i = 0; i < CHANNELS; i++)
			if (channels[i].id && (channels[i].answers || strcmp(a, "answers")))
				rdma_disconnect(channels[i].id);
	} else {
		say("FAILED: %s", line);
		return;
	}
	say("did %s", line);
}

static struct rdma_cm_id *listen_at(const char *address, const char *port)
{
	struct rdma_addrinfo hints = { .ai_flags = RAI_PASSIVE, .ai_port_space = RDMA_PS_TCP }, *at;
	struct rdma_cm_id *listener;

	check(!rdma_getaddrinfo(address, port, &hints, &at), "address");
	check(!rdma_create_id(events, &listener, NULL, RDMA_PS_TCP), "create_id");
	check(!rdma_bind_addr(listener, at->ai_src_addr), "bind");
	check(!rdma_listen(listener, CHANNELS), "listen");
	return listener;
}

int main(int argc, char **argv)
{
	char line[256];

	if (argc != 4)
		return 2;
	disk = calloc(1, DISK);
	events = rdma_create_event_channel();
	check(disk && events, "event channel");
	fcntl(events->fd, F_SETFL, O_NONBLOCK);
	listen_at(argv[1], argv[2]);
	answers_listener = listen_at(argv[1], argv[3]);
	say("listens");
	for (;;) {
		struct pollfd fds[3] = {
			{ .fd = 0, .events = POLLIN }, { .fd = events->fd, .events = POLLIN },
			{ .fd = completions ? completions->fd : -1, .events = POLLIN },
		};
		struct ibv_cq *cq;
		void *c;

		check(poll(fds, 3, grant_every ? 500 : -1) >= 0, "poll");
		if (grant_every && time(NULL) - granted_at >= grant_every) {
			granted_at = time(NULL);
			send_to_first("credits", "1");
		}
		if (fds[2].revents)
			while (!ibv_get_cq_event(completions, &cq, &c)) {
				ibv_ack_cq_events(cq, 1);
				poll_channel(c);
			}
		if (fds[1].revents)
			cm_event();
		/* A pipe gives whole lines, one at a time to one reader. */
		if (fds[0].revents) {
			if (!fgets(line, sizeof(line), stdin))
				return 0;
			told(line);
		}
	}
}
