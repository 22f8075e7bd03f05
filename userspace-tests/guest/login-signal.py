#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""login-signal.py ADD_TARGET STRING MS: a child writes STRING to ADD_TARGET and gets SIGTERM after MS milliseconds, or
SIGKILL if MS / 50 is odd. Prints how many milliseconds it lived after the signal and how it ended: `done`, an errno
name, or the signal."""

import ctypes, errno, os, signal, sys, time

path, string, ms = sys.argv[1], sys.argv[2], int(sys.argv[3])
sig = signal.SIGKILL if ms // 50 % 2 else signal.SIGTERM
ready, begins = os.pipe()
pid = os.fork()
if pid == 0:
    libc = ctypes.CDLL(None, use_errno=True)
    # Python's own handlers would run only after the call if the signal arrives just before it.
    libc.signal(signal.SIGTERM, ctypes.cast(libc._exit, ctypes.c_void_p))
    fd = os.open(path, os.O_WRONLY)
    data = string.encode()
    os.write(begins, b".")
    n = libc.write(fd, data, len(data))        # os.write would retry after EINTR
    os._exit(0 if n == len(data) else ctypes.get_errno() or 255)
os.close(begins)
os.read(ready, 1)
time.sleep(ms / 1000)
os.kill(pid, sig)
t = time.monotonic()
while True:
    got, status = os.waitpid(pid, os.WNOHANG)
    if got:
        break
    if time.monotonic() - t > 60:
        print("60000 still there")
        sys.exit(1)
    time.sleep(0.002)
ms = int((time.monotonic() - t) * 1000)
if os.WIFSIGNALED(status):
    end = signal.Signals(os.WTERMSIG(status)).name
else:
    code = os.WEXITSTATUS(status)
    end = {0: "done", signal.SIGTERM: "SIGTERM"}.get(code) or errno.errorcode.get(code, str(code))
print(ms, end)
