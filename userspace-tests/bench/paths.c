// SPDX-License-Identifier: GPL-2.0
/*
 * A plugin for QEMU's TCG: the call tree of the guest's kernel between two marks, with the
 * instructions of each function in each position, and with several CPUs the stores to cache lines
 * last written by another CPU.
 *
 * The begin mark comes with a table in the guest's memory, its address in %rdi and its length in
 * %rsi: the start addresses of functions, in ascending order, with bit 63 cleared if the function
 * starts a tree, as an interrupt does, and bit 62 cleared if it switches from one task's stack to
 * another one's. Length 0 restarts the counts, and keeps the known stacks.
 *
 * A function that starts is called by the innermost frame on the stack: a frame lives until the
 * stack pointer is above its value at the start of the function. A function reached by a tail call
 * is called by the function that jumps to it. Each stack has its own frames; an interrupt stack
 * continues where the switch to it happened.
 *
 * A string instruction with a repeat prefix counts once, as on a processor: with -icount QEMU makes a
 * block of each of its steps.
 *
 * For each pair of marks the file gets a number n and n quintuples (parent, function, calls,
 * instructions, such stores), all 64 bits wide. A parent is the index of an earlier one; the first
 * is the root, the second is user space.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "plugin.h"

enum { NODES = 1 << 18, BLOCKS = 1 << 20, STACKS = 1 << 14, FRAMES = 256, CPUS = 16, ROOT = 0, USER = 1 };
/* The size of a task's stack. Other stacks are at least this far apart. */
enum { STACK_BITS = 14, NEAR = 4096 };
/* The CPU entry area, on a stack of which a CPU enters the kernel from user space: 512 GiB. */
#define ENTRY_AREA (0xfffffe0000000000u >> 39)
/* Cache line size, and the number of distinct lines: those in 4 contiguous GiB. */
enum { LINE = 64, LINES = 1 << 26 };

/* Data shared by all CPUs is read without this lock, and extended under it. */
static pthread_mutex_t adding = PTHREAD_MUTEX_INITIALIZER;
static struct node { uint64_t parent, function; } nodes[NODES];
static unsigned int n_nodes;
static unsigned int found[2 * NODES];		/* hash -> node, 0: empty */

struct frame { uint64_t sp, function; unsigned int node; };
struct stack { struct stack *from; unsigned int base, depth; struct frame frames[FRAMES]; };
/* Two keys may refer to the same stack. */
static struct { uint64_t key; struct stack *stack; } stacks[STACKS];
static unsigned char *writers;			/* last writer of a line: a CPU, from 1 on */

static struct cpu {
	struct stack *current;
	uint64_t last_sp;
	uint64_t step;				/* address of the last block's string instruction, or 0 */
	unsigned int node;			/* node being executed */
	GByteArray *buffer;
	struct count { uint64_t calls, insns, lines; } counts[NODES];
} *cpus[CPUS];

/* Updated by operations inlined into each block, because a callback for each block would take
 * most of the guest's time. */
static struct qemu_plugin_scoreboard *score;
struct inlined { uint64_t active, user, was_user; };
static qemu_plugin_u64 entry(size_t offset) { return (qemu_plugin_u64){ score, offset }; }
static struct inlined *inlined(unsigned int cpu) { return qemu_plugin_scoreboard_find(score, cpu); }

static struct block {
	uint64_t address, insns, function;
	uint64_t string;			/* address of the string instruction that ends it, or 0 */
	unsigned int table;
	bool begins, tree, change;
} blocks[BLOCKS];
static unsigned int n_blocks;

#define TREE (UINT64_C(1) << 63)
#define CHANGE (UINT64_C(1) << 62)
static uint64_t *functions;
static size_t n_functions;
static unsigned int table;			/* number of the table, from 1 on */
static FILE *out;
static struct qemu_plugin_register *rsp, *rdi, *rsi;

static void die(const char *why)
{
	fprintf(stderr, "paths: %s\n", why);
	exit(1);
}

static uint64_t value(struct cpu *cpu, struct qemu_plugin_register *handle)
{
	GByteArray *buffer = cpu->buffer;
	uint64_t v;

	g_byte_array_set_size(buffer, 0);
	if (!handle || qemu_plugin_read_register(handle, buffer) != sizeof(v))
		die("cannot read a register");
	memcpy(&v, buffer->data, sizeof(v));
	return v;
}

static unsigned int find_child(uint64_t parent, uint64_t function, uint64_t *hash)
{
	uint64_t h = (parent << 40 ^ parent ^ function) * 0x9e3779b97f4a7c15u >> 45;
	unsigned int n;

	while ((n = __atomic_load_n(&found[h], __ATOMIC_ACQUIRE)) &&
	       !(nodes[n].parent == parent && nodes[n].function == function))
		h = (h + 1) % (2 * NODES);
	*hash = h;
	return n;
}

