"""The programs that know nothing of lookupfs: each function reads a whole file of a path into an Arrow table.

Owns how each library is asked, and nothing else. Called by check.py, in each of its processes.
"""
import duckdb
import polars
import pyarrow.parquet
from lance.file import LanceFileReader


def read_pyarrow(path):
    with pyarrow.parquet.ParquetFile(path) as file:
        return file.read()


def read_pyarrow_mmap(path):
    with pyarrow.parquet.ParquetFile(path, memory_map=True) as file:
        return file.read()


def read_duckdb(path):
    with duckdb.connect() as connection:
        # In UTC an instant is what was written, and not moved to this machine's time zone.
        connection.execute("SET TimeZone = 'UTC'; SET threads = 2")
        return connection.sql("SELECT * FROM read_parquet(?)", params=[path]).to_arrow_table()


def read_polars(path):
    return polars.read_parquet(path, hive_partitioning=False).to_arrow()


def read_pylance(path):
    return LanceFileReader(path).read_all().to_table()


READERS = {
    ".parquet": {"pyarrow": read_pyarrow, "pyarrow mmap": read_pyarrow_mmap, "duckdb": read_duckdb, "polars": read_polars},
    ".lance": {"pylance": read_pylance},
}
