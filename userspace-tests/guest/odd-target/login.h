/* SPDX-License-Identifier: GPL-2.0 */
/* Login requests: what is answered. */
#ifndef TARGET_LOGIN_H
#define TARGET_LOGIN_H
#include "bytes.h"

enum verdict { ACCEPT, REFUSE, IGNORE };
/* The private data of an answer. */
enum { ANSWER = 196 };

/* What a request of `len` bytes gets, from a port for answers or not; with the bytes of the answer, and how many there are. */
enum verdict login(const uint8_t *req, int len, bool answers, uint8_t *answer, int *answer_len);
/* Somebody is in. */
void logged_in(int channel);
/* Does what one of its orders says; false if it is none. */
bool login_told(const char *word, const char *a, const char *b, const char *rest);

#endif
