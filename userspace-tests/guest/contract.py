#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Prints what an administrator sees of the loaded ib_srp, as lines `key<TAB>value`.

contract.py module FILE              the module's file, its parameters, and loading it with other values
contract.py refused ADD_TARGET TABLE results of the strings of bad-logins.tsv; there must be no target
contract.py files ADD_TARGET IDS     files of the port, of a host and its remote port; parameters
contract.py logins ADD_TARGET IDS    results of unusual but valid strings
contract.py compare C OURS TABLE     checks the differences of two outputs against TABLE

IDS is a valid login string. TABLE has tab-separated lines: name, key, C's value, our value; in the last three, `*`
matches any text. Each difference must match a line, and each line a difference."""
import ctypes, errno, os, re, signal, stat, subprocess, sys, time

libc = ctypes.CDLL(None, use_errno=True)
SYSFS = "/sys/class"
PARAMETERS = "/sys/module/ib_srp/parameters"


def say(key, value):
    value = str(value)
    if value.endswith("\n"):
        value = value[:-1] + "$"
    print(key + "\t" + value.encode("unicode_escape").decode(), flush=True)


def errno_name(number):
    # This error number has two names.
    return "EOPNOTSUPP" if number == errno.EOPNOTSUPP else errno.errorcode.get(number, str(number))


LONGEST = 6  # seconds; a longer write "hangs"


def interrupted(*_):
    global hung
    hung = True


signal.signal(signal.SIGALRM, interrupted)


def write(path, data, longest=LONGEST):
    """Returns the result of one write: 'ok', 'n of m bytes', 'hangs' or the name of the error."""
    global hung
    hung = False
    try:
        fd = os.open(path, os.O_WRONLY)
    except OSError as e:
        return "open: " + errno_name(e.errno)
    buffer = ctypes.create_string_buffer(data, len(data) + 1)
    signal.alarm(longest)
    ctypes.set_errno(0)
    n = libc.write(fd, buffer, len(data))
    signal.alarm(0)
    result = (
        "hangs"
        if hung
        else errno_name(ctypes.get_errno()) if n < 0 else "ok" if n == len(data) else f"{n} of {len(data)} bytes"
    )
    os.close(fd)
    return result


def read(path):
    """Returns the file's text, or the name of the error."""
    try:
        with open(path, "rb", buffering=0) as f:
            return f.read(8192).decode(errors="backslashreplace")
    except OSError as e:
        return errno_name(e.errno)


def plain(text):
    """Expands escapes as printf %b does."""
    def one(m):
        if m[1]:
            return bytes([int(m[1], 16)])
        return {"n": b"\n", "t": b"\t"}.get(m[2]) or b"\\" + m[2].encode()
    out, at = b"", 0
    for m in re.finditer(r"\\(?:x([0-9a-f]{2})|(.))", text):
        out += text[at:m.start()].encode() + one(m)
        at = m.end()
    return out + text[at:].encode()


def folder(name, path, number=None):
    """Prints names, kinds, modes and contents of the entries of a sysfs folder. Numbers of hosts become N."""
    def anonymous(text):
        if number is None:
            return text
        return re.sub(rf"\b(host|port-|target){number}\b", r"\1N", text)
    for entry in sorted(os.listdir(path)):
        at = f"{path}/{entry}"
        key = f"{name} {anonymous(entry)}"
        if os.path.islink(at):
            say(key, "-> " + anonymous(os.path.basename(os.readlink(at))))
        elif os.path.isdir(at):
            say(key, "folder")
        else:
            mode = stat.S_IMODE(os.stat(at).st_mode)
            say(key, f"{mode:04o} " + (anonymous(read(at)) if mode & 0o444 else ""))


# The module

LOADS = """cmd_sg_entries=0;cmd_sg_entries=1;cmd_sg_entries=0xff;cmd_sg_entries=256;cmd_sg_entries=4294967295
cmd_sg_entries=4294967296;cmd_sg_entries=-1;cmd_sg_entries=x;srp_sg_tablesize=20;srp_sg_tablesize=300
srp_sg_tablesize=20 cmd_sg_entries=5;indirect_sg_entries=5;indirect_sg_entries=13;indirect_sg_entries=2048
indirect_sg_entries=2049;cmd_sg_entries=20 indirect_sg_entries=10;allow_ext_sg=1;allow_ext_sg=maybe
topspin_workarounds=0;topspin_workarounds=-1;register_always=0;never_register=1
register_always=N never_register=Y;ch_count=3;use_imm_data=n;max_imm_data=70000;max_imm_data=-1
reconnect_delay=off;reconnect_delay=0;reconnect_delay=5;fast_io_fail_tmo=600;fast_io_fail_tmo=599;fast_io_fail_tmo=601
fast_io_fail_tmo=off;fast_io_fail_tmo=off dev_loss_tmo=off;fast_io_fail_tmo=off dev_loss_tmo=off reconnect_delay=off
dev_loss_tmo=off;dev_loss_tmo=15;dev_loss_tmo=16;dev_loss_tmo=2 fast_io_fail_tmo=1;fast_io_fail_tmo=1 dev_loss_tmo=2
no_such_parameter=1""".replace("\n", ";").split(";")


