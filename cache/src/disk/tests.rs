//! The index and its eviction against a naive model, after every operation.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

use super::evict::Victim;
use super::geometry::{Geometry, Shape};
use super::index::{Index, IndexLimits, Standing};
use super::unit::Units;
use crate::memory::Kind;
use crate::page::PageSize;
use crate::version::{FileVersion, SourceId, SourcePath, VersionId};

const LIMIT: u64 = 12 << 20;

/// What is on disk, written down page by page.
struct Model {
    geometry: Geometry,
    versions: BTreeMap<VersionId, (Shape, BTreeMap<u64, Kind>)>,
    pinned: BTreeMap<VersionId, (u64, u32)>,
}

impl Model {
    /// Bytes of everything, and of the data and metadata units.
    fn bytes(&self) -> (u64, [u64; 2]) {
        let (mut all, mut kinds) = (0, [0; 2]);
        for (shape, pages) in self.versions.values() {
            all += shape.own_bytes();
            let units: BTreeSet<(u32, bool)> = pages
                .iter()
                .map(|(page, kind)| (self.geometry.place(*page).0, *kind == Kind::Metadata))
                .collect();
            for (_, is_metadata) in units {
                kinds[usize::from(is_metadata)] += shape.unit_map_bytes(self.geometry);
            }
            for (page, kind) in pages {
                kinds[usize::from(*kind == Kind::Metadata)] += self.geometry.page_bytes(*shape, *page);
            }
        }
        (all + kinds[0] + kinds[1], kinds)
    }

    fn check(&self, index: &Index<()>, random: &mut StdRng) {
        let (all, [data, metadata]) = self.bytes();
        assert_eq!(index.used, all);
        assert_eq!(
            (index.queues.data_bytes, index.queues.metadata_bytes),
            (data, metadata)
        );
        assert_eq!(index.versions.len(), self.versions.len());
        assert_eq!(
            index.pages,
            self.versions.values().map(|it| it.1.len() as u64).sum::<u64>()
        );
        assert_eq!(index.pinned, self.pinned.len() as u64);
        for (id, (shape, pages)) in &self.versions {
            let ends = [(); 2].map(|()| random.random_range(0..=shape.pages));
            let range = ends[0].min(ends[1])..ends[0].max(ends[1]);
            let naive = pages.range(range.clone()).count() as u64;
            assert_eq!(index.count(*id, range.clone()), naive, "{range:?}");
            for _ in 0..8 {
                let page = random.random_range(0..shape.pages);
                assert_eq!(
                    index.contains(*id, page),
                    pages.contains_key(&page),
                    "page {page}"
                );
            }
        }
    }
}

struct Files {
    all: Vec<(VersionId, Shape)>,
}

impl Files {
    fn new(page_size: PageSize) -> Files {
        let shape = |index: usize| {
            let path = SourcePath::root().join(format!("f{index}").as_bytes()).unwrap();
            let len = [1, 5000, 70_000, 3_000_000, 40_000_000, 1 << 40][index % 6] + index as u64;
            let version = FileVersion::new(SourceId::new("memory://m"), path, len, 0, 0);
            (version.id(), Shape::new(&version, page_size))
        };
        Files {
            all: (0..24).map(shape).collect(),
        }
    }

    fn any(&self, random: &mut StdRng) -> (VersionId, Shape) {
        *self.all.choose(random).unwrap()
    }
}

