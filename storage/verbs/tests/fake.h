/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Made-up librdmacm and libibverbs, for tests of src/ and of programs above it. Devices "fake0" and "fake1" have the
 * addresses 192.0.2.1 and 192.0.2.2, and connect to themselves. As in librdmacm, all identifiers of a device share a
 * context. It is closed once the device is removed and they are all destroyed, or else when the library meets another
 * new device. Nothing is freed, so that each use of what was closed or destroyed is seen: fake_misuse() tells. Only
 * fake_again() lets an identifier have the address of a destroyed one.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#undef ibv_query_port
#undef ibv_reg_mr

/* READS: the RDMA READs that a queue pair issues at once. VECTORS: completion vectors of a device. */
enum { DEVICES = 2, DEPTH = 4096, READS = 4, VECTORS = 3, LARGE = 1 << 20 };
struct queue {
	int fds[2];
	void *items[DEPTH];
	unsigned int head, tail;
};
struct device {
	struct ibv_device dev;
	int number, here;
};
struct context {
	struct ibv_context ctx;
	struct device *device;
	struct queue async;
	struct channel *channels;
	int closed, objects;
};
/* A device that librdmacm knows. */
struct known {
	struct device *device;
	struct context *context;
	int ids, dead;
};
struct pd { struct ibv_pd pd; int freed; };
struct mr { struct ibv_mr mr; int freed; };
struct channel {
	struct ibv_comp_channel ch;
	struct queue events;
	struct channel *next;
	int freed;
};
struct cq {
	struct ibv_cq cq;
	struct ibv_wc wcs[DEPTH];
	unsigned int head, tail;
	int armed, freed;
};
struct qp {
	struct ibv_qp qp;
	struct ibv_recv_wr receives[DEPTH];
	struct ibv_sge sges[DEPTH];
	unsigned int head, tail;
	struct qp *peer;
	int freed;
};
struct id {
	struct rdma_cm_id id;
	struct known *known;
	struct id *peer;
	int backlog, freed;
};

/* fake_verbs.c */
extern pthread_mutex_t fake_lock;
extern struct device *fake_devices[DEVICES];
extern struct context *fake_contexts[64];
extern unsigned int fake_count_contexts;
void fake_wrong(const char *what, const char *how);
void fake_open_queue(struct queue *q);
void fake_push(struct queue *q, void *item);
void *fake_pull(struct queue *q);
void fake_end_channels(struct context *c);
struct context *fake_context_of(struct ibv_context *ctx, const char *what);
struct context *fake_open_context(struct device *d);
void fake_close_context(struct context *c);
struct device *fake_make(int number);
void fake_init(void);
int fake_destroy(struct ibv_context *ctx, int *freed, const char *what);
