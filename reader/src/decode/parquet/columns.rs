//! [`Columns`]: which columns of a file, and which way each of them is read.
//!
//! Owns the choice of columns by their paths, and the split between columns out of mapped data pages and columns that the
//! format library's readers have to take: all that are repeated. Projections that were resolved are remembered with the
//! file's structure. Called by [`crate::table`].

use std::collections::VecDeque;
use std::sync::Arc;

use arrow_schema::SchemaRef;
use parquet::arrow::{
    FieldLevels, ProjectionMask, parquet_to_arrow_field_levels, parquet_to_arrow_schema_by_columns,
};

use super::plain::PlainType;
use super::{ParquetFile, RestColumns, projection};
use crate::decode::guarded;
use crate::error::{ReadError, Result};

/// Projections of a file that are remembered.
const PROJECTIONS_MAX: usize = 16;

/// By the paths asked for.
pub(super) type KnownProjections = VecDeque<(Option<Vec<String>>, Arc<Columns>)>;

/// Which columns, resolved against one schema.
#[derive(Debug)]
pub(crate) struct Columns {
    /// Leaf columns in the file's order.
    pub(crate) leaves: Vec<usize>,
    /// The schema of the result, in the order asked.
    pub(crate) schema: SchemaRef,
    /// For each column of the result, its place among the chosen columns in the file's order.
    pub(crate) order: Vec<usize>,
    /// Top-level columns in the file's order.
    roots: Vec<usize>,
    /// How they are read if nothing is known to stand against it.
    pub(crate) split: Split,
}

/// The chosen columns by the way in which they are read.
#[derive(Debug, Default)]
pub(crate) struct Split {
    /// Out of mapped data pages.
    pub(crate) flat: Option<FlatColumns>,
    /// By the format library's readers.
    pub(crate) rest: Option<Box<RestColumns>>,
    /// Places of the flat ones among the chosen columns in the file's order.
    pub(crate) flat_places: Vec<usize>,
    /// Places of the rest.
    pub(crate) rest_places: Vec<usize>,
}

/// Columns without repetition.
#[derive(Debug)]
pub(crate) struct FlatColumns {
    /// In the file's order.
    pub(super) leaves: Vec<usize>,
    /// What the Arrow readers are built of.
    pub(super) levels: FieldLevels,
    /// Of each leaf, how its values are laid out, and the definition level of a value.
    pub(super) kinds: Vec<(PlainType, u8)>,
}

impl ParquetFile {
    /// Resolves column paths; `None` is all columns.
    pub(crate) fn project(&self, paths: Option<&[String]>) -> Result<Arc<Columns>> {
        let known = |known: &KnownProjections| {
            let found = known.iter().find(|(known, _)| known.as_deref() == paths);
            found.map(|(_, columns)| columns.clone())
        };
        if let Some(columns) = known(&self.structure.projections.lock()) {
            return Ok(columns);
        }
        let descriptor = self.structure.arrow.parquet_schema();
        let (leaves, roots) = match paths {
            None => {
                let roots = self.schema().fields().len();
                ((0..descriptor.num_columns()).collect(), (0..roots).collect())
            }
            Some(paths) => self.resolve(paths)?,
        };
        let mut columns = self.columns(leaves, roots, paths.is_none())?;
        columns.split = self.split(&columns, &[])?;
        let columns = Arc::new(columns);
        let mut all = self.structure.projections.lock();
        if all.len() >= PROJECTIONS_MAX {
            all.pop_front();
        }
        all.push_back((paths.map(<[String]>::to_vec), columns.clone()));
        Ok(columns)
    }

    /// Sorted `leaves`, and their top-level columns in the order asked.
    fn columns(&self, leaves: Vec<usize>, roots: Vec<usize>, all: bool) -> Result<Columns> {
        let descriptor = self.structure.arrow.parquet_schema();
        let schema = guarded(&self.path, "choosing columns", || {
            if all {
                return Ok(self.schema().clone());
            }
            let mask = ProjectionMask::leaves(descriptor, leaves.iter().copied());
            let key_values = self.metadata().file_metadata().key_value_metadata();
            parquet_to_arrow_schema_by_columns(descriptor, mask, key_values).map(Arc::new)
        })?;
        let mut in_file_order: Vec<usize> = roots.clone();
        in_file_order.sort_unstable();
        let order: Vec<usize> = roots
            .iter()
            .filter_map(|root| in_file_order.binary_search(root).ok())
            .collect();
        let schema = schema
            .project(&order)
            .map_err(|e| ReadError::corrupt(&self.path, format!("choosing columns: {e}")))?;
        Ok(Columns {
            leaves,
            schema: schema.into(),
            order,
            roots: in_file_order,
            split: Split::default(),
        })
    }

