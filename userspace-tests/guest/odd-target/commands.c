// SPDX-License-Identifier: GPL-2.0
#include <time.h>

#include "commands.h"
#include "rules.h"

enum { HELD = 64 };

struct held {
	struct channel *channel;
	uint8_t iu[IU];
};

static struct held held[HELD];
static int n_held;

static uint32_t luns_size = 8;
static int tmf_code, abort_code = -1, luns = 1;
static char vendor[9] = "SRP     ";
static bool answers_here, tmf_drop, tmf_keep, no_receives;

/* Number of credits returned with each response; the only channel to which this applies, or -1
 * for all; seconds per credit of the first channel, or 0. */
static int grant = 1, grant_channel = -1, grant_every;
static time_t granted_at;

static int grants(const struct channel *c) { return grant_channel < 0 || grant_channel == number(c) ? grant : 1; }

/* Returns the channel for the response to a command. */
static struct channel *answering(struct channel *c, const uint8_t *iu)
{
	if (iu[5] && !answers_here)
		for (int i = 0; i < CHANNELS; i++)
			if (used(&channels[i]) && channels[i].answers)
				return &channels[i];
	return c;
}

static void respond(struct channel *c, uint64_t tag, int status, uint32_t sense, uint32_t unused_in)
{
	int i = take(c);

	send_message(c, i, response(message(c, i), grants(c), tag, status, sense, unused_in));
}

/* Sends `len` bytes, limited to the buffers of the command. Returns how many bytes of the
 * buffers remain unused. */
static uint32_t reply(struct channel *c, const uint8_t *iu, const uint8_t *bytes, uint32_t len)
{
	uint32_t space = room(iu);
	/* The response will take the next free message. Use that one's data block. */
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
	case 0x00: case 0x1b: case 0x35: case 0x91:
		break;
	case 0x12:
		if (!(cdb[1] & 1)) {
			b[0] = lun < luns ? 0 : 0x7f;
			b[2] = 6, b[3] = 2, b[4] = 31, b[7] = 2;
			memcpy(b + 8, vendor, 8);
			memcpy(b + 16, "test target     0   ", 20);
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
		transfer(c, iu, true, disk + lba * BLOCK, c->device->disk->lkey, blocks * BLOCK);
		break;
	case 0x2a: case 0x8a:
		transfer(c, iu, false, disk + lba * BLOCK, c->device->disk->lkey, blocks * BLOCK);
		break;
	default:
		sense = 0x52000;
	}
	while (times--)
		respond(c, tag, sense ? CHECK_CONDITION : GOOD, sense, unused);
}

/* Sends CHECK CONDITION with the sense data of a rule, and the first bytes of a READ(10). */
static void fail(struct channel *c, const uint8_t *iu, const struct rule *rule)
{
	uint64_t at = get(iu + 34, 4) * BLOCK;
	int i, len;

	if (rule->sent && iu[32] == 0x28 && at + rule->sent <= DISK)
		transfer(c, iu, true, disk + at, c->device->disk->lkey, rule->sent);
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

void forget(const struct channel *c, int lun, uint64_t tag)
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

void poll_channel(struct channel *c)
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

static bool send_to_first(const char *what, const char *args)
{
	struct channel *c = first_channel();
	int a = 0, b = 0, d = 0, i, len = 16;
	uint8_t *m;

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


bool commands_told(const char *word, const char *a, const char *b, const char *rest)
{
	char args[160];

	if (!strcmp(word, "on") && *b) {
		check(add_rule(a, b, rest), "a rule");
	} else if (!strcmp(word, "answer")) {
		for (int i = 0; i < n_held; i++) {
			struct channel *c = answering(held[i].channel, held[i].iu);
			uint64_t tag = get(held[i].iu + 8, 8);

			if (!strcmp(a, "data"))
				carry_out(c, held[i].iu, 1, tag);
			else
				respond(c, tag, GOOD, 0, 0);
		}
		n_held = 0;
	} else if (!strcmp(word, "tmf") && *a) {
		tmf_drop = !strcmp(a, "drop");
		tmf_code = atoi(a);
		tmf_keep = !strcmp(b, "keep");
	} else if (!strcmp(word, "abort") && *a) {
		abort_code = atoi(a);
	} else if (!strcmp(word, "send") && *b) {
		snprintf(args, sizeof(args), "%s %s", b, rest);
		return send_to_first(a, args);
	} else if (!strcmp(word, "grant") && *a) {
		grant = !strcmp(a, "all");
		grant_every = !strcmp(a, "every") ? atoi(b) : 0;
		grant_channel = *b && !grant_every ? atoi(b) : -1;
		granted_at = time(NULL);
	} else if (!strcmp(word, "receive") && !strcmp(a, "off")) {
		no_receives = true;
	} else if (!strcmp(word, "vendor") && *a) {
		snprintf(vendor, sizeof(vendor), "%-8s", a);
	} else if (!strcmp(word, "luns") && *a) {
		luns = atoi(a);
		luns_size = *b ? strtoul(b, NULL, 16) : 8ul * luns;
	} else if (!strcmp(word, "answers") && *a) {
		answers_here = !strcmp(a, "here");
	} else {
		return false;
	}
	return true;
}

bool grant_later(void)
{
	if (grant_every && time(NULL) - granted_at >= grant_every) {
		granted_at = time(NULL);
		send_to_first("credits", "1");
	}
	return grant_every;
}

void grant_too_much(void)
{
	send_to_first("credits", "2147483647");
}
