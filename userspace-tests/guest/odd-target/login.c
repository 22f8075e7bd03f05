// SPDX-License-Identifier: GPL-2.0
#include "commands.h"
#include "login.h"

static int login_only = CHANNELS, login_offset = -1, login_length = 52, n_login_bytes;
static bool login_silent, login_break;
static long login_reject = -1;
static uint8_t login_bytes[32];

enum verdict login(const struct asks *req, uint8_t *answer, int *answer_len)
{
	check(req->len >= 56, "length of the login request");
	memset(answer, 0, ANSWER);
	if (req->answers)
		say("login for answers multi=%d", req->flags & 1);
	else
		say("login multi=%d length=%d", req->flags & 1, req->len);
	if (login_silent)
		return IGNORE;
	memcpy(answer + 8, req->tag, 8);
	if (login_reject >= 0 || in_use() >= login_only) {
		answer[0] = LOGIN_REJ;
		put(answer + 4, 4, login_reject >= 0 ? login_reject : 0x10001);
		put(answer + 24, 2, 6);
		*answer_len = 32;
		return REFUSE;
	}
	answer[0] = LOGIN_RSP;
	put(answer + 4, 4, req->answers ? 0 : CREDITS);
	put(answer + 16, 4, IU);
	put(answer + 20, 4, 96);
	put(answer + 24, 2, 6);
	answer[26] = req->flags & 1 ? 2 : 0;
	if (login_offset >= 0)
		memcpy(answer + login_offset, login_bytes, n_login_bytes);
	*answer_len = login_length;
	return ACCEPT;
}

void logged_in(int channel)
{
	say("channel=%d", channel);
	if (login_break)
		grant_too_much();
}

bool login_told(const char *word, const char *a, const char *b, const char *rest)
{
	if (strcmp(word, "login") || !*a)
		return false;
	login_silent = !strcmp(a, "silent");
	login_break = !strcmp(a, "break");
	login_only = !strcmp(a, "only") ? atoi(b) : CHANNELS;
	login_reject = !strcmp(a, "reject") ? strtol(b, NULL, 16) : -1;
	login_length = !strcmp(a, "length") ? atoi(b) : 52;
	login_offset = !strcmp(a, "bytes") ? atoi(b) : -1;
	n_login_bytes = strlen(rest) / 2;
	check(n_login_bytes <= (int)sizeof(login_bytes), "bytes of the login response");
	put(login_bytes, n_login_bytes, strtoull(rest, NULL, 16));
	return true;
}
