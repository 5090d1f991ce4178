#!/usr/bin/env python3
"""Reads every fixture through lookupfs mounts with pyarrow, DuckDB, polars and pylance, and compares every value.

    check.py FIXTURES MOUNT...      FIXTURES: directories with data.parquet or data.lance, and expected.json
                                    MOUNT: mount points that all show the directory FIXTURES

Two oracles: the values of expected.json, which come from what the writer was given and from no file; and the same read
by the same library of the local copy, all rows. A library that cannot read a fixture or reads other values than were
written does so on the local copy too, and is shown as "library": then the mount must give the very same. At least one reader must
read each fixture as expected.

First each reader reads each fixture once, on one mount after another (table). Then PROCESSES processes read all fixtures
with all readers on all mounts at the same time, in random order (the seed is printed; CHECK_SEED sets it).

Exit code: 0 no difference, 1 a difference, 2 wrong usage.
"""
import hashlib
import itertools
import json
import multiprocessing
import os
import random
import sys
import time
from pathlib import Path

from arrow_text import OtherValues, encode_column, parse_type
from readers import READERS

PROCESSES = 8


class Fixture:
    """One file, what it must hold, and the readers of its format."""

    def __init__(self, folder):
        self.file = next(path for path in sorted(folder.iterdir()) if path.suffix in READERS)
        self.name = folder.name
        expected = json.loads((folder / "expected.json").read_text(encoding="utf-8"))
        self.rows = expected["rows"]
        self.columns = {column["name"]: parse_type(column["type"]) for column in expected["columns"]}
        self.samples = expected["samples"]
        self.readers = READERS[self.file.suffix]

    def on(self, mount):
        return f"{mount}/{self.name}/{self.file.name}"


def read(fixture, reader, path):
    """(all values by column, '') or (None, what the library said). An error of this program itself is raised."""
    try:
        table = fixture.readers[reader](path)
    except BaseException as error:  # a panic of a Rust library is a BaseException
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            raise
        said = f"cannot read it: {type(error).__name__}: {error}".strip().splitlines()[0]
        return None, said.replace(path, "FILE")
    try:
        if table.num_rows != fixture.rows:
            raise OtherValues(f"{table.num_rows} rows where {fixture.rows} were written")
        return {name: encode_column(table.column(name), kind) for name, kind in fixture.columns.items()}, ""
    except OtherValues as error:
        return None, f"reads it otherwise: {error}"


def digest(read_result):
    """A short name of what a read gave, values or error."""
    return hashlib.sha256(json.dumps(read_result, sort_keys=True).encode()).hexdigest()


def compare_expected(fixture, values):
    """(values compared, those that differ) with expected.json."""
    pairs = [(values[name][sample["row_id"]], wanted) for sample in fixture.samples for name, wanted in sample["values"].items()]
    return len(pairs), [pair for pair in pairs if pair[0] != pair[1]]


def check_once(fixture, reader, mount):
    """One cell of the table: (outcome, text, values compared, digest of the local read)."""
    local, through = read(fixture, reader, str(fixture.file)), read(fixture, reader, fixture.on(mount))
    if local != through:
        return "DIFFERS", f"on {mount}: {through[1] or 'other values'}", 0, digest(local)
    values, said = through
    if values is None:
        return "library", f"{said} (local copy too)", 0, digest(local)
    every = sum(len(column) for column in values.values())
    compared, wrong = compare_expected(fixture, values)
    if wrong:
        text = f"reads {len(wrong)} of {compared} otherwise (local copy too): {wrong[0][0]}, not {wrong[0][1]}"
        return "library", text, every, digest(local)
    return "ok", f"{compared} values as expected, {every} as local", compared + every, digest(local)


def table(fixtures, mounts):
    """Prints the table; returns (digests by fixture and reader, failures)."""
    digests, total, failed, turn = {}, 0, 0, itertools.cycle(mounts)
    for fixture in fixtures:
        outcomes = []
        for reader in fixture.readers:
            outcome, text, compared, local = check_once(fixture, reader, next(turn))
            digests[fixture.name, reader] = local
            total += compared
            outcomes.append(outcome)
            print(f"{fixture.name:<28} {reader:<13} {outcome:<8} {text[:150]}", flush=True)
        failed += outcomes.count("DIFFERS")
        if "ok" not in outcomes:
            print(f"{fixture.name:<28} no reader has read the expected values")
            failed += 1
    print(f"{len(digests)} cells, {total} values compared, {failed} failures")
    return digests, failed


def parallel_job(job):
    """One read in a process of the pool: '' or what differs."""
    fixture, reader, mount, wanted = job
    got = read(fixture, reader, fixture.on(mount))
    return "" if digest(got) == wanted else f"{fixture.name}, {reader}, {mount}: {got[1] or 'other values'}"


def parallel(fixtures, mounts, digests):
    """All fixtures, readers and mounts at once; returns the number of differences."""
    jobs = [(fixture, reader, mount, digests[fixture.name, reader])
            for mount in mounts for fixture in fixtures for reader in fixture.readers]
    seed = int(os.environ.get("CHECK_SEED") or time.time_ns() % 10**9)
    random.Random(seed).shuffle(jobs)
    began = time.monotonic()
    # Not fork: the libraries have threads.
    with multiprocessing.get_context("spawn").Pool(PROCESSES) as pool:
        wrong = [text for text in pool.imap_unordered(parallel_job, jobs, chunksize=4) if text]
    for text in wrong:
        print(f"DIFFERS {text}")
    print(f"{PROCESSES} processes on {len(mounts)} mounts, seed {seed}: {len(jobs)} reads of whole files, "
          f"{len(wrong)} differ from the local copy, {time.monotonic() - began:.1f} s")
    return len(wrong)


def main(arguments):
    if len(arguments) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    folders = sorted(path for path in Path(arguments[0]).iterdir() if path.name.startswith(("parquet-", "lance-")))
    fixtures, mounts = [Fixture(folder) for folder in folders], arguments[1:]
    digests, failed = table(fixtures, mounts)
    failed += parallel(fixtures, mounts, digests)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
