// SPDX-License-Identifier: GPL-2.0
/*
 * A plugin of QEMU's TCG: the tree of calls in the guest's kernel between two marks, with the instructions
 * that each function executed in each place of it. One CPU.
 *
 * The beginning mark comes with a table in the guest's memory, its address in %rdi and its length in %rsi:
 * where functions begin, in ascending order, with bit 63 cleared if that begins a tree, as an interrupt does, and bit 62
 * if a task's stack is changed for another's. With length 0 the counts begin again, and the stacks stay known.
 *
 * A function that begins is called by what is above it on the stack: a frame lives until the stack pointer is
 * above where it was at the function's begin. One that is jumped to at the end of another is called by that
 * one. Each stack has frames of its own; that of interrupts goes on where it was changed to.
 *
 * For each pair of marks the file gets a number n and n quadruples (parent, function, calls, instructions), all as
 * 64 bit. A parent is the index of an earlier one; the first is the root, the second what runs in user space.
 */
#include <stdio.h>
#include <stdlib.h>

#include "plugin.h"

enum { NODES = 1 << 20, BLOCKS = 1 << 20, STACKS = 1 << 14, FRAMES = 256, ROOT = 0, USER = 1 };
/* Of a task. Others are at least as far from each other. */
enum { STACK_BITS = 14, NEAR = 4096 };
/* Where a CPU begins that was in user space: half a TiB for all of them. */
#define ENTRY_AREA (0xfffffe0000000000u >> 39)

static struct node { uint64_t parent, function, calls, insns; } nodes[NODES];
static unsigned int n_nodes;
static unsigned int found[2 * NODES];		/* hash -> node, 0: empty */

struct frame { uint64_t sp, function; unsigned int node; };
struct stack { struct stack *from; unsigned int base, depth; struct frame frames[FRAMES]; };
/* The same stack may be behind two keys. */
static struct { uint64_t key; struct stack *stack; } stacks[STACKS];
static struct stack *current;
static uint64_t last_sp;
static bool was_user;

static struct block {
	uint64_t address, insns, function;
	unsigned int table;
	bool begins, tree, change;
} blocks[BLOCKS];
static unsigned int n_blocks;

#define TREE (UINT64_C(1) << 63)
#define CHANGE (UINT64_C(1) << 62)
static uint64_t *functions;
static size_t n_functions;
static unsigned int table;			/* which one, from 1 on */
static bool active;
static FILE *out;
static GByteArray *buffer;
static struct qemu_plugin_register *rsp, *rdi, *rsi;

static void die(const char *why)
{
	fprintf(stderr, "paths: %s\n", why);
	exit(1);
}

static uint64_t value(struct qemu_plugin_register *handle)
{
	uint64_t v;

	g_byte_array_set_size(buffer, 0);
	if (!handle || qemu_plugin_read_register(handle, buffer) != sizeof(v))
		die("cannot read a register");
	memcpy(&v, buffer->data, sizeof(v));
	return v;
}

static unsigned int child(uint64_t parent, uint64_t function)
{
	uint64_t h = (parent << 40 ^ parent ^ function) * 0x9e3779b97f4a7c15u >> 43;

	for (;; h = (h + 1) % (2 * NODES)) {
		unsigned int n = found[h];

		if (n && nodes[n].parent == parent && nodes[n].function == function)
			return n;
		if (n)
			continue;
		if (n_nodes == NODES)
			die("too many paths");
		nodes[n_nodes] = (struct node){ .parent = parent, .function = function };
		return found[h] = n_nodes++;
	}
}

/* An interrupt's stack need not begin where a task's could: what goes on right beyond such a place is the same stack. */
static struct stack *stack_of(uint64_t sp)
{
	uint64_t key = sp >> STACK_BITS, h = (key * 0x9e3779b97f4a7c15u) >> 50;
	unsigned int tries = 0;

	while (stacks[h].stack && stacks[h].key != key) {
		h = (h + 1) % STACKS;
		if (++tries == STACKS - 1)
			die("too many stacks");
	}
	if (!stacks[h].stack) {
		stacks[h].key = key;
		stacks[h].stack = current && last_sp - sp < NEAR ? current : calloc(1, sizeof(struct stack));
	}
	last_sp = sp;
	return current = stacks[h].stack;
}

/* Which function a block is of. */
static void look_up(struct block *b)
{
	size_t low = 0, high = n_functions;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if ((functions[middle] | TREE | CHANGE) <= b->address)
			low = middle + 1;
		else
			high = middle;
	}
	low = low ? functions[low - 1] : TREE | CHANGE;
	b->function = low | TREE | CHANGE;
	b->begins = b->function == b->address;
	b->tree = !(low & TREE);
	b->change = !(low & CHANGE);
	b->table = table;
}

static unsigned int innermost(struct stack *s)
{
	return s->depth ? s->frames[s->depth - 1].node : s->base;
}

static struct frame *push(struct stack *s, struct block *b, uint64_t sp)
{
	unsigned int parent = b->tree ? ROOT : innermost(s);

	if (s->depth == FRAMES)
		die("a stack of too many calls");
	s->frames[s->depth] = (struct frame){ sp, b->function, child(parent, b->function) };
	return &s->frames[s->depth++];
}

