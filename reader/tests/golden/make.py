#!/usr/bin/env python3
"""Makes parquet-plain-uncompressed.sidecar-1 from reader/SIDECAR.md alone: no line of it is shared with the program.

Needs the package xxhash. Run it in its own directory. The places of data pages are those that any other Parquet tool prints."""
import os
import struct

import xxhash

FIXTURES = "../../../tests/fixtures"


def header(path):
    fixed = b"lookupsc" + struct.pack("<IIQ", 1, 1, os.path.getsize(path)) + b"\x09" * 16
    fixed += b"\0" * (88 - len(fixed))
    return fixed + struct.pack("<Q", xxhash.xxh3_64_intdigest(fixed))


def map_record(seed, leaf, offset, length, payload):
    body = struct.pack("<IB3xIIQQ", len(payload), 1, 0, leaf, offset, length) + payload
    return struct.pack("<Q", xxhash.xxh3_64_intdigest(body, seed=seed)) + body


def strides(rows, page_header, start, width):
    return struct.pack("<IIBBHIII", rows, page_header, 0, 0, 0, start, width, rows)


def sidecar(fixture, records):
    path = f"{FIXTURES}/{fixture}/data.parquet"
    head = header(path)
    seed = struct.unpack("<Q", head[88:])[0]
    with open(f"{fixture}.sidecar-1", "wb") as file:
        file.write(head + b"".join(map_record(seed, *record(path)) for record in records))


sidecar("parquet-plain-uncompressed", [
    lambda path: (0, 4, 4820, strides(600, 20, 0, 8)),
    lambda path: (1, 4824, 65814, strides(64, 22, 0, 1028)),
])
