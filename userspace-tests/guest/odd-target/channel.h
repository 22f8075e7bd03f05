/* SPDX-License-Identifier: GPL-2.0 */
/* A channel: a queue pair, its messages, and their memory. */
#ifndef TARGET_CHANNEL_H
#define TARGET_CHANNEL_H
#include <infiniband/verbs.h>
#include <poll.h>

#include "bytes.h"

enum { CHANNELS = 16, CREDITS = 32, RECEIVES = CREDITS + 8, SENDS = 64, IU = 1024, BLOCK = 512, DEVICES = 4 };
enum { DISK = 16 << 20 };

/* Shared by all channels of a device. */
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
	/* RECEIVES + SENDS messages, then SENDS blocks of data. */
	uint8_t *memory;
	bool sending[SENDS];
	/* Whether this is the channel for responses. */
	bool answers;
	/* Private to the connection manager. */
	void *connection;
};

extern struct channel channels[CHANNELS];
extern uint8_t *disk;

static inline int number(const struct channel *c) { return c - channels; }
static inline bool used(const struct channel *c) { return c->device; }
static inline uint8_t *receive(struct channel *c, int i) { return c->memory + i * IU; }
static inline uint8_t *message(struct channel *c, int i) { return c->memory + (RECEIVES + i) * IU; }
static inline uint8_t *data(struct channel *c, int i) { return c->memory + (RECEIVES + SENDS + i) * IU; }

/* Creates a disk of zeros. */
void make_disk(void);
/* Returns the shared data of a device. The first call creates it. */
struct device *device_of(struct ibv_context *verbs);
/* Fills in entries for poll(). Returns their number. */
int all_completions(struct pollfd *fds);
/* Calls `with` for each channel with completions. */
void each_completion(void (*with)(struct channel *));

/* Return the number of channels in use; the first one, or NULL; a free one, or NULL. */
int in_use(void);
struct channel *first_channel(void);
struct channel *free_channel(void);
/* Initializes a free channel. Fills in `attr` for creating its queue pair. */
void open_channel(struct channel *c, struct ibv_context *verbs, struct ibv_qp_init_attr *attr);
/* The queue pair must have been destroyed. */
void close_channel(struct channel *c);

void post_receive(struct channel *c, int i);
void post_receives(struct channel *c);
/* Returns a free, zeroed message. */
int take(struct channel *c);
void send_message(struct channel *c, int i, int len);
/* Transfers `len` bytes between local memory and the buffers of a command, as far as they fit.
 * Returns the number of bytes. */
uint32_t transfer(struct channel *c, const uint8_t *iu, bool in, void *at, uint32_t lkey, uint32_t len);

#endif
