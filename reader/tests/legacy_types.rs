//! Random files with the types of old writers, which Arrow writers do not make: equal to `take` of a plain read.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod support;

use std::sync::Arc;

use bytes::Bytes;
use lookupfs_reader::mounts::Opener;
use lookupfs_reader::{OpenOptions, Projection, RowId, Table};
use parquet::basic::Compression;
use parquet::data_type::{BoolType, DoubleType, Int96, Int96Type};
use parquet::file::properties::{WriterProperties, WriterVersion};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use support::*;

/// Writers of old wrote timestamps as INT96, which the library reads and does not write as Arrow.
fn write_legacy(seed: u64, rows: usize, r: &mut Seeded) -> Bytes {
    let message = "message m { optional int96 t; required int96 u; optional boolean b; optional double d; }";
    let schema = Arc::new(parse_message_type(message).unwrap());
    let version = [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0][(seed % 2) as usize];
    let properties = WriterProperties::builder()
        .set_dictionary_enabled(seed.is_multiple_of(3))
        .set_compression([Compression::UNCOMPRESSED, Compression::SNAPPY][r.below(2) as usize])
        .set_data_page_row_count_limit(33)
        .set_write_batch_size(11)
        .set_offset_index_disabled(seed.is_multiple_of(5))
        .set_writer_version(version)
        .build();
    let mut bytes = Vec::new();
    let mut file = SerializedFileWriter::new(&mut bytes, schema, Arc::new(properties)).unwrap();
    let mut group = file.next_row_group().unwrap();
    let levels: Vec<i16> = (0..rows).map(|_| i16::from(r.below(3) > 0)).collect();
    let present = levels.iter().filter(|level| **level == 1).count();
    let int96 = |r: &mut Seeded| {
        let mut value = Int96::new();
        value.set_data(
            r.next() as u32,
            r.below(19_000) as u32,
            2_450_000 + r.below(9_000) as u32,
        );
        value
    };
    for column in 0..4 {
        let count = if column == 1 { rows } else { present };
        let levels = (column != 1).then_some(&levels[..]);
        let mut writer = group.next_column().unwrap().unwrap();
        match column {
            0 | 1 => {
                let values: Vec<_> = (0..count).map(|_| int96(r)).collect();
                writer
                    .typed::<Int96Type>()
                    .write_batch(&values, levels, None)
                    .unwrap();
            }
            2 => {
                let values: Vec<_> = (0..count).map(|_| r.below(2) == 0).collect();
                writer
                    .typed::<BoolType>()
                    .write_batch(&values, levels, None)
                    .unwrap();
            }
            _ => {
                let values: Vec<_> = (0..count).map(|_| r.next() as f64).collect();
                writer
                    .typed::<DoubleType>()
                    .write_batch(&values, levels, None)
                    .unwrap();
            }
        }
        writer.close().unwrap();
    }
    group.close().unwrap();
    file.close().unwrap();
    bytes.into()
}

#[test]
fn random_rows_of_legacy_types() {
    for seed in 0..20 {
        let mut r = Seeded::new(seed);
        let rows = 50 + r.below(400) as usize;
        let bytes = write_legacy(seed, rows, &mut r);
        let all = plain_read(bytes.clone(), None, None).unwrap();
        let options = OpenOptions {
            structures: structures(&mut r),
            opener: Some(Opener::new(move |_| {
                Ok(Box::new(Versioned::new(&bytes, [8; 16])) as Box<_>)
            })),
            ..OpenOptions::default()
        };
        let table = Table::open("/f", options).unwrap();
        for _ in 0..6 {
            let ids: Vec<_> = (0..1 + r.below(30))
                .map(|_| RowId(r.below(rows as u64)))
                .collect();
            let got = table.get(&ids, &Projection::all()).unwrap();
            assert_same(&format!("seed {seed}"), &got, &pick(&all, &ids));
        }
    }
}