def load(file, parameters):
    with open(file, "rb") as f:
        failed = libc.syscall(313, f.fileno(), parameters.encode(), 0)
    return errno_name(ctypes.get_errno()) if failed else "ok"


def parameters(name):
    for parameter in sorted(os.listdir(PARAMETERS)):
        say(f"{name} {parameter}", read(f"{PARAMETERS}/{parameter}"))


def module(file):
    for field in "description", "license", "depends", "alias", "softdep", "name", "import_ns":
        out = subprocess.run(["modinfo", "-F", field, file], capture_output=True, text=True, check=True).stdout
        say(f"modinfo {field}", ",".join(sorted(re.split(r"[,\n]", out.strip()))))
    out = subprocess.run(["modinfo", "-F", "parm", file], capture_output=True, text=True, check=True).stdout
    for line in out.splitlines():
        m = re.fullmatch(r"(\w+):.*?(\((?:uint|int|bool)\))?", line)
        say(f"modinfo parm {m[1]}", m[2] or "no type")
    for values in LOADS:
        subprocess.run(["rmmod", "ib_srp"], check=True)
        say(f"load {values}", load(file, values))
        if os.path.isdir(PARAMETERS):
            parameters(f"loaded {values}:")
        else:
            load(file, "")


# Strings

def strings(table):
    for row in open(table, encoding="utf-8"):
        row = row.rstrip("\n")
        if row and not row.startswith("# "):
            yield row.split("\t")[0]


def refused(add_target, table):
    for string in strings(table):
        say("string " + string.replace("\t", "\\t"), write(add_target, plain(string)))


# Appended to a valid login string. The first of two equal options has no effect.
SUFFIXES = r"""
,
,,
\n
,\n,
,id_ext=0x1,@
\nqueue_size=8
\nqueue_size=8\n
,queue_size=8,
,queue_size=1
,queue_size=2
,queue_size=010
,queue_size=0x10
,queue_size=0X1f
,queue_size=63
,queue_size=200
,queue_size=8,queue_size=9
,max_cmd_per_lun=1
,max_cmd_per_lun=62
,max_cmd_per_lun=1000
,max_cmd_per_lun=4,queue_size=8
,queue_size=8,max_cmd_per_lun=4
,queue_size=8,max_cmd_per_lun=9
,max_cmd_per_lun=0x4
,target_can_queue=1
,target_can_queue=100
,target_can_queue=65535
,cmd_sg_entries=1
,cmd_sg_entries=0xff
,cmd_sg_entries=0377
,sg_tablesize=1
,sg_tablesize=12
,sg_tablesize=13
,sg_tablesize=255
,sg_tablesize=2048
,cmd_sg_entries=255,sg_tablesize=255
,allow_ext_sg=0
,allow_ext_sg=1
,allow_ext_sg=5
,allow_ext_sg=1,allow_ext_sg=0
,comp_vector=0
,comp_vector=1
,comp_vector=100
,tl_retry_count=2
,tl_retry_count=07
,tl_retry_count=0x3
,max_sect=8
,max_sect=64
,max_sect=0x400
,max_sect=1025
,max_sect=2048
,io_class=100
,io_class=0100
,io_class=0x100
,io_class=0x0000100
,io_class=ff00
,io_class=FF00
,initiator_ext=1
,initiator_ext=0x2
,initiator_ext=+3
,initiator_ext=0000000000000000000000003
,initiator_ext=0x0000000000000000
,initiator_ext=ffffffffffffffff
,max_it_iu_size=0
,max_it_iu_size=260
,max_it_iu_size=276
,max_it_iu_size=8260
,max_it_iu_size=2147483647
,ch_count=1
,ch_count=2
,ch_count=3
,src=10.0.0.1
,src=10.0.0.1:0
,src=10.0.0.1:0x0
,src=10.0.0.99
,src=10.0.0.99,src=10.0.0.1
,dest=10.0.0.1:012663
,dest=10.0.0.1:0x15b3
,dest=10.0.0.1:5556
,dest=10.0.0.99:5555
,dest=10.0.0.1:1,dest=10.0.0.1:5555
,dest=[::ffff:10.0.0.1]:5555
""".strip("\n").split("\n")