static unsigned int child(uint64_t parent, uint64_t function)
{
	uint64_t h;
	unsigned int n = find_child(parent, function, &h);

	if (n)
		return n;
	pthread_mutex_lock(&adding);
	n = find_child(parent, function, &h);
	if (!n) {
		if (n_nodes == NODES)
			die("too many paths");
		n = n_nodes++;
		nodes[n] = (struct node){ .parent = parent, .function = function };
		__atomic_store_n(&found[h], n, __ATOMIC_RELEASE);
	}
	pthread_mutex_unlock(&adding);
	return n;
}

static struct stack *find_stack(uint64_t key, uint64_t *hash)
{
	uint64_t h = (key * 0x9e3779b97f4a7c15u) >> 50;
	unsigned int tries = 0;
	struct stack *s;

	while ((s = __atomic_load_n(&stacks[h].stack, __ATOMIC_ACQUIRE)) && stacks[h].key != key) {
		h = (h + 1) % STACKS;
		if (++tries == STACKS - 1)
			die("too many stacks");
	}
	*hash = h;
	return s;
}

/* An interrupt stack may cross a boundary of STACK_BITS: execution right beyond it continues on the
 * same stack. */
static struct stack *stack_of(struct cpu *cpu, uint64_t sp)
{
	uint64_t key = sp >> STACK_BITS, h;
	struct stack *s = find_stack(key, &h);

	if (!s) {
		pthread_mutex_lock(&adding);
		s = find_stack(key, &h);
		if (!s) {
			s = cpu->current && cpu->last_sp - sp < NEAR ? cpu->current : calloc(1, sizeof(struct stack));
			stacks[h].key = key;
			__atomic_store_n(&stacks[h].stack, s, __ATOMIC_RELEASE);
		}
		pthread_mutex_unlock(&adding);
	}
	cpu->last_sp = sp;
	return cpu->current = s;
}

/* Finds the function of a block. */
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
	__atomic_store_n(&b->table, table, __ATOMIC_RELEASE);
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

/* Makes the frame of `function` at `sp` the innermost one. Returns false if there is none. */
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

/* Returns the frame in which a block executes. */
static struct frame *frame(unsigned int vcpu, struct block *b, uint64_t sp)
{
	struct cpu *cpu = cpus[vcpu];
	struct stack *before = cpu->current, *s = stack_of(cpu, sp);
	struct inlined *in = inlined(vcpu);
	struct frame *f;

	/* A task in user space has nothing on its kernel stack. */
	if (in->was_user) {
		s->depth = s->base = 0;
		s->from = NULL;
		before = s;
	}
	in->was_user = 0;
	while (s->depth && s->frames[s->depth - 1].sp < sp)
		s->depth--;
	/* Return from a call on another stack, possibly directly into another call. */
	if (before && before->from == s && s != before) {
		before->from = NULL;
		before = s;
	}
	if (b->begins) {
		/* The start of a function may be the target of a loop or of a cycle of jumps. */
		if (unwind(s, b->function, sp))
			return &s->frames[s->depth - 1];
		/* A call that switches stacks starts on an empty one. */
		if (s != before && before && !b->change) {
			s->depth = 0;
			s->base = innermost(before);
			s->from = before;
		}
		f = push(s, b, sp);
		cpu->counts[f->node].calls++;
		return f;
	}
	/* Unlikely parts of a function are located elsewhere, and jump back. */
	for (unsigned int i = s->depth; i && i + 4 > s->depth; i--)
		if (s->frames[i - 1].function == b->function)
			return &s->frames[(s->depth = i) - 1];
	/* A function that started before the recording. */
	return push(s, b, sp);
}

static void executed(unsigned int vcpu, void *data)
{
	struct cpu *cpu = cpus[vcpu];
	struct block *b = data;
	uint64_t sp = value(cpu, rsp);

	if (__atomic_load_n(&b->table, __ATOMIC_ACQUIRE) != table)
		look_up(b);
	/* A system call starts on the user's stack. */
	cpu->node = !(sp >> 63) || sp >> 39 == ENTRY_AREA ? child(ROOT, b->function) : frame(vcpu, b, sp)->node;
	if (cpu->step != b->address)
		cpu->counts[cpu->node].insns += b->insns;
	cpu->step = b->string;
}

/* Returns whether an instruction is MOVS, CMPS, STOS, LODS, SCAS, INS or OUTS with a repeat prefix. */
static bool is_string(const struct qemu_plugin_insn *insn)
{
	unsigned char code[16];
	size_t n = qemu_plugin_insn_data(insn, code, sizeof(code));
	bool repeats = false;

	for (size_t i = 0; i < n; i++) {
		switch (code[i]) {
		case 0xf2: case 0xf3:
			repeats = true;
			break;
		case 0x26: case 0x2e: case 0x36: case 0x3e: case 0x40 ... 0x4f: case 0x64 ... 0x67:
			break;
		case 0x6c ... 0x6f: case 0xa4 ... 0xa7: case 0xaa ... 0xaf:
			return repeats;
		default:
			return false;
		}
	}
	return false;
}

