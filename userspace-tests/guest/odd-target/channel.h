/* SPDX-License-Identifier: GPL-2.0 */
/* A channel: a queue pair, its messages, and the memory that they are in. */
#ifndef TARGET_CHANNEL_H
#define TARGET_CHANNEL_H
#include <infiniband/verbs.h>
#include <poll.h>

#include "bytes.h"

enum { CHANNELS = 16, CREDITS = 32, RECEIVES = CREDITS + 8, SENDS = 64, IU = 1024, BLOCK = 512, DEVICES = 4 };
enum { DISK = 16 << 20 };

/* What all channels of a device use. */
struct device {
	struct ibv_context *verbs;
	struct ibv_pd *pd;
	struct ibv_mr *disk;
	struct ibv_comp_channel *completions;
};

struct channel {
	struct device *device;
	struct ibv_qp *qp;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	/* RECEIVES messages, SENDS messages, SENDS blocks of data. */
	uint8_t *memory;
	bool sending[SENDS];
	/* The one for answers. */
	bool answers;
	/* The connection manager's. */
	void *connection;
};

extern struct channel channels[CHANNELS];
extern uint8_t *disk;

static inline int number(const struct channel *c) { return c - channels; }
static inline bool used(const struct channel *c) { return c->device; }
static inline uint8_t *receive(struct channel *c, int i) { return c->memory + i * IU; }
static inline uint8_t *message(struct channel *c, int i) { return c->memory + (RECEIVES + i) * IU; }
static inline uint8_t *data(struct channel *c, int i) { return c->memory + (RECEIVES + SENDS + i) * IU; }

/* A disk of zeros. */
void make_disk(void);
/* What the channels of a device use; made for the first one. */
struct device *device_of(struct ibv_context *verbs);
/* For poll(): returns how many. */
int all_completions(struct pollfd *fds);
/* Channels whose queues have something; calls `with` for each. */
void each_completion(void (*with)(struct channel *));

/* How many are in use; the first one, or NULL; one that is not, or NULL. */
int in_use(void);
struct channel *first_channel(void);
struct channel *free_channel(void);
/* Begins with a free one, but for its queue pair, which `attr` is for. */
void open_channel(struct channel *c, struct ibv_context *verbs, struct ibv_qp_init_attr *attr);
/* And the queue pair must have gone. */
void close_channel(struct channel *c);

void post_receive(struct channel *c, int i);
void post_receives(struct channel *c);
/* A free message, zeroed. */
int take(struct channel *c);
void send_message(struct channel *c, int i, int len);
/* Moves `len` bytes between memory of ours and the buffers of a command; returns how many fit. */
uint32_t transfer(struct channel *c, const uint8_t *iu, bool in, void *at, uint32_t lkey, uint32_t len);

#endif
