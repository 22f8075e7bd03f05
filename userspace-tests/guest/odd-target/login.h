/* SPDX-License-Identifier: GPL-2.0 */
/* Login requests: what is answered. */
#ifndef TARGET_LOGIN_H
#define TARGET_LOGIN_H
#include "bytes.h"

enum verdict { ACCEPT, REFUSE, IGNORE };
/* The private data of an answer. */
enum { ANSWER = 196 };

/* A login request, which each connection manager has in a form of its own: its tag, flags and length, and whether it is at a
 * port for answers. */
struct asks {
	const uint8_t *tag;
	uint8_t flags;
	int len;
	bool answers;
};

/* What it gets; with the bytes of the answer, and how many there are. */
enum verdict login(const struct asks *req, uint8_t *answer, int *answer_len);
/* Somebody is in. */
void logged_in(int channel);
/* Does what one of its orders says; false if it is none. */
bool login_told(const char *word, const char *a, const char *b, const char *rest);

#endif
