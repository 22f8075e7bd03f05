/* SPDX-License-Identifier: GPL-2.0 */
/* A connection manager. */
#ifndef TARGET_MANAGER_H
#define TARGET_MANAGER_H
#include "channel.h"

struct manager {
	/* For poll(): returns how many. */
	int (*fds)(struct pollfd *fds);
	/* Does what is due; returns after how many ms there will be more, or -1. */
	int (*attend)(void);
	void (*hang_up)(struct channel *c);
	/* Does what an order says that only this one knows; false if it does not. */
	bool (*told)(const char *line);
};
/* Most of its file descriptors. */
enum { MANAGER_FDS = DEVICES };

/* RDMA/CM: listens at an address, at a port and another one, which is for answers. */
const struct manager *by_rdma(const char *address, const char *port, const char *answers);
/* The InfiniBand connection manager, which is one of ours, at these places (`NAME:DEVICE`). */
const struct manager *by_ib(char **places);

#endif
