//! A strict reader of Prometheus's text format 0.0.4, written from its description and not from our writer: what it does
//! not understand fails the test. Also holds each family to the rules that promtool checks.

use std::collections::{BTreeMap, BTreeSet};

/// One family as it was read.
#[derive(Debug, Default)]
pub(crate) struct Family {
    pub(crate) kind: String,
    pub(crate) samples: Vec<(BTreeMap<String, String>, f64)>,
}

impl Family {
    /// The value of the only sample with these labels, among others.
    pub(crate) fn value(&self, labels: &[(&str, &str)]) -> f64 {
        let has = |sample: &BTreeMap<String, String>| {
            let given = |(name, value): &(&str, &str)| sample.get(*name).map(String::as_str) == Some(*value);
            labels.iter().all(given)
        };
        let found: Vec<f64> = self
            .samples
            .iter()
            .filter(|(l, _)| has(l))
            .map(|(_, v)| *v)
            .collect();
        assert_eq!(found.len(), 1, "{labels:?} in {:?}", self.samples);
        found[0]
    }
}

/// Reads a whole exposition.
pub(crate) fn read(text: &str) -> BTreeMap<String, Family> {
    assert!(text.ends_with('\n'), "the last line has its end");
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    let (mut helped, mut current) = (BTreeSet::new(), String::new());
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').expect("a help text");
            assert!(!help.is_empty() && helped.insert(name.to_owned()), "{line}");
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect("a type");
            assert!(["counter", "gauge"].contains(&kind), "{line}");
            assert_eq!(name.ends_with("_total"), kind == "counter", "{line}");
            assert!(helped.contains(name), "no help for {name}");
            current = name.to_owned();
            let family = Family {
                kind: kind.to_owned(),
                samples: Vec::new(),
            };
            assert!(families.insert(current.clone(), family).is_none(), "{name} twice");
        } else {
            let (name, labels, value) = sample(line);
            assert_eq!(
                name, current,
                "a sample stands below the type of its family: {line}"
            );
            let family = families.get_mut(&name).expect("its type came before");
            let is_new = family.samples.iter().all(|(other, _)| *other != labels);
            assert!(is_new, "twice: {line}");
            assert!(family.kind == "gauge" || value >= 0.0, "{line}");
            family.samples.push((labels, value));
        }
    }
    for (name, family) in &families {
        assert!(!family.samples.is_empty(), "{name} has no sample");
    }
    families
}

/// `name{label="value",…} number`
fn sample(line: &str) -> (String, BTreeMap<String, String>, f64) {
    let name_len = line.find(['{', ' ']).expect("a name ends");
    let (name, mut rest) = line.split_at(name_len);
    assert!(is_name(name), "{line}");
    let mut labels = BTreeMap::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        loop {
            let (label, after) = rest.split_once("=\"").expect("a label has a value");
            assert!(is_name(label), "{label:?} in {line}");
            let (value, after) = quoted(after);
            assert!(
                labels.insert(label.to_owned(), value).is_none(),
                "{label} twice: {line}"
            );
            if let Some(after) = after.strip_prefix("} ") {
                rest = after;
                break;
            }
            rest = after.strip_prefix(',').expect("a comma or the end");
        }
    } else {
        rest = rest.strip_prefix(' ').expect("a space");
    }
    let value = rest.parse().unwrap_or_else(|_| panic!("no number: {line}"));
    (name.to_owned(), labels, value)
}

/// Up to the closing quote, without escapes; and what follows it.
fn quoted(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return (value, &text[at + 1..]),
            '\\' => match chars.next() {
                Some((_, 'n')) => value.push('\n'),
                Some((_, c @ ('\\' | '"'))) => value.push(c),
                other => panic!("escape {other:?}"),
            },
            c => value.push(c),
        }
    }
    panic!("no closing quote: {text}")
}

fn is_name(name: &str) -> bool {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    !name.is_empty() && !name.starts_with(|c: char| c.is_ascii_digit()) && name.chars().all(is_word)
}
