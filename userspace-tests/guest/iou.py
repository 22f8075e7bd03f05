#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""iou.py UMAD LID: asks the I/O unit at LID by device management datagrams (IBTA 16.3), out of the port of UMAD
(/dev/infiniband/umadN), and prints for each controller `ioc_guid=GUID,service_id=ID,name=NAME` of its first service.
This is what srp_daemon does, which wants user verbs for its traps and so does not run on ib_vfab."""
import fcntl, os, select, struct, sys

REGISTER_AGENT, ENABLE_PKEY = 3 << 30 | 28 << 16 | 0x1b << 8 | 1, 0x1b << 8 | 3	# rdma/ib_user_mad.h
CLASS, GET, GET_RESP = 6, 1, 0x81
IOU_INFO, IOC_PROFILE, SERVICE_ENTRIES = 0x10, 0x11, 0x12
QKEY = 0x80010000

def ask(fd, agent, lid, attribute, modifier):
    """The 192 bytes of the attribute."""
    # struct ib_user_mad_hdr, struct ib_mad_hdr, 40 reserved bytes, the data
    header = struct.pack("=5I", agent, 0, 1000, 3, 0) + struct.pack(">2IH", 1, QKEY, lid) + bytes(34)
    mad = struct.pack(">4B2HQ2HI", 1, CLASS, 1, GET, 0, 0, 1, attribute, 0, modifier)
    os.write(fd, header + mad + bytes(256 - len(mad)))
    if not select.select([fd], [], [], 20)[0]:
        sys.exit(f"no answer to attribute {attribute:#x}")
    answer = os.read(fd, 64 + 256)
    status = struct.unpack_from("=I", answer, 4)[0]
    if status:
        sys.exit(f"attribute {attribute:#x}: {os.strerror(status)}")
    method, status = struct.unpack_from(">BH", answer, 64 + 3)
    if method != GET_RESP or status:
        sys.exit(f"attribute {attribute:#x}: method {method:#x}, status {status:#x}")
    return answer[64 + 64:]

fd = os.open(sys.argv[1], os.O_RDWR)
fcntl.ioctl(fd, ENABLE_PKEY)
request = bytearray(struct.pack("=5I8B", 0, 0, 0, 0, 0, 1, CLASS, 1, 0, 0, 0, 0, 0))
fcntl.ioctl(fd, REGISTER_AGENT, request)
agent = struct.unpack_from("=I", request)[0]
lid = int(sys.argv[2])
_, controllers = struct.unpack_from(">HB", unit := ask(fd, agent, lid, IOU_INFO, 0))
for slot in range(1, controllers + 1):
    # Four bits for each slot: 1 is a controller.
    if unit[4 + (slot - 1) // 2] >> (4 if slot % 2 else 0) & 15 != 1:
        continue
    guid = struct.unpack_from(">Q", ask(fd, agent, lid, IOC_PROFILE, slot))[0]
    name, service = struct.unpack_from(">40sQ", ask(fd, agent, lid, SERVICE_ENTRIES, slot << 16))
    print(f"ioc_guid={guid:016x},service_id={service:016x},name={name.rstrip(bytes(1)).decode()}")
