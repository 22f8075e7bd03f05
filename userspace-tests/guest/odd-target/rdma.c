// SPDX-License-Identifier: GPL-2.0
/* Connections through RDMA/CM, by librdmacm. */
#include <fcntl.h>
#include <rdma/rdma_cma.h>

#include "commands.h"
#include "login.h"
#include "manager.h"

static struct rdma_event_channel *events;
static struct rdma_cm_id *answers_listener;

static void leave(struct channel *c)
{
	struct rdma_cm_id *id = c->connection;

	say("gone channel=%d", number(c));
	forget(c, -1, 0);
	rdma_destroy_qp(id);
	close_channel(c);
	rdma_destroy_id(id);
}

static void asked(struct rdma_cm_id *id, bool answers, const struct rdma_conn_param *from)
{
	const uint8_t *req = from->private_data;
	struct asks asks = { .tag = req, .len = from->private_data_len, .answers = answers };
	struct rdma_conn_param param = { .rnr_retry_count = 7 };
	struct ibv_qp_init_attr attr;
	uint8_t answer[ANSWER];
	struct channel *c;
	int len;

	if (asks.len > 10)
		asks.flags = req[10];
	switch (login(&asks, answer, &len)) {
	case IGNORE:
		return;
	case REFUSE:
		rdma_reject(id, answer, len);
		rdma_destroy_id(id);
		return;
	default:
		break;
	}
	c = free_channel();
	check(c, "a free channel");
	open_channel(c, id->verbs, &attr);
	c->answers = answers;
	c->connection = id;
	id->context = c;
	check(!rdma_create_qp(id, c->device->pd, &attr), "create_qp");
	c->qp = id->qp;
	post_receives(c);
	param.private_data = answer;
	param.private_data_len = len;
	param.initiator_depth = from->initiator_depth < 4 ? from->initiator_depth : 4;
	param.responder_resources = 1;
	if (rdma_accept(id, &param))
		leave(c);
}

static int attend(void)
{
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;
	int what;

	while (!rdma_get_cm_event(events, &event)) {
		id = event->id;
		what = event->event;
		if (what == RDMA_CM_EVENT_CONNECT_REQUEST)
			asked(id, event->listen_id == answers_listener, &event->param.conn);
		rdma_ack_cm_event(event);
		switch (what) {
		case RDMA_CM_EVENT_ESTABLISHED:
			logged_in(number(id->context));
			break;
		case RDMA_CM_EVENT_DISCONNECTED:
			rdma_disconnect(id);
			/* fall through */
		case RDMA_CM_EVENT_CONNECT_ERROR:
		case RDMA_CM_EVENT_UNREACHABLE:
		case RDMA_CM_EVENT_REJECTED:
			if (id->context) {
				/* Handle completions that precede the end of the connection. */
				poll_channel(id->context);
				leave(id->context);
			} else {
				rdma_destroy_id(id);
			}
			break;
		}
	}
	return -1;
}

static int fds(struct pollfd *fds)
{
	*fds = (struct pollfd) { .fd = events->fd, .events = POLLIN };
	return 1;
}

static void hang_up(struct channel *c)
{
	rdma_disconnect(c->connection);
}

static bool told(const char *line)
{
	(void)line;
	return false;
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

const struct manager *by_rdma(const char *address, const char *port, const char *answers)
{
	static const struct manager manager = { .fds = fds, .attend = attend, .hang_up = hang_up, .told = told };

	events = rdma_create_event_channel();
	check(events, "event channel");
	fcntl(events->fd, F_SETFL, O_NONBLOCK);
	listen_at(address, port);
	answers_listener = listen_at(address, answers);
	return &manager;
}
