#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""odd-io.py DEVICE SECONDS SEED [PAGES REGIONS]: O_DIRECT reads and writes with scattered buffers (offsets inside a
page, gaps, hundreds of segments), compared with a copy in memory. Prints how much was compared. With PAGES no list
touches more pages, and each must be one request of the disk and one registration; REGIONS is the file of ib_vfab that
counts registrations."""
import ctypes, errno, mmap, os, random, sys, time

PAGE = mmap.PAGESIZE
REGION = 8 << 20
ARENA = 4096 * PAGE

def scattered(rng, size):
    """Returns memory whose pages are in random order, as on a machine that has run for a while."""
    fd = os.memfd_create("arena")
    os.pwrite(fd, bytes(size), 0)
    memory = mmap.mmap(-1, size)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    remap = ctypes.CDLL(None, use_errno=True).mmap
    remap.restype = ctypes.c_void_p
    remap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    order = list(range(0, size, mmap.PAGESIZE))
    rng.shuffle(order)
    for to, at in zip(range(start, start + size, mmap.PAGESIZE), order):
        how = mmap.MAP_SHARED | 0x10  # MAP_FIXED
        if remap(to, mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_WRITE, how, fd, at) != to:
            sys.exit(f"mmap: {os.strerror(ctypes.get_errno())}")
    return memory

def pieces(rng, total, align, most):
    """Cuts `total` bytes into at most `most` pieces, multiples of 512."""
    n = min(most, total // 512)
    cuts = sorted(rng.sample(range(1, total // 512), n - 1)) if n > 1 else []
    edges = [0] + [c * 512 for c in cuts] + [total]
    return [b - a for a, b in zip(edges, edges[1:])]

def layout(rng, lengths, align):
    """Returns an offset in the arena for every piece: in order, shuffled or far apart, never overlapping."""
    spans, at = [], rng.randrange(0, PAGE, align)
    for n in lengths:
        spans.append(at)
        at += n + rng.choice([0, 0, align, 512, PAGE - n % PAGE, PAGE]) // align * align
    if at > ARENA:
        spans, at = [], 0
        for n in lengths:
            spans.append(at)
            at += n
    order = list(range(len(lengths)))
    if rng.random() < 0.3 and len(set(lengths)) == 1:
        rng.shuffle(order)
    return [spans[i] for i in order]

def pages(spans, lengths):
    return sum((s + n - 1) // PAGE - s // PAGE + 1 for s, n in zip(spans, lengths))

def counts(path, regions):
    """Returns the requests that the disk has completed, the registrations, and the pieces of all registrations."""
    stat = open(f"/sys/block/{os.path.basename(path)}/stat").read().split()
    words = open(regions).read().split()
    return int(stat[0]) + int(stat[4]), int(words[1]), int(words[3])

def main():
    path, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    most_pages, regions = (int(sys.argv[4]), sys.argv[5]) if len(sys.argv) > 4 else (0, None)
    rng = random.Random(seed)
    fd = os.open(path, os.O_RDWR | os.O_DIRECT)
    arena = mmap.mmap(-1, ARENA) if regions else scattered(rng, ARENA)
    view = memoryview(arena)
    copy = bytearray(os.urandom(REGION))
    whole = mmap.mmap(-1, REGION)
    whole[:] = bytes(copy)
    os.pwrite(fd, whole, 0)

    # The smallest alignment that this disk accepts; usually 4 for SCSI hosts.
    align = 512
    for a in (4, 8, 64, 128, 256):
        try:
            os.preadv(fd, [view[a:a + 512]], 0)
            align = a
            break
        except OSError as e:
            if e.errno != errno.EINVAL:
                raise

    done = count = deepest = 0
    end = time.monotonic() + seconds
    fixed = [(512, 1), (1024, 2), (65536, 1), (65536, 16), (131072, 256), (1 << 20, 300), (1 << 20, 1024), (1 << 20, 1)]
    # Some regions, one of which begins inside a piece.
    fixed += [(4 << 20, 1), (4 << 20, 300)]
    if regions:
        # Transfers without a region are shorter, and no driver's default allows longer ones.
        fixed = [(16384, 8), (65536, 16), (131072, 60), (1 << 19, 1)]
        # The disk counts a request only after its completion was reported.
        time.sleep(0.2)
        before = counts(path, regions)
    while time.monotonic() < end or count < 2 * len(fixed):
        if count < 2 * len(fixed):
            total, most = fixed[count % len(fixed)]
        else:
            total = 512 * rng.choice([1, 2, 3, 7, 8, 9, 16, 17, 24, 64, 129, 256, 511, 1024, 2048])
            most = rng.choice([1, 2, 3, 13, 64, 255, 257, 600, 1024])
        write = count % 2 if count >= 2 * len(fixed) else count >= len(fixed)
        step = rng.choice([align, 512])
        lengths = pieces(rng, total, step, most)
        spans = layout(rng, lengths, step)
        if regions and not (8192 < total <= 1 << 19 and pages(spans, lengths) <= most_pages):
            continue
        at = 512 * rng.randrange(0, (REGION - total) // 512 + 1)
        iov = [view[s:s + n] for s, n in zip(spans, lengths)]
        deepest = max(deepest, len(iov))
        how = "write" if write else "read"
        what = f"{how} {total} bytes at {at} in {len(iov)} pieces, first at offset {spans[0] % PAGE}"
        if write:
            data = rng.randbytes(total)
            pos = 0
            for v in iov:
                v[:] = data[pos:pos + len(v)]
                pos += len(v)
            got = os.pwritev(fd, iov, at)
            copy[at:at + total] = data
        else:
            # Bytes around every piece must stay unchanged.
            lo, hi = min(spans), max(s + n for s, n in zip(spans, lengths))
            fill = bytes([rng.randrange(256)]) * (hi - lo)
            view[lo:hi] = fill
            got = os.preadv(fd, iov, at)
            if got == total:
                pos = 0
                for v in iov:
                    if v != copy[at + pos:at + pos + len(v)]:
                        off = next(i for i in range(len(v)) if v[i] != copy[at + pos + i])
                        sys.exit(f"mismatch: {what}: byte {pos + off}")
                    pos += len(v)
                for v, n in zip(iov, lengths):
                    v[:] = fill[:n]
                if view[lo:hi] != fill:
                    sys.exit(f"bytes outside the buffer changed: {what}")
        if got != total:
            sys.exit(f"short: {got} of {total}: {what}")
        done += total
        count += 1

    note = ""
    if regions:
        for _ in range(200):
            requests, registered, parts = (a - b for a, b in zip(counts(path, regions), before))
            if requests >= count:
                break
            time.sleep(0.01)
        if requests != count or registered != count:
            sys.exit(f"{count} lists took {requests} requests and {registered} regions")
        note = f", each one request and one region of {parts / count:.1f} pieces"

    # Finally, read the whole region at once.
    os.preadv(fd, [whole], 0)
    if whole[:] != bytes(copy):
        bad = next(i for i in range(REGION) if whole[i] != copy[i])
        sys.exit(f"mismatch at the end: byte {bad}")
    done += REGION
    print(f"{count} lists, up to {deepest} pieces, alignment {align}, {done >> 20} MiB compared{note}")

main()
