#!/usr/bin/env python3
"""Makes small.map and small.data from cache/FORMAT.md alone: no line of it is shared with the program.

Needs the packages xxhash and blake3. Run it in its own directory."""
import struct

import blake3
import xxhash

SOURCE, PATH, PAGE = b"hdfs://ns1", b"/t/part-0.parquet", 4096
LENGTH, MTIME_MS, TAG = 9000, 1_700_000_000_123, 7


def version_id():
    h = blake3.blake3(b"lookupfs version 1\0")
    for name in (SOURCE, PATH):
        h.update(struct.pack("<Q", len(name)) + name)
    h.update(struct.pack("<QQQ", LENGTH, MTIME_MS, TAG))
    return h.digest()[:16]


def header():
    def whole(checksum):
        fixed = b"lookupfs" + struct.pack("<II", 1, PAGE) + version_id()
        fixed += struct.pack("<QQQII", LENGTH, MTIME_MS, TAG, len(SOURCE), len(PATH))
        return fixed + struct.pack("<Q", checksum) + SOURCE + PATH
    return whole(xxhash.xxh3_64_intdigest(whole(0)))


def entry(page, is_metadata, data):
    flags = 2 | is_metadata
    seed = xxhash.xxh3_64_intdigest(version_id() + struct.pack("<QB", page, flags))
    return xxhash.xxh3_64_intdigest(data, seed) & ~3 | flags


data = bytes((i * 2_654_435_761 >> 13) & 0xFF for i in range(LENGTH))
data = data[:4096] + bytes(4096) + data[8192:]
head = header()
head += bytes(-len(head) % 8)
entries = [entry(0, 0, data[:4096]), 0, entry(2, 1, data[8192:])]
open("small.map", "wb").write(head + struct.pack("<3Q", *entries))
open("small.data", "wb").write(data)
