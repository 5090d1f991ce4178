//! Files by foreign writers: every value they recorded, and every value of the whole file.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod support;

use lookupfs_reader::plan::Coalesce;
use lookupfs_reader::{Missing, OpenOptions, Projection, RowRange, Table};
use support::*;

#[test]
fn get_returns_every_recorded_value_of_every_fixture() {
    let mut compared = 0;
    for fixture in fixtures() {
        let expected = expected(&fixture);
        let name = fixture.file_name().unwrap().to_str().unwrap().to_owned();
        let table = open(&fixture.join("data.parquet"));
        assert_eq!(table.row_count(), expected["rows"].as_u64().unwrap(), "{name}");
        let columns = expected["columns"].as_array().unwrap();
        let names: Vec<_> = columns.iter().map(|c| c["name"].as_str().unwrap()).collect();
        let schema = table.schema().clone();
        assert_eq!(
            schema.fields().iter().map(|f| f.name()).collect::<Vec<_>>(),
            names,
            "{name}"
        );
        let samples = expected["samples"].as_array().unwrap();
        if samples.is_empty() {
            assert_eq!((table.row_count(), &name[..]), (0, "parquet-empty"));
            continue;
        }
        let ids = rows(samples.iter().map(|s| s["row_id"].as_u64().unwrap()));
        let batch = table.get(&ids, &Projection::all()).unwrap();
        assert_eq!(batch.num_rows(), samples.len());
        let mut here = 0;
        for (row, sample) in samples.iter().enumerate() {
            for (column, column_name) in names.iter().enumerate() {
                let what = format!("{name}, row id {}, {column_name}", sample["row_id"]);
                let want = &sample["values"][column_name];
                here += assert_cell(&what, batch.column(column), row, want);
            }
        }
        println!("{name}: {} rows, {here} values", samples.len());
        compared += here;
    }
    println!("{compared} values compared");
    assert!(compared > 14_000, "{compared}");
}

/// P10: exactly the rows asked for, in the order asked, duplicates included.
#[test]
fn every_row_of_every_fixture_is_what_a_plain_read_gives() {
    let mut compared = 0;
    for fixture in fixtures() {
        let path = fixture.join("data.parquet");
        let name = path.display().to_string();
        let all = plain_read(std::fs::read(&path).unwrap().into(), None, None).unwrap();
        let table = open(&path);
        let count = table.row_count();
        compared += assert_same(
            &name,
            &table.get(&rows(0..count), &Projection::all()).unwrap(),
            &all,
        );
        // Backwards, every third row, each twice: the caller's order and the duplicates stay.
        let ids = rows((0..count).rev().step_by(3).flat_map(|id| [id, id]));
        let got = table.get(&ids, &Projection::all()).unwrap();
        compared += assert_same(&name, &got, &pick(&all, &ids));
        // One at a time.
        for id in (0..count).step_by(count.div_ceil(40).max(1) as usize) {
            let got = table.get(&rows([id]), &Projection::all()).unwrap();
            compared += assert_same(&name, &got, &pick(&all, &rows([id])));
        }
        let mut start = 0;
        for page in table.scan(RowRange::ALL, &Projection::all(), 333).unwrap() {
            let page = page.unwrap();
            compared += assert_same(&name, &page, &all.slice(start, page.num_rows()));
            start += page.num_rows();
        }
        assert_eq!(start as u64, count);
        assert_eq!(
            table.counters().indexes_given_up,
            0,
            "{name}: every index is right"
        );
    }
    println!("{compared} cells compared");
    assert!(compared > 1_000_000, "{compared}");
}

#[test]
fn each_column_alone_and_any_two_in_any_order() {
    for fixture in fixtures() {
        let path = fixture.join("data.parquet");
        let all = plain_read(std::fs::read(&path).unwrap().into(), None, None).unwrap();
        let table = open(&path);
        if table.row_count() == 0 {
            continue;
        }
        let ids = rows((0..table.row_count()).step_by(97).chain([table.row_count() - 1]));
        let names: Vec<_> = table.schema().fields().iter().map(|f| f.name().clone()).collect();
        for (number, name) in names.iter().enumerate() {
            let other = (number * 7 + 3) % names.len();
            let chosen = if other == number {
                vec![number]
            } else {
                vec![number, other]
            };
            let columns = Projection::columns(chosen.iter().map(|c| names[*c].clone()));
            let got = table.get(&ids, &columns).unwrap();
            let want = pick(&all.project(&chosen).unwrap(), &ids);
            assert_same(&format!("{}: {name}", path.display()), &got, &want);
        }
    }
}

