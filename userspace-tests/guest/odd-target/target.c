// SPDX-License-Identifier: GPL-2.0
/*
 * target ADDRESS PORT ANSWERS: an SRP target over rdma_cm with a disk of 16 MiB in memory, for the tests of what the
 * kernel's target never does. ANSWERS is another port. Who logs in there gets no credits, but from then on the data and
 * the answers of commands, of which there is data. It says on standard output what arrives, and does what standard input tells.
 *
 * target ib NAME:DEVICE...: the same over the InfiniBand connection manager, of which the target's side is in this program. Each
 * NAME is a queue pair at port 1 of that device. It takes requests that name it, or those to the port if it is told to
 * (`cm` of ib_vfab), whatever service they ask for.
 *
 *
 * on OPCODE ACTION [COUNT]   the next COUNT (1) commands with this operation code (hexadecimal) are held
 *                            (`hold`), answered `twice`, with the tag of nobody (`astray`), with the status
 *                            BUSY (`busy`), with GOOD and no more than these bytes (`short:HEX`), or with CHECK
 *                            CONDITION, this sense, and so many bytes of what the disk has (`check:BYTES:HEX`; no
 *                            sense without HEX); the last two do not say how much data there is. It is instead of
 *                            what there was for this code, of which nothing is left with `normal`
 * answer [data]              the commands that are held are answered as if they were done, in their order; with `data`
 *                            they are carried out
 * tmf CODE|drop [keep]       task management requests get this response code (0 at first), or no answer; with
 *                            `keep` the commands that they end stay held
 * abort CODE                 those that abort one command get another one; -1 for none
 * send logout REASON         a message to the first channel
 * send credits DELTA
 * send report KEY ASC ASCQ   an event report for LUN 0, with this sense (hexadecimal)
 * login ok|silent            logins are answered, or not
 * login only N               so many channels are let in
 * login reject REASON        with an SRP_LOGIN_REJ (hexadecimal)
 * login bytes OFFSET HEX     these bytes of the SRP_LOGIN_RSP are other ones
 * login length N             of the answer's private data
 * grant all|none [CHANNEL]   answers return their credits, or not; on this channel only, or on all
 * grant every SECONDS        answers do not, but the first channel gets one in so many seconds
 * receive off                what arrives from now on finds no buffer, after those that are posted
 * vendor NAME                in the INQUIRY data, instead of SRP
 * luns N [SIZE]              LUNs 0 to N - 1, in a list that says it has SIZE bytes (hexadecimal)
 * answers here|there         answers go where the commands came from, or through the port for answers if there is
 *                            somebody (at first)
 * disconnect [answers]       all channels, or that one
 * requests [N] STEP...       with `ib`: what the N (1) next requests get, after what was told before. A request that is repeated is
 *                            one, if there was no answer to it yet. The steps, one after the other: `rep` (the answer, or what
 *                            `login` says), `rep:OFFSET:HEX` (with other bytes), `rej:REASON[:INFO[:DATA]]`, `mra:TIMEOUT`,
 *                            `dreq`, `wait:MS`, `nothing`. Without any it is `rep`
 * requests forget            none of that
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
		/* A pipe gives whole lines, one at a time to one reader. */
		if (fds[0].revents) {
			if (!fgets(line, sizeof(line), stdin))
				return 0;
			told(line);
			/* There may be something to do at once. */
			ms = 0;
		}
	}
}
