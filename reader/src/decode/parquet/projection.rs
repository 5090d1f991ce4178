//! Column names to leaf columns, and the order in which they come out.
//!
//! Owns what `a,b.c` means: a path is a column, or a field in a struct, and names everything below
//! it. Lists and maps may be written as the file has them (`l.list.element.x`, `m.key_value.key`) or
//! without their wrappers (`l.x`, `m.key`). Called by [`super::ParquetFile::project`].

use arrow_schema::{DataType, Field, Fields};
use parquet::schema::types::SchemaDescriptor;

/// Names near an unknown one that an error lists.
const NEAR_MAX: usize = 5;

/// A leaf column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Leaf {
    /// The shortest first.
    names: Vec<String>,
    /// The outermost map it lies in. A map has no values without its keys, so a map is read whole.
    map: Option<usize>,
}

/// All leaf columns, in the file's order.
pub(super) fn leaves(arrow: &Fields, descriptor: &SchemaDescriptor) -> Vec<Leaf> {
    let mut short = Vec::new();
    for field in arrow {
        add_leaves(field, field.name().clone(), None, &mut short);
    }
    // The Arrow schema has the same leaves in the same order, but for groups without any.
    let aligned = short.len() == descriptor.num_columns();
    let long = descriptor.columns().iter().map(|column| column.path().string());
    long.enumerate()
        .map(|(number, long)| match short.get(number).filter(|_| aligned) {
            Some((short, map)) if *short != long => Leaf {
                names: vec![short.clone(), long],
                map: *map,
            },
            Some((_, map)) => Leaf {
                names: vec![long],
                map: *map,
            },
            None => Leaf {
                names: vec![long],
                map: None,
            },
        })
        .collect()
}

fn add_leaves(field: &Field, path: String, map: Option<usize>, leaves: &mut Vec<(String, Option<usize>)>) {
    match field.data_type() {
        DataType::Struct(fields) => {
            for field in fields {
                add_leaves(field, format!("{path}.{}", field.name()), map, leaves);
            }
        }
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::FixedSizeList(item, _) => add_leaves(item, path, map, leaves),
        DataType::Map(entries, _) => {
            let map = map.or(Some(leaves.len()));
            match entries.data_type() {
                DataType::Struct(pair) if pair.len() == 2 => {
                    add_leaves(&pair[0], format!("{path}.key"), map, leaves);
                    add_leaves(&pair[1], format!("{path}.value"), map, leaves);
                }
                _ => leaves.push((path, map)),
            }
        }
        _ => leaves.push((path, map)),
    }
}

/// The leaves that `path` names, and those without which they cannot be read.
pub(super) fn leaves_of(path: &str, leaves: &[Leaf]) -> Vec<usize> {
    let below = |name: &String| {
        name.strip_prefix(path)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    let named = |leaf: &&Leaf| leaf.names.iter().any(below);
    let maps: Vec<_> = leaves.iter().filter(named).filter_map(|leaf| leaf.map).collect();
    let wanted = |leaf: &Leaf| named(&leaf) || leaf.map.is_some_and(|map| maps.contains(&map));
    (0..leaves.len())
        .filter(|number| wanted(&leaves[*number]))
        .collect()
}

/// Names that look like `column`; the first few if none does.
pub(super) fn near(column: &str, leaves: &[Leaf]) -> Vec<String> {
    let mut all: Vec<&String> = Vec::new();
    let mut roots: Vec<String> = Vec::new();
    for leaf in leaves.iter().filter_map(|leaf| leaf.names.first()) {
        let root = leaf.split('.').next().unwrap_or(leaf).to_owned();
        if !roots.contains(&root) {
            roots.push(root);
        }
    }
    all.extend(&roots);
    all.extend(leaves.iter().flat_map(|leaf| &leaf.names));
    let limit = (column.chars().count() / 3).max(2);
    let lower = column.to_lowercase();
    let mut near: Vec<(usize, &String)> = all
        .iter()
        .map(|name| (distance(&lower, &name.to_lowercase()), *name))
        .filter(|(distance, name)| *distance <= limit || name.to_lowercase().contains(&lower))
        .collect();
    near.sort_by_key(|(distance, _)| *distance);
    near.dedup_by(|a, b| a.1 == b.1);
    let chosen: Vec<_> = match near.is_empty() {
        true => roots.iter().collect(),
        false => near.into_iter().map(|(_, name)| name).collect(),
    };
    chosen.into_iter().take(NEAR_MAX).cloned().collect()
}

/// Levenshtein distance.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = i;
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let changed = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(names: &[&str]) -> Vec<Leaf> {
        names
            .iter()
            .map(|n| Leaf {
                names: vec![(*n).to_owned()],
                map: None,
            })
            .collect()
    }

    #[test]
    fn near_names_come_first() {
        let leaves = plain(&["id", "payload", "s.inner", "price"]);
        assert_eq!(near("paylod", &leaves), ["payload"]);
        assert_eq!(near("ID", &leaves)[0], "id");
        assert_eq!(near("inner", &leaves)[0], "s.inner");
        assert_eq!(near("zzzzzz", &leaves), ["id", "payload", "s", "price"]);
        assert_eq!(distance("kitten", "sitting"), 3);
    }

    #[test]
    fn a_path_names_all_below_it_and_nothing_else() {
        let leaves = plain(&["a", "ab", "a.b", "a.bc", "c.d.e"]);
        assert_eq!(leaves_of("a", &leaves), [0, 2, 3]);
        assert_eq!(leaves_of("a.b", &leaves), [2]);
        assert_eq!(leaves_of("c", &leaves), [4]);
        assert_eq!(leaves_of("c.d.e", &leaves), [4]);
        assert_eq!(leaves_of("d", &leaves), [] as [usize; 0]);
    }

    #[test]
    fn a_part_of_a_map_brings_the_whole_map() {
        let mut leaves = plain(&["id", "m.key", "m.value", "n.key", "n.value"]);
        for (leaf, map) in [(1, 1), (2, 1), (3, 3), (4, 3)] {
            leaves[leaf].map = Some(map);
        }
        assert_eq!(leaves_of("m.value", &leaves), [1, 2]);
        assert_eq!(leaves_of("n", &leaves), [3, 4]);
    }
}