HOST = "id_ext ioc_guid ch_count comp_vector tl_retry_count cmd_sg_entries allow_ext_sg " \
       "can_queue cmd_per_lun sg_tablesize nr_hw_queues".split()


QUEUE = "max_sectors_kb", "max_hw_sectors_kb", "max_segments", "max_segment_size"


def hosts():
    found = set()
    for host in os.listdir(f"{SYSFS}/scsi_host"):
        if read(f"{SYSFS}/scsi_host/{host}/proc_name") == "ib_srp\n":
            found.add(host)
    return found


def log_in(add_target, string, longest=LONGEST):
    """Returns the result, and the new host if there is one."""
    before = hosts()
    for _ in range(100):
        # A removed host's session with the target exists until the removal ends.
        result = write(add_target, string, longest)
        if result != "EEXIST":
            break
        time.sleep(0.1)
    new = hosts() - before
    return result, new.pop() if new else None


def log_out(host):
    result = write(f"{SYSFS}/srp_remote_ports/port-{host[4:]}:1/delete", b"1")
    for _ in range(400):
        if not os.path.exists(f"{SYSFS}/scsi_host/{host}"):
            return result
        time.sleep(0.05)
    return "not gone"


def disk(host):
    """Returns the sysfs folder of the disk of LUN 0."""
    at = f"/sys/bus/scsi/devices/{host[4:]}:0:0:0/block"
    for _ in range(400):
        if os.path.isdir(at) and os.listdir(at):
            path = f"{at}/{os.listdir(at)[0]}"
            if read(f"{path}/size") != "0\n" and all(os.path.exists(f"{path}/queue/{n}") for n in QUEUE):
                return path
        time.sleep(0.05)
    raise SystemExit(f"no disk at {host}")


def logins(add_target, ids):
    for prefix in "", ",", "\n", ",\n,":
        result, host = log_in(add_target, prefix.encode() + ids.encode())
        say(f"login before {prefix!r}", result)
        if host:
            log_out(host)
    with open(f"{SYSFS}/infiniband/{os.path.basename(os.path.dirname(add_target))[4:-2]}/ports/1/gids/0") as f:
        dgid = f.read().strip().replace(":", "")
    guid = re.search("ioc_guid=0x([0-9a-f]*)", ids)[1]
    result, host = log_in(add_target, f"id_ext={guid},ioc_guid={guid},dgid={dgid},pkey=ffff,service_id={guid}".encode())
    say("login by InfiniBand CM", result)
    if host:
        log_out(host)
    # The login must work: otherwise all following results could be equal for both drivers although nothing works.
    result, host = log_in(add_target, ids.encode())
    if result != "ok" or not host:
        raise SystemExit(f"a plain login: {result}")
    log_out(host)
    for suffix in SUFFIXES:
        # Our driver gives up after 10 s.
        longest = 34 if "10.0.0.99:" in suffix else LONGEST
        result, host = log_in(add_target, ids.encode() + plain(suffix.replace("@", ids)), longest)
        say(f"login {suffix}", result)
        if host:
            path = f"{SYSFS}/scsi_host/{host}"
            for name in HOST:
                if os.path.exists(f"{path}/{name}"):
                    say(f"login {suffix} {name}", read(f"{path}/{name}"))
            if any(o in suffix for o in ("queue_size", "max_cmd", "sg_tablesize", "max_sect", "sg_entries")):
                path = disk(host)
                for name in QUEUE:
                    say(f"login {suffix} disk {name}", read(f"{path}/queue/{name}"))
                say(f"login {suffix} disk queue_depth", read(f"{path}/device/queue_depth"))
            log_out(host)


# Files

DEFAULTS = "fast_io_fail_tmo dev_loss_tmo reconnect_delay".split()
TIMEOUTS = ["0", "1", "2", "14", "15", "16", "599", "600", "601", "86400", "2147483647", "2147483648", "-1", "-5",
            "-2147483648", "-2147483649", "off", "off\n", "offline", "OFF", "of", "o", "5\n", "5\n\n", " 5", "5 ", "5s",
            "0x10", "010", "08", "+5", "+ 5", "5.0", "x", "\n", "5\x006"]