static void stored(unsigned int vcpu, uint32_t info, uint64_t address, void *data)
{
	unsigned char *writer = &writers[address / LINE % LINES];

	if (!(address >> 63) || !inlined(vcpu)->active)
		return;
	if (*writer && *writer != vcpu + 1)
		cpus[vcpu]->counts[cpus[vcpu]->node].lines++;
	*writer = vcpu + 1;
}

static void set_active(bool to)
{
	for (int i = 0; i < qemu_plugin_num_vcpus(); i++)
		inlined(i)->active = to;
}

/* Must be called while no CPU is active. */
static void new_table(GByteArray *buffer, uint64_t address, size_t n)
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
	for (int i = 0; i < qemu_plugin_num_vcpus(); i++) {
		cpus[i]->current = NULL;
		memset(cpus[i]->counts, 0, sizeof(cpus[i]->counts));
	}
	set_active(true);
}

static void mark_begin(unsigned int vcpu, void *data)
{
	struct cpu *cpu = cpus[vcpu];
	size_t n = value(cpu, rsi);

	if (n)
		new_table(cpu->buffer, value(cpu, rdi), n);
	for (int i = 0; i < qemu_plugin_num_vcpus(); i++) {
		memset(cpus[i]->counts, 0, n_nodes * sizeof(struct count));
		inlined(i)->user = 0;
	}
}

static void mark_end(unsigned int vcpu, void *data)
{
	uint64_t n = n_nodes;

	set_active(false);
	fwrite(&n, sizeof(n), 1, out);
	for (unsigned int k = 0; k < n; k++) {
		uint64_t entry[5] = { nodes[k].parent, nodes[k].function };

		for (int i = 0; i < qemu_plugin_num_vcpus(); i++) {
			entry[2] += cpus[i]->counts[k].calls;
			entry[3] += k == USER ? inlined(i)->user : cpus[i]->counts[k].insns;
			entry[4] += cpus[i]->counts[k].lines;
		}
		fwrite(entry, sizeof(entry), 1, out);
	}
	fflush(out);
}

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
	uint64_t n = qemu_plugin_tb_n_insns(tb), address = qemu_plugin_tb_vaddr(tb);
	struct qemu_plugin_insn *last = qemu_plugin_tb_get_insn(tb, n - 1);
	static unsigned int known[2 * BLOCKS];
	uint64_t h = (address ^ n << 48) * 0x9e3779b97f4a7c15u >> 43;

	if (!(address >> 63)) {
		qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(tb, INLINE_ADD_U64, entry(offsetof(struct inlined, user)), n);
		qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(tb, INLINE_STORE_U64, entry(offsetof(struct inlined, was_user)), 1);
		watch_marks(tb, mark_begin, mark_end, CB_R_REGS);
		return;
	}
	for (uint64_t i = 0; writers && i < n; i++)
		qemu_plugin_register_vcpu_mem_cb(qemu_plugin_tb_get_insn(tb, i), stored, CB_NO_REGS, MEM_W, NULL);
	pthread_mutex_lock(&adding);
	while (known[h] && (blocks[known[h]].address != address || blocks[known[h]].insns != n))
		h = (h + 1) % (2 * BLOCKS);
	if (!known[h]) {
		if (++n_blocks == BLOCKS)
			die("too many blocks");
		known[h] = n_blocks;
		blocks[n_blocks] = (struct block){ .address = address, .insns = n };
	}
	/* The kernel patches its code. */
	blocks[known[h]].string = is_string(last) ? qemu_plugin_insn_vaddr(last) : 0;
	pthread_mutex_unlock(&adding);
	qemu_plugin_register_vcpu_tb_exec_cond_cb(tb, executed, CB_R_REGS, COND_NE, entry(offsetof(struct inlined, active)), 0,
						  &blocks[known[h]]);
}

static void cpu_begins(qemu_plugin_id_t id, unsigned int vcpu)
{
	GArray *all = qemu_plugin_get_registers();

	if (vcpu >= CPUS)
		die("too many CPUs");
	cpus[vcpu] = calloc(1, sizeof(struct cpu));
	cpus[vcpu]->buffer = g_byte_array_new();
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
	if (info->smp_vcpus > 1)
		writers = calloc(LINES, 1);
	score = qemu_plugin_scoreboard_new(sizeof(struct inlined));
	qemu_plugin_register_vcpu_init_cb(id, cpu_begins);
	qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
	return 0;
}
