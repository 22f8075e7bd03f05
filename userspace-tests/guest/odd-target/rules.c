// SPDX-License-Identifier: GPL-2.0
#include "bytes.h"
#include "rules.h"

static struct rule rules[4];

bool add_rule(const char *opcode, const char *action, const char *count)
{
	static const char *const names[] = { "normal", "hold", "twice", "astray", "busy", "short:", "check:" };
	int code = strtol(opcode, NULL, 16);
	struct rule *r = rules;
	const char *end;
	size_t len;

	while (r < rules + 3 && r->left && r->opcode != code)
		r++;
	memset(r, 0, sizeof(*r));
	r->opcode = code;
	for (r->action = CHECK; r->action; r->action--) {
		len = strlen(names[r->action]);
		if (r->action >= SHORT ? !strncmp(action, names[r->action], len) : !strcmp(action, names[r->action]))
			break;
	}
	if (!r->action)
		return !strcmp(action, names[NORMAL]);
	if (r->action >= SHORT) {
		end = action + len;
		if (r->action == CHECK) {
			r->sent = strtoul(end, (char **)&end, 10);
			if (*end++ != ':')
				return false;
		}
		r->length = digits(end, r->bytes, sizeof(r->bytes));
	}
	r->left = *count ? atoi(count) : 1;
	return r->length >= 0;
}

const struct rule *rule_for(int opcode)
{
	for (struct rule *r = rules; r < rules + 4; r++)
		if (r->left && r->opcode == opcode) {
			r->left--;
			return r;
		}
	return NULL;
}