FLAGS = ["N", "n", "0", "off", "no", "Y", "y", "1", "on", "yes", "2", "x", "\n", "Nonsense"]
SIZES = ["0", "1", "8192", "32768", "65536", "4294967295", "4294967296", "-1", "0x10", "010", "+7", "7\n", "x", "\n"]


def defaults(path):
    # The first write of fast_io_fail_tmo may be refused while dev_loss_tmo is smaller.
    for file, value in (
        ("reconnect_delay", b"10"),
        ("fast_io_fail_tmo", b"15"),
        ("dev_loss_tmo", b"600"),
        ("fast_io_fail_tmo", b"15"),
    ):
        if os.path.exists(f"{path}/{file}"):
            write(f"{path}/{file}", value)


def settings(name, path, values):
    """Writes each value to each file, and prints the result and the new content."""
    for file in values:
        if not os.path.exists(f"{path}/{file}"):
            continue
        before = read(f"{path}/{file}")
        for value in values[file]:
            result = write(f"{path}/{file}", value.encode())
            say(f"{name} {file} = {value!r}", f"{result}, then " + read(f"{path}/{file}"))
            if file in DEFAULTS:
                defaults(path)
            else:
                write(f"{path}/{file}", before.encode())


def combined(name, path):
    """Writes sequences of timeouts that depend on each other."""
    for sequence in ("dev_loss_tmo=off fast_io_fail_tmo=off reconnect_delay=off",
                     "reconnect_delay=off fast_io_fail_tmo=off dev_loss_tmo=off",
                     "reconnect_delay=off dev_loss_tmo=off fast_io_fail_tmo=off",
                     "fast_io_fail_tmo=off dev_loss_tmo=601 dev_loss_tmo=1 fast_io_fail_tmo=1 fast_io_fail_tmo=0",
                     "dev_loss_tmo=601 fast_io_fail_tmo=off fast_io_fail_tmo=600 dev_loss_tmo=600",
                     "dev_loss_tmo=off fast_io_fail_tmo=600 dev_loss_tmo=601 dev_loss_tmo=600",
                     "fast_io_fail_tmo=1 dev_loss_tmo=2 fast_io_fail_tmo=2 dev_loss_tmo=1"):
        done = ""
        for step in sequence.split():
            file, value = step.split("=")
            done += " " + step
            say(f"{name} ({sequence}){done}", write(f"{path}/{file}", value.encode()))
        defaults(path)



def log_since(mark):
    lines = subprocess.run(["dmesg"], capture_output=True, text=True, errors="replace").stdout.splitlines()
    return [line.split("] ", 1)[-1] for line in lines[max(i for i, line in enumerate(lines) if mark in line):]]


def steady(path):
    """Waits until no command is in flight: req_lim is the same for 1 s."""
    last, since = read(path), time.time()
    end = since + 60
    while time.time() < since + 1:
        if time.time() > end:
            sys.exit(f"not within 60 s: no command is out ({path})")
        now = read(path)
        if now != last:
            last, since = now, time.time()
        time.sleep(0.05)


