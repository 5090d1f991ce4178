//! Avro schemas: JSON to a table of types, which values are then read by.
//!
//! Owns the resolution of named types. Refuses more types than any table's metadata has, and names that nothing defines.
//! Called by `avro.rs`.

use std::collections::HashMap;

use serde_json::Value;

const TYPES_MAX: usize = 10_000;

/// Index of a type.
pub(super) type TypeId = usize;

/// A type.
#[derive(Debug)]
pub(super) enum Type {
    Null,
    Boolean,
    /// `int` and `long` are written alike.
    Long,
    Float,
    Double,
    /// `bytes` and `string` are written alike.
    Bytes,
    Text,
    Fixed(u64),
    Array(TypeId),
    Map(TypeId),
    Union(Vec<TypeId>),
    Record(Vec<(String, TypeId)>),
}

/// All types of a schema; the first is the schema itself.
#[derive(Debug, Default)]
pub(super) struct Schema {
    pub(super) types: Vec<Type>,
    names: HashMap<String, TypeId>,
}

impl Schema {
    /// Parses a schema. `None`: it is none, or too large.
    pub(super) fn parse(text: &[u8]) -> Option<Schema> {
        // serde_json bounds the nesting.
        let json: Value = serde_json::from_slice(text).ok()?;
        let mut schema = Schema::default();
        schema.add(&json)?;
        Some(schema)
    }

    fn add(&mut self, json: &Value) -> Option<TypeId> {
        if let Value::String(name) = json
            && let Some(known) = self.names.get(name)
        {
            return Some(*known);
        }
        // `{"type": {…}}`: a type in a type.
        if let Some(inner @ (Value::Object(_) | Value::Array(_))) = json.get("type") {
            return self.add(inner);
        }
        let id = self.types.len();
        if id == TYPES_MAX {
            return None;
        }
        // Replaced below: a record may name itself.
        self.types.push(Type::Null);
        let parsed = match json {
            Value::String(name) => primitive(name)?,
            Value::Array(branches) => {
                let branches: Option<Vec<TypeId>> = branches.iter().map(|branch| self.add(branch)).collect();
                Type::Union(branches?)
            }
            Value::Object(_) => self.complex(json, id)?,
            _ => return None,
        };
        self.types[id] = parsed;
        Some(id)
    }

    fn complex(&mut self, json: &Value, id: TypeId) -> Option<Type> {
        let kind = json.get("type")?.as_str()?;
        if let Some(name) = json.get("name").and_then(Value::as_str) {
            self.names.insert(name.to_owned(), id);
            if let Some(space) = json.get("namespace").and_then(Value::as_str) {
                self.names.insert(format!("{space}.{name}"), id);
            }
        }
        Some(match kind {
            "record" => {
                let mut fields = Vec::new();
                for field in json.get("fields")?.as_array()? {
                    let name = field.get("name")?.as_str()?.to_owned();
                    fields.push((name, self.add(field.get("type")?)?));
                }
                Type::Record(fields)
            }
            "array" => Type::Array(self.add(json.get("items")?)?),
            "map" => Type::Map(self.add(json.get("values")?)?),
            "fixed" => Type::Fixed(json.get("size")?.as_u64()?),
            // An enum is written as the number of its symbol.
            "enum" => Type::Long,
            primitive_name => primitive(primitive_name)?,
        })
    }
}

fn primitive(name: &str) -> Option<Type> {
    Some(match name {
        "null" => Type::Null,
        "boolean" => Type::Boolean,
        "int" | "long" => Type::Long,
        "float" => Type::Float,
        "double" => Type::Double,
        "bytes" => Type::Bytes,
        "string" => Type::Text,
        _ => return None,
    })
}
