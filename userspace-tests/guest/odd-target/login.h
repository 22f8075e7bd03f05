/* SPDX-License-Identifier: GPL-2.0 */
/* Responses to login requests. */
#ifndef TARGET_LOGIN_H
#define TARGET_LOGIN_H
#include "bytes.h"

enum verdict { ACCEPT, REFUSE, IGNORE };
/* Length of the private data of a response, in bytes. */
enum { ANSWER = 196 };

/* A login request, independent of the connection manager: its tag, flags and length, and whether it
 * arrived at the port for responses. */
struct asks {
	const uint8_t *tag;
	uint8_t flags;
	int len;
	bool answers;
};

/* Returns the verdict on a request. Sets the private data of the response and its length. */
enum verdict login(const struct asks *req, uint8_t *answer, int *answer_len);
/* Logs a successful login. */
void logged_in(int channel);
/* Executes an order. Returns false if it is unknown. */
bool login_told(const char *word, const char *a, const char *b, const char *rest);

#endif