def files(add_target, ids):
    for path in (SYSFS, "/sys/module/ib_srp", "/sys/bus", "/proc/scsi"):
        for entry in sorted(os.listdir(path)) if os.path.isdir(path) else []:
            say(f"names {path} {entry}", "there")
    say("module taint", read("/sys/module/ib_srp/taint"))
    folder("parameter", PARAMETERS)
    settings("parameter write", PARAMETERS, {
        "reconnect_delay": TIMEOUTS, "fast_io_fail_tmo": TIMEOUTS, "dev_loss_tmo": TIMEOUTS,
        "use_imm_data": FLAGS, "max_imm_data": SIZES})
    combined("parameter writes", PARAMETERS)

    port = os.path.dirname(add_target)
    for device in sorted(os.listdir(os.path.dirname(port))):
        say(f"device {device}", os.path.relpath(os.path.realpath(f"{port}/../{device}"), "/sys/devices"))
    folder("device", port)
    rdma = os.path.basename(port)[4:-2]
    subprocess.run(["rdma", "dev", "set", rdma, "name", "other0"], check=True)
    say("device renamed", " ".join(sorted(os.listdir(os.path.dirname(port)))))
    say("device renamed ibdev", read(f"{SYSFS}/infiniband_srp/srp-other0-1/ibdev"))
    subprocess.run(["rdma", "dev", "set", "other0", "name", rdma], check=True)

    mark = f"contract {time.time()}"
    write("/dev/kmsg", mark.encode())
    result, host = log_in(add_target, ids.encode())
    say("first login", result)
    number = host[4:]
    said = [line.partition(": ")[2] for line in log_since(mark) if line.startswith(f"scsi {host}: ")]
    say("log of the host", ";".join(line for line in said if not line.startswith("ib_srp: ")))
    say("second login", write(add_target, ids.encode()))
    say("second login, other options", write(add_target, ids.encode() + b",queue_size=8"))
    say(
        "without CAP_SYS_ADMIN",
        subprocess.run(
            [
                "setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin", sys.executable, __file__, "put",
                add_target, "x=1",
            ],
            capture_output=True,
            text=True,
        ).stdout.strip(),
    )
    block = disk(host)
    subprocess.run(["udevadm", "settle", "-t", "30"])
    steady(f"{SYSFS}/scsi_host/{host}/req_lim")
    folder("host", f"{SYSFS}/scsi_host/{host}", number)
    folder("srp_host", f"{SYSFS}/srp_host/{host}", number)
    remote = f"{SYSFS}/srp_remote_ports/port-{number}:1"
    folder("rport", remote, number)
    say("rport path", re.sub(rf"\b(host|port-|target){number}\b", r"\1N", os.path.realpath(f"{remote}/device")))
    settings("rport write", remote, {
        "reconnect_delay": TIMEOUTS, "fast_io_fail_tmo": TIMEOUTS, "dev_loss_tmo": TIMEOUTS})
    if os.path.exists(f"{remote}/dev_loss_tmo"):
        combined("rport writes", remote)
        for file in "state", "failed_reconnects", "port_id":
            say(f"rport write {file}", write(f"{remote}/{file}", b"1"))
        # New ports start with the module parameters.
        write(f"{PARAMETERS}/fast_io_fail_tmo", b"5")
        write(f"{PARAMETERS}/dev_loss_tmo", b"off")
        say("rport after the parameter", read(f"{remote}/fast_io_fail_tmo"))
        _, second = log_in(add_target, ids.encode() + b",initiator_ext=1")
        for file in DEFAULTS:
            say(f"new rport {file}", read(f"{SYSFS}/srp_remote_ports/port-{second[4:]}:1/{file}"))
        log_out(second)
        defaults(PARAMETERS)
    for name in "state", "queue_depth", "queue_type", "timeout", "eh_timeout", "vendor", "model", "type", "scsi_level":
        say(f"disk {name}", read(f"{block}/device/{name}"))
    for name in sorted(os.listdir(f"{block}/queue")):
        if os.path.isfile(f"{block}/queue/{name}"):
            say(f"disk queue {name}", read(f"{block}/queue/{name}"))
    say("log out", log_out(host))


# Comparison

def lines(path):
    out = {}
    for line in open(path, encoding="utf-8"):
        key, _, value = line.rstrip("\n").partition("\t")
        if key in out:
            raise SystemExit(f"{path}: twice: {key}")
        out[key] = value
    return out


def matches(pattern, text):
    return re.fullmatch(".*".join(re.escape(p) for p in pattern.split("*")), text, re.S) is not None


def compare(c, ours, table):
    c, ours = lines(c), lines(ours)
    rows = [r.rstrip("\n").split("\t") for r in open(table, encoding="utf-8") if r.strip() and not r.startswith("#")]
    used = [0] * len(rows)
    bad = 0
    for key in list(c) + [k for k in ours if k not in c]:
        there, here = c.get(key, "absent"), ours.get(key, "absent")
        if there == here:
            continue
        for i, row in enumerate(rows):
            if len(row) == 4 and matches(row[1], key) and matches(row[2], there) and matches(row[3], here):
                used[i] += 1
                break
        else:
            bad += 1
            print(f"not in the table: {key}\t{there}\t{here}")
    for row, n in zip(rows, used):
        if not n:
            bad += 1
            print("listed without a difference: " + "\t".join(row))
    same = sum(k in ours and c[k] == ours[k] for k in c)
    print(f"{same} the same, {sum(used)} differences of {len({r[0] for r in rows})} kinds, {bad} wrong")
    sys.exit(bad != 0)


if sys.argv[1] == "put":
    print(write(sys.argv[2], sys.argv[3].encode()))
else:
    {"module": module, "refused": refused, "files": files, "logins": logins, "compare": compare}[sys.argv[1]](
        *sys.argv[2:]
    )
