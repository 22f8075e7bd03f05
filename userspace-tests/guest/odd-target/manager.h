/* SPDX-License-Identifier: GPL-2.0 */
/* A connection manager. */
#ifndef TARGET_MANAGER_H
#define TARGET_MANAGER_H
#include "channel.h"

struct manager {
	/* Fills in entries for poll(). Returns their number. */
	int (*fds)(struct pollfd *fds);
	/* Does pending work. Returns the time until the next work in ms, or -1. */
	int (*attend)(void);
	void (*hang_up)(struct channel *c);
	/* Executes an order for this manager. Returns false if it is unknown. */
	bool (*told)(const char *line);
};
/* Maximum number of file descriptors of a connection manager. */
enum { MANAGER_FDS = DEVICES };

/* RDMA/CM: listens on an address at two ports; the second one is for responses. */
const struct manager *by_rdma(const char *address, const char *port, const char *answers);
/* Our InfiniBand CM, at these places (`NAME:DEVICE`). */
const struct manager *by_ib(char **places);

#endif
