// SPDX-License-Identifier: GPL-2.0
/*
 * target ADDRESS PORT ANSWERS: an SRP target over rdma_cm with a disk of 16 MiB in memory, for the tests that need
 * behaviour which the kernel's target does not have. ANSWERS is a second port. A channel that logs in there gets no
 * credits, and then carries the data and the responses of commands with data. The target logs events on standard output
 * and takes orders from standard input.
 *
 * target ib NAME:DEVICE...: the same over the InfiniBand connection manager; this program is its target side. Each
 * NAME is a queue pair at port 1 of DEVICE. It receives requests for this queue pair, or those to the port if `cm` of
 * ib_vfab says so, for any service ID.
 *
 * on OPCODE ACTION [COUNT]   the next COUNT (1) commands with this operation code (hexadecimal) are held
 *                            (`hold`), answered `twice`, with an unknown tag (`astray`), with status
 *                            BUSY (`busy`), with GOOD and only these bytes (`short:HEX`), or with CHECK
 *                            CONDITION, this sense data, and this many bytes of the disk (`check:BYTES:HEX`; no
 *                            sense data without HEX); the last two report no residual. Replaces
 *                            the previous rule for this code; `normal` removes it
 * answer [data]              answers the held commands as if they were done, in order; with `data`
 *                            executes them
 * tmf CODE|drop [keep]       task management requests get this response code (initially 0), or no response; with
 *                            `keep` the commands that they abort stay held
 * abort CODE                 a different code for ABORT TASK; -1 for none
 * send logout REASON         sends a message on the first channel
 * send credits DELTA
 * send report KEY ASC ASCQ   sends an event report for LUN 0 with this sense data (hexadecimal)
 * login ok|silent            logins are answered or not
 * login only N               at most N channels are accepted
 * login reject REASON        logins get an SRP_LOGIN_REJ (hexadecimal)
 * login bytes OFFSET HEX     overwrites bytes of the SRP_LOGIN_RSP
 * login length N             length of the response's private data
 * grant all|none [CHANNEL]   responses return credits or not; on this channel only, or on all
 * grant every SECONDS        responses return none, but the first channel gets one credit per SECONDS
 * receive off                posts no more receive buffers
 * vendor NAME                sets the vendor in the INQUIRY data, instead of SRP
 * luns N [SIZE]              LUNs 0 to N - 1, in a list with SIZE (hexadecimal) in its length field
 * answers here|there         responses go to the channel of the command, or to the channel for responses
 *                            if there is one (initially)
 * disconnect [answers]       disconnects all channels, or the one for responses
 * requests [N] STEP...       with `ib`: a script for the N (1) next requests, after the scripts set previously. A
 *                            retransmission counts as a new request if there was no response yet. The steps, in
 *                            order: `rep` (the response, or what `login` says), `rep:OFFSET:HEX` (with changed bytes),
 *                            `rej:REASON[:INFO[:DATA]]`, `mra:TIMEOUT`, `dreq`, `wait:MS`, `nothing`. Default: `rep`
 * requests forget            removes all scripts
 */
#include "commands.h"
#include "login.h"
#include "manager.h"

static const struct manager *manager;

static void told(char *line)
{
	char word[32] = "", a[32] = "", b[64] = "", rest[96] = "";

	line[strcspn(line, "\n")] = 0;
	sscanf(line, "%31s %31s %63s %95[^\n]", word, a, b, rest);
	if (!strcmp(word, "disconnect")) {
		for (int i = 0; i < CHANNELS; i++)
			if (used(&channels[i]) && (channels[i].answers || strcmp(a, "answers")))
				manager->hang_up(&channels[i]);
	} else if (!commands_told(word, a, b, rest) && !login_told(word, a, b, rest) && !manager->told(line)) {
		say("FAILED: %s", line);
		return;
	}
	say("did %s", line);
}

int main(int argc, char **argv)
{
	struct pollfd fds[1 + MANAGER_FDS + DEVICES] = { { .fd = 0, .events = POLLIN } };
	char line[512];
	int n, ms;

	if (argc < 3 || (strcmp(argv[1], "ib") && argc != 4))
		return 2;
	make_disk();
	manager = strcmp(argv[1], "ib") ? by_rdma(argv[1], argv[2], argv[3]) : by_ib(argv + 2);
	say("listens");
	ms = -1;
	for (;;) {
		n = 1 + manager->fds(fds + 1);
		n += all_completions(fds + n);
		check(poll(fds, n, ms) >= 0, "poll");
		ms = grant_later() ? 500 : -1;
		each_completion(poll_channel);
		n = manager->attend();
		if (n >= 0 && (ms < 0 || n < ms))
			ms = n;
		/* A pipe delivers whole lines, one at a time to a single reader. */
		if (fds[0].revents) {
			if (!fgets(line, sizeof(line), stdin))
				return 0;
			told(line);
			/* There may be work to do immediately. */
			ms = 0;
		}
	}
}