    /// Splits columns by how they are read; top-level columns with a leaf of `excluded` are not mapped.
    pub(crate) fn split(&self, columns: &Columns, excluded: &[usize]) -> Result<Split> {
        let descriptor = self.structure.arrow.parquet_schema();
        let leaves_of = |root: usize| {
            let leaves = columns.leaves.iter().copied();
            leaves.filter(move |leaf| descriptor.get_column_root_idx(*leaf) == root)
        };
        let can_be_mapped = |leaf: usize| {
            let column = descriptor.column(leaf);
            column.max_rep_level() == 0
                && column.max_def_level() <= i16::from(i8::MAX)
                && !excluded.contains(&leaf)
        };
        // A group without any leaf is no column in Arrow's schema, and then the two number columns differently.
        let aligned = self.schema().fields().len() == descriptor.root_schema().get_fields().len();
        let (mut flat, mut rest) = ((Vec::new(), Vec::new()), (Vec::new(), Vec::new()));
        let mut rest_roots = Vec::new();
        for (place, root) in columns.roots.iter().enumerate() {
            let mapped = aligned && leaves_of(*root).next().is_some() && leaves_of(*root).all(can_be_mapped);
            let (leaves, places) = if mapped { &mut flat } else { &mut rest };
            leaves.extend(leaves_of(*root));
            places.push(place);
            if !mapped {
                rest_roots.push(*root);
            }
        }
        let (flat_leaves, flat_places) = flat;
        let (rest_leaves, rest_places) = rest;
        let flat = match flat_leaves.is_empty() {
            true => None,
            false => Some(self.flat_columns(flat_leaves)?),
        };
        let rest = match rest_places.is_empty() {
            true => None,
            false if !aligned => Some(self.rest_columns(columns.leaves.clone(), rest_roots)?),
            false => Some(self.rest_columns(rest_leaves, rest_roots)?),
        };
        Ok(Split {
            flat,
            rest,
            flat_places,
            rest_places,
        })
    }

    fn rest_columns(&self, leaves: Vec<usize>, roots: Vec<usize>) -> Result<Box<RestColumns>> {
        Ok(Box::new(RestColumns {
            levels: self.field_levels(&leaves)?,
            shape: self.structure.shape.clone(),
            columns: self.columns(leaves, roots, false)?,
        }))
    }

    /// What Arrow readers of these leaves are built of. Of this file alone: one that stores them in another way has the same
    /// Arrow types, and its bytes would be taken for other values.
    pub(super) fn field_levels(&self, leaves: &[usize]) -> Result<FieldLevels> {
        let descriptor = self.structure.arrow.parquet_schema();
        guarded(&self.path, "choosing columns", || {
            let mask = ProjectionMask::leaves(descriptor, leaves.iter().copied());
            parquet_to_arrow_field_levels(descriptor, mask, Some(self.schema().fields()))
        })
    }

    fn flat_columns(&self, leaves: Vec<usize>) -> Result<FlatColumns> {
        let descriptor = self.structure.arrow.parquet_schema();
        let levels = self.field_levels(&leaves)?;
        let kind = |leaf: &usize| {
            let column = descriptor.column(*leaf);
            (PlainType::of(&column), column.max_def_level() as u8)
        };
        Ok(FlatColumns {
            kinds: leaves.iter().map(kind).collect(),
            levels,
            leaves,
        })
    }

    /// Sorted leaves, and the top-level columns in the order in which they are first named.
    fn resolve(&self, paths: &[String]) -> Result<(Vec<usize>, Vec<usize>)> {
        let descriptor = self.structure.arrow.parquet_schema();
        let names = projection::leaves(self.schema().fields(), descriptor);
        let mut leaves: Vec<usize> = Vec::new();
        let mut roots: Vec<usize> = Vec::new();
        for path in paths {
            let named = projection::leaves_of(path, &names);
            if named.is_empty() {
                return Err(ReadError::UnknownColumn {
                    path: self.path.clone(),
                    column: path.clone(),
                    near: projection::near(path, &names),
                });
            }
            for leaf in named {
                let root = descriptor.get_column_root_idx(leaf);
                if !roots.contains(&root) {
                    roots.push(root);
                }
                leaves.push(leaf);
            }
        }
        leaves.sort_unstable();
        leaves.dedup();
        Ok((leaves, roots))
    }
}