fn admit(index: &mut Index<()>, model: &mut Model, (id, shape): (VersionId, Shape), random: &mut StdRng) {
    let first = random.random_range(0..shape.pages);
    let count = random.random_range(1..400);
    let names: Vec<(u64, Kind)> = (first..(first + count).min(shape.pages))
        .filter(|_| random.random_bool(0.8))
        .map(|page| {
            let is_metadata = page + 8 >= shape.pages;
            (page, if is_metadata { Kind::Metadata } else { Kind::Data })
        })
        .collect();
    let (data, metadata) = index.price(id, shape, &names);
    make_room(index, model, data, metadata);
    if !index.has_room(data, metadata) || names.is_empty() {
        return;
    }
    let before = index.used;
    // Its own eviction may have taken the version, and its header with it.
    let (data, metadata) = index.price(id, shape, &names);
    if !index.has_room(data, metadata) {
        return;
    }
    if index.standing(id) == Standing::Unknown {
        index.add_new(id, shape, Arc::new(()));
    }
    index.admit(id, &names, false);
    assert_eq!(index.used, before + data + metadata, "the price was right");
    let known = model.versions.entry(id).or_insert((shape, BTreeMap::new()));
    for (page, kind) in names {
        known.1.entry(page).or_insert(kind);
    }
}

fn make_room(index: &mut Index<()>, model: &mut Model, data: u64, metadata: u64) {
    while let Some(victim) = index.next_victim(data, metadata) {
        match victim {
            Victim::Left(id) => load(index, model, id, true),
            Victim::Version { id, pages } => {
                assert!(!model.pinned.contains_key(&id), "a pinned version was taken");
                let (_, gone) = model.versions.remove(&id).unwrap();
                assert_eq!(gone.len() as u64, pages);
            }
            Victim::Pages { id, runs, .. } => {
                assert!(
                    !model.pinned.contains_key(&id),
                    "pages of a pinned version were taken"
                );
                let known = &mut model.versions.get_mut(&id).unwrap().1;
                for page in runs.into_iter().flatten() {
                    assert!(known.remove(&page).is_some(), "page {page} was not there");
                }
            }
        }
    }
}

fn load(index: &mut Index<()>, model: &Model, id: VersionId, goes_first: bool) {
    let Standing::Left(ticket) = index.standing(id) else {
        return;
    };
    let (shape, pages) = &model.versions[&id];
    let pages: Vec<(u64, Kind)> = pages.iter().map(|(page, kind)| (*page, *kind)).collect();
    let units = Units::of(index.geometry, *shape, &pages);
    index.load(id, ticket, *shape, Arc::new(()), units, goes_first);
}

/// All in memory is lost; the next daemon finds the files. Some versions are used, others wait as they are.
fn restart(index: &Index<()>, model: &mut Model, random: &mut StdRng) -> Index<()> {
    let mut next = Index::new(index.limits, index.geometry);
    model.pinned.clear();
    for (id, version) in &index.versions {
        next.add_left(*id, version.charged);
    }
    let ids: Vec<VersionId> = next.versions.keys().copied().collect();
    for id in ids {
        if random.random_bool(0.5) {
            load(&mut next, model, id, false);
        }
    }
    make_room(&mut next, model, 0, 0);
    let ids: Vec<VersionId> = model.versions.keys().copied().collect();
    for id in ids {
        load(&mut next, model, id, false);
    }
    next
}