#[test]
fn one_row_of_an_indexed_file_reads_one_data_page_a_column() {
    let path = fixtures_dir().join("parquet-plain-uncompressed/data.parquet");
    let options = OpenOptions {
        coalesce: Coalesce {
            gap_bytes: 0,
            extent_bytes_max: 1 << 20,
        },
        ..OpenOptions::default()
    };
    let table = Table::open(&path, options).unwrap();
    let opened = table.counters();
    assert_eq!(
        (opened.opens, opened.reads),
        (1, 1),
        "footer and index in one read"
    );
    table.get(&rows([700]), &Projection::all()).unwrap();
    let got = table.counters();
    assert_eq!((got.opens, got.reads - opened.reads), (1, 2));
    assert!(got.bytes - opened.bytes < 100_000, "{got:?}");
    assert_eq!((got.pages_mapped, got.pages_hit), (2, 0));
    // The same data page again is not read again: it is mapped, and short enough to stay in memory.
    table
        .get(&rows([700, 701, 700]), &Projection::columns(["id"]))
        .unwrap();
    let again = table.counters();
    assert_eq!((again.reads - got.reads, again.pages_hit), (0, 1));
}

#[test]
fn a_small_limit_gives_the_same_rows_in_more_batches() {
    let path = fixtures_dir().join("parquet-nested/data.parquet");
    let all = plain_read(std::fs::read(&path).unwrap().into(), None, None).unwrap();
    let options = OpenOptions {
        max_result_bytes: 40_000,
        ..OpenOptions::default()
    };
    let table = Table::open(&path, options).unwrap();
    let ids = rows((0..2500).rev());
    assert!(
        table
            .get(&ids, &Projection::all())
            .unwrap_err()
            .to_string()
            .contains("limit")
    );
    let stream = table
        .get_stream(ids.clone(), &Projection::all(), Missing::Error)
        .unwrap();
    let batches: Vec<_> = stream.collect::<Result<_, _>>().unwrap();
    assert!(batches.len() > 5, "{}", batches.len());
    let joined = arrow_select::concat::concat_batches(&batches[0].schema(), &batches).unwrap();
    assert_same("nested", &joined, &pick(&all, &ids));
}

#[test]
fn missing_rows_are_errors_nulls_or_left_out() {
    let table = open(&fixtures_dir().join("parquet-nested/data.parquet"));
    let ids = rows([2500, 3, u64::MAX, 1, 3]);
    let columns = Projection::columns(["id", "s.in", "m"]);
    let error = table.get(&ids, &columns).unwrap_err().to_string();
    assert!(
        error.contains("2500, 18446744073709551615") && error.contains("2500 rows"),
        "{error}"
    );
    let present = table.get(&rows([3, 1, 3]), &columns).unwrap();
    assert_same(
        "skip",
        &table.get_with(&ids, &columns, Missing::Skip).unwrap(),
        &present,
    );
    let nulls = table.get_with(&ids, &columns, Missing::Null).unwrap();
    assert_eq!(nulls.num_rows(), 5);
    for (column, want) in nulls.columns().iter().zip(present.columns()) {
        assert!(column.is_null(0) && column.is_null(2));
        for (row, from) in [(1, 0), (3, 1), (4, 2)] {
            assert_eq!(&column.slice(row, 1), &want.slice(from, 1));
        }
    }
    let none = table.get_with(&rows([9999]), &columns, Missing::Null).unwrap();
    assert!(none.num_rows() == 1 && none.columns().iter().all(|c| c.is_null(0)));
    assert_eq!(
        table
            .get_with(&rows([9999]), &columns, Missing::Skip)
            .unwrap()
            .num_rows(),
        0
    );
    assert_eq!(table.get(&[], &columns).unwrap().num_rows(), 0);
}

#[test]
fn nested_paths_read_only_the_fields_they_name() {
    let path = fixtures_dir().join("parquet-nested/data.parquet");
    let table = open(&path);
    let all = plain_read(std::fs::read(&path).unwrap().into(), None, None).unwrap();
    let ids = rows([0, 1099, 1100, 2499, 12]);
    let get = |paths: &[&str]| table.get(&ids, &Projection::columns(paths.to_vec())).unwrap();
    // Leaves: id 0, ints 1, tags 2, s.a 3, s.b 4, s.in.x 5, s.in.y 6, m 7-8, ls.k 9, ls.v 10, flat 11.
    let want = |leaves: &[usize], order: &[usize]| {
        let bytes = std::fs::read(&path).unwrap().into();
        pick(
            &plain_read(bytes, Some(leaves), None)
                .unwrap()
                .project(order)
                .unwrap(),
            &ids,
        )
    };
    assert_same("s.in.x,id", &get(&["s.in.x", "id"]), &want(&[0, 5], &[1, 0]));
    assert_same(
        "s.b,flat,s.a",
        &get(&["s.b", "flat", "s.a"]),
        &want(&[3, 4, 11], &[0, 1]),
    );
    assert_same("ls.v", &get(&["ls.v"]), &want(&[10], &[0]));
    assert_same("ls long", &get(&["ls.list.element.v"]), &want(&[10], &[0]));
    assert_same("m.value", &get(&["m.value"]), &want(&[7, 8], &[0]));
    assert_same("s", &get(&["s", "s.a"]), &pick(&all.project(&[3]).unwrap(), &ids));
    let error = table
        .get(&ids, &Projection::columns(["s.inn"]))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("no column 's.inn'") && error.contains("s.in"),
        "{error}"
    );
}
