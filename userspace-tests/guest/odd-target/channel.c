// SPDX-License-Identifier: GPL-2.0
#include <fcntl.h>

#include "channel.h"

struct channel channels[CHANNELS];
uint8_t *disk;

static struct device devices[DEVICES];

void make_disk(void)
{
	disk = calloc(1, DISK);
	check(disk, "memory of the disk");
}

struct device *device_of(struct ibv_context *verbs)
{
	struct device *d = devices;

	while (d->verbs && d->verbs != verbs)
		check(++d < devices + DEVICES, "too many devices");
	if (d->verbs)
		return d;
	d->verbs = verbs;
	d->pd = ibv_alloc_pd(verbs);
	check(d->pd, "alloc_pd");
	d->disk = ibv_reg_mr(d->pd, disk, DISK, IBV_ACCESS_LOCAL_WRITE);
	d->completions = ibv_create_comp_channel(verbs);
	check(d->disk && d->completions, "memory of the disk");
	fcntl(d->completions->fd, F_SETFL, O_NONBLOCK);
	return d;
}

int all_completions(struct pollfd *fds)
{
	int n = 0;

	for (; n < DEVICES && devices[n].verbs; n++)
		fds[n] = (struct pollfd) { .fd = devices[n].completions->fd, .events = POLLIN };
	return n;
}

void each_completion(void (*with)(struct channel *))
{
	struct ibv_cq *cq;
	void *c;

	for (struct device *d = devices; d < devices + DEVICES && d->verbs; d++)
		while (!ibv_get_cq_event(d->completions, &cq, &c)) {
			ibv_ack_cq_events(cq, 1);
			with(c);
		}
}

int in_use(void)
{
	int n = 0;

	for (int i = 0; i < CHANNELS; i++)
		n += used(&channels[i]);
	return n;
}

struct channel *first_channel(void)
{
	for (int i = 0; i < CHANNELS; i++)
		if (used(&channels[i]))
			return &channels[i];
	return NULL;
}

struct channel *free_channel(void)
{
	for (int i = 0; i < CHANNELS; i++)
		if (!used(&channels[i]))
			return &channels[i];
	return NULL;
}

void open_channel(struct channel *c, struct ibv_context *verbs, struct ibv_qp_init_attr *attr)
{
	c->device = device_of(verbs);
	c->memory = calloc(RECEIVES + 2 * SENDS, IU);
	c->mr = ibv_reg_mr(c->device->pd, c->memory, (RECEIVES + 2 * SENDS) * IU, IBV_ACCESS_LOCAL_WRITE);
	c->cq = ibv_create_cq(verbs, 512, c, c->device->completions, 0);
	check(c->mr && c->cq && !ibv_req_notify_cq(c->cq, 0), "memory of a channel");
	*attr = (struct ibv_qp_init_attr) {
		.send_cq = c->cq, .recv_cq = c->cq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 256, .max_recv_wr = RECEIVES, .max_send_sge = 1, .max_recv_sge = 1 },
	};
}

void close_channel(struct channel *c)
{
	ibv_destroy_cq(c->cq);
	ibv_dereg_mr(c->mr);
	free(c->memory);
	memset(c, 0, sizeof(*c));
}

void post_receive(struct channel *c, int i)
{
	struct ibv_sge sge = { (uintptr_t)receive(c, i), IU, c->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = i, .sg_list = &sge, .num_sge = 1 }, *bad;

	if (ibv_post_recv(c->qp, &wr, &bad))
		say("cannot receive on channel=%d", number(c));
}

void post_receives(struct channel *c)
{
	for (int i = 0; i < RECEIVES; i++)
		post_receive(c, i);
}

/* Reaps send completions of a channel that receives nothing. Returns whether there were any. */
static bool reap(struct channel *c)
{
	struct ibv_wc wc;
	bool any = false;

	while (ibv_poll_cq(c->cq, 1, &wc) > 0)
		if (wc.wr_id >= RECEIVES && wc.wr_id < RECEIVES + SENDS)
			any = true, c->sending[wc.wr_id - RECEIVES] = false;
	return any;
}

int take(struct channel *c)
{
	do {
		for (int i = 0; i < SENDS; i++)
			if (!c->sending[i]) {
				c->sending[i] = true;
				memset(message(c, i), 0, IU);
				return i;
			}
		/* This channel sends the responses to commands of all channels: wait for a
		 * completion. */
		for (int ms = 0; c->answers && !reap(c) && ms < 5000; ms++)
			poll(NULL, 0, 1);
	} while (c->answers);
	say("FAILED: no free message");
	exit(1);
}

void send_message(struct channel *c, int i, int len)
{
	struct ibv_sge sge = { (uintptr_t)message(c, i), len, c->mr->lkey };
	/* The fence waits until the data of RDMA READs has arrived. */
	struct ibv_send_wr wr = {
		.wr_id = RECEIVES + i, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED | IBV_SEND_FENCE,
	}, *bad;

	if (ibv_post_send(c->qp, &wr, &bad))
		say("cannot send on channel=%d", number(c));
}

uint32_t transfer(struct channel *c, const uint8_t *iu, bool in, void *at, uint32_t lkey, uint32_t len)
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

		if (ibv_post_send(c->qp, &wr, &bad))
			say("cannot transfer on channel=%d", number(c));
		done += part;
	}
	return done;
}
