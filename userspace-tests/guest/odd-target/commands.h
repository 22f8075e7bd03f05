/* SPDX-License-Identifier: GPL-2.0 */
/* Commands and task management: what is done with them. */
#ifndef TARGET_COMMANDS_H
#define TARGET_COMMANDS_H
#include "channel.h"

/* Takes what has arrived and what was sent. */
void poll_channel(struct channel *c);
/* Forgets held commands: of a channel (NULL for all), of a LUN (-1 for all), with a tag (0 for all). */
void forget(const struct channel *c, int lun, uint64_t tag);
/* Does what one of its orders says; false if it is none, or went wrong. */
bool commands_told(const char *word, const char *a, const char *b, const char *rest);
/* Gives the credit that is due; whether there will be others. */
bool grant_later(void);
/* More credits than there can be. */
void grant_too_much(void);

#endif
