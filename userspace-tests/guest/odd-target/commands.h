/* SPDX-License-Identifier: GPL-2.0 */
/* Execution of commands and task management functions. */
#ifndef TARGET_COMMANDS_H
#define TARGET_COMMANDS_H
#include "channel.h"

/* Handles receive and send completions. */
void poll_channel(struct channel *c);
/* Drops held commands: of a channel (NULL for all), of a LUN (-1 for all), with a tag (0 for all). */
void forget(const struct channel *c, int lun, uint64_t tag);
/* Executes an order. Returns false if it is unknown or failed. */
bool commands_told(const char *word, const char *a, const char *b, const char *rest);
/* Grants a credit that is due. Returns whether more will follow. */
bool grant_later(void);
/* Grants more credits than possible. */
void grant_too_much(void);

#endif