/// One random operation, on both.
fn operate(index: &mut Index<()>, model: &mut Model, files: &Files, random: &mut StdRng) {
    let (id, shape) = files.any(random);
    match random.random_range(0..100) {
        0..60 => admit(index, model, (id, shape), random),
        60..75 => {
            let pages: Vec<u64> = (0..40).map(|_| random.random_range(0..shape.pages)).collect();
            let here = index.find(id, &pages).map(|here| here.pages).unwrap_or_default();
            let known = model.versions.get(&id);
            let is_known = |page: &&u64| known.is_some_and(|known| known.1.contains_key(page));
            assert!(here.iter().eq(pages.iter().filter(is_known)));
        }
        75..85 => {
            let page = random.random_range(0..shape.pages);
            let known = model
                .versions
                .get_mut(&id)
                .and_then(|known| known.1.remove(&page));
            let sums = |index: &Index<()>| {
                let queues = &index.queues;
                (
                    index.used,
                    queues.data_bytes,
                    queues.metadata_bytes,
                    index.pages,
                    index.units,
                )
            };
            let (mut used, mut data, mut metadata, mut pages, units) = sums(index);
            assert_eq!(index.forget_page(id, page), known.is_some());
            // The unit stays, maybe empty, until its turn comes: its entries are still charged.
            if let Some(kind) = known {
                let bytes = model.geometry.page_bytes(shape, page);
                let of_kind = if kind == Kind::Data {
                    &mut data
                } else {
                    &mut metadata
                };
                *of_kind -= bytes;
                used -= bytes;
                pages -= 1;
            }
            assert_eq!(sums(index), (used, data, metadata, pages, units));
            if known.is_some() {
                drop_version(index, model, id);
            }
        }
        85..90 => drop_version(index, model, id),
        90..94 if model.pinned.len() < 2 && model.versions.contains_key(&id) => {
            index.pin(id);
            let ticket = index.versions[&id].ticket;
            model.pinned.entry(id).or_insert((ticket, 0)).1 += 1;
        }
        94..98 => {
            if let Some((id, (ticket, pins))) = model.pinned.pop_first() {
                index.unpin(id, ticket);
                if pins > 1 {
                    model.pinned.insert(id, (ticket, pins - 1));
                }
            }
        }
        98 => *index = restart(index, model, random),
        _ => {}
    }
}

fn drop_version(index: &mut Index<()>, model: &mut Model, id: VersionId) {
    index.take_version(id);
    model.versions.remove(&id);
    model.pinned.remove(&id);
}

#[test]
fn index_and_eviction_agree_with_a_naive_model() {
    for seed in 0x5eed_0001..0x5eed_0007_u64 {
        println!("seed {seed:#x}");
        let mut random = StdRng::seed_from_u64(seed);
        let page_size = PageSize::new([4 << 10, 16 << 10, 1 << 20][seed as usize % 3]).unwrap();
        let (geometry, files) = (Geometry::new(page_size), Files::new(page_size));
        let limits = IndexLimits {
            disk_bytes: LIMIT,
            metadata_bytes: LIMIT / 8,
            memory_bytes: 64 << 10,
            open_versions: 5,
        };
        let mut index: Index<()> = Index::new(limits, geometry);
        let mut model = Model {
            geometry,
            versions: BTreeMap::new(),
            pinned: BTreeMap::new(),
        };
        for step in 0..1_000 {
            operate(&mut index, &mut model, &files, &mut random);
            assert!(index.used <= LIMIT || !model.pinned.is_empty(), "{}", index.used);
            assert!(index.queues.open.len() <= 5);
            if step % 4 == 0 {
                model.check(&index, &mut random);
            }
        }
        make_room(&mut index, &mut model, LIMIT, 0);
        assert_eq!(index.used, model.bytes().0);
    }
}

#[test]
fn units_of_a_pinned_version_are_passed_over_once_and_come_again() {
    let page_size = PageSize::new(16 << 10).unwrap();
    let geometry = Geometry::new(page_size);
    let limits = IndexLimits {
        disk_bytes: 1 << 40,
        metadata_bytes: 1 << 40,
        memory_bytes: 64 << 20,
        open_versions: 5,
    };
    let mut index: Index<()> = Index::new(limits, geometry);
    let (id, shape) = Files::new(page_size).all[4];
    index.add_new(id, shape, Arc::new(()));
    let pages: Vec<(u64, Kind)> = (0..shape.pages).map(|page| (page, Kind::Data)).collect();
    index.admit(id, &pages, false);
    let ticket = index.versions[&id].ticket;
    index.pin(id);
    assert!(index.next_victim(1 << 40, 0).is_none());
    assert_eq!(index.queues.turns(), 0, "a second look has nothing to pass over");
    index.unpin(id, ticket);
    assert_eq!(index.queues.turns() as u64, index.units);
    assert!(index.next_victim(1 << 40, 0).is_some());
}