/* Whether such a frame is there, which then is the innermost. */
static bool unwind(struct stack *s, uint64_t function, uint64_t sp)
{
	for (unsigned int i = s->depth; i && s->frames[i - 1].sp == sp; i--) {
		if (s->frames[i - 1].function == function) {
			s->depth = i;
			return true;
		}
	}
	return false;
}

/* The frame that a block is executed in. */
static struct frame *frame(struct block *b, uint64_t sp)
{
	struct stack *before = current, *s = stack_of(sp);
	struct frame *f;

	/* Nothing is left on the stack of a task in user space. */
	if (was_user) {
		s->depth = s->base = 0;
		s->from = NULL;
		before = s;
	}
	was_user = false;
	while (s->depth && s->frames[s->depth - 1].sp < sp)
		s->depth--;
	/* Back from a call on another stack, maybe right to another call. */
	if (before && before->from == s && s != before) {
		before->from = NULL;
		before = s;
	}
	if (b->begins) {
		/* A loop may lead to a function's begin, or jumps in a circle. */
		if (unwind(s, b->function, sp))
			return &s->frames[s->depth - 1];
		/* Who calls a function on another stack finds that empty. */
		if (s != before && before && !b->change) {
			s->depth = 0;
			s->base = innermost(before);
			s->from = before;
		}
		f = push(s, b, sp);
		nodes[f->node].calls++;
		return f;
	}
	/* The parts of a function that are seldom needed are elsewhere, and jump back. */
	for (unsigned int i = s->depth; i && i + 4 > s->depth; i--)
		if (s->frames[i - 1].function == b->function)
			return &s->frames[(s->depth = i) - 1];
	/* One that began before it was watched. */
	return push(s, b, sp);
}

static void executed(unsigned int vcpu, void *data)
{
	struct block *b = data;
	uint64_t sp;

	if (!active)
		return;
	sp = value(rsp);
	if (b->table != table)
		look_up(b);
	/* A system call begins on the user's stack. */
	if (!(sp >> 63) || sp >> 39 == ENTRY_AREA)
		nodes[child(ROOT, b->function)].insns += b->insns;
	else
		nodes[frame(b, sp)->node].insns += b->insns;
}

static void executed_user(unsigned int vcpu, void *data)
{
	if (!active)
		return;
	nodes[USER].insns += (uintptr_t)data;
	was_user = true;
}

static void new_table(uint64_t address, size_t n)
{
	g_byte_array_set_size(buffer, 0);
	if (!qemu_plugin_read_memory_vaddr(address, buffer, n * sizeof(uint64_t)))
		die("cannot read the table");
	free(functions);
	functions = malloc(n * sizeof(uint64_t));
	memcpy(functions, buffer->data, n * sizeof(uint64_t));
	n_functions = n;
	table++;
	memset(found, 0, sizeof(found));
	nodes[ROOT] = nodes[USER] = (struct node){};
	n_nodes = 2;
	for (unsigned int i = 0; i < STACKS; i++)
		if (stacks[i].stack)
			*stacks[i].stack = (struct stack){};
	current = NULL;
	active = true;
}

static void mark_begin(unsigned int vcpu, void *data)
{
	size_t n = value(rsi);

	if (n)
		new_table(value(rdi), n);
	for (unsigned int i = 0; i < n_nodes; i++)
		nodes[i].calls = nodes[i].insns = 0;
}

static void mark_end(unsigned int vcpu, void *data)
{
	uint64_t n = n_nodes;

	active = false;
	fwrite(&n, sizeof(n), 1, out);
	fwrite(nodes, sizeof(*nodes), n, out);
	fflush(out);
}

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
	uint64_t n = qemu_plugin_tb_n_insns(tb), address = qemu_plugin_tb_vaddr(tb);
	static unsigned int known[2 * BLOCKS];
	uint64_t h = (address ^ n << 48) * 0x9e3779b97f4a7c15u >> 43;

	if (!(address >> 63)) {
		qemu_plugin_register_vcpu_tb_exec_cb(tb, executed_user, CB_NO_REGS, (void *)(uintptr_t)n);
		watch_marks(tb, mark_begin, mark_end, CB_R_REGS);
		return;
	}
	while (known[h] && (blocks[known[h]].address != address || blocks[known[h]].insns != n))
		h = (h + 1) % (2 * BLOCKS);
	if (!known[h]) {
		if (++n_blocks == BLOCKS)
			die("too many blocks");
		known[h] = n_blocks;
		blocks[n_blocks] = (struct block){ .address = address, .insns = n };
	}
	qemu_plugin_register_vcpu_tb_exec_cb(tb, executed, CB_R_REGS, &blocks[known[h]]);
}

static void cpu_begins(qemu_plugin_id_t id, unsigned int vcpu)
{
	GArray *all = qemu_plugin_get_registers();

	for (unsigned int i = 0; i < all->len; i++) {
		const char *name = all->data[i].name;

		rsp = strcmp(name, "rsp") ? rsp : all->data[i].handle;
		rdi = strcmp(name, "rdi") ? rdi : all->data[i].handle;
		rsi = strcmp(name, "rsi") ? rsi : all->data[i].handle;
	}
}

EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc, char **argv)
{
	if (argc != 1 || strncmp(argv[0], "out=", 4) || !(out = fopen(argv[0] + 4, "wb"))) {
		fprintf(stderr, "paths: wants out=FILE\n");
		return -1;
	}
	buffer = g_byte_array_new();
	qemu_plugin_register_vcpu_init_cb(id, cpu_begins);
	qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
	return 0;
}
