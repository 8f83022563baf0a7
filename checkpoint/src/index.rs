//! Hugging Face index files: which tensor lies in which shard.

use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, SeqAccess, Visitor},
};

use crate::{
    Error,
    error::shown,
    file::{SourceReader, base_name},
};

/// Most bytes of an index file.
const INDEX_LIMIT: u64 = 100_000_000;

/// A checked index file. Its shards are not looked at yet.
#[derive(Debug)]
pub(crate) struct Index {
    /// Where it is.
    pub(crate) path: PathBuf,
    /// Shards by their text in the index, in ascending order, each with its tensors.
    pub(crate) shards: BTreeMap<String, Vec<String>>,
    /// Bytes of all tensors as the index states them, if it is a number.
    pub(crate) total_size: Option<u64>,
}

impl Index {
    /// Reads the file and refuses paths that lead out of its folder.
    pub(crate) fn read(path: &Path) -> Result<Self, Error> {
        let file = SourceReader::open(path)?;
        if file.size() > INDEX_LIMIT {
            return Err(Error::ResourceLimit {
                path: path.to_owned(),
                what: "size of the index file".to_owned(),
                found: u128::from(file.size()),
                limit: INDEX_LIMIT,
            });
        }
        Self::parse(path, &file.head(INDEX_LIMIT)?)
    }

    fn parse(path: &Path, text: &[u8]) -> Result<Self, Error> {
        let bad = |what: String| Error::BadIndex {
            path: path.to_owned(),
            what,
        };
        let text = std::str::from_utf8(text)
            .map_err(|error| bad(format!("not UTF-8 at byte {}", error.valid_up_to())))?;
        let raw: Raw =
            serde_json::from_str(text).map_err(|error| bad(shown(&error.to_string())))?;
        let map = raw
            .weight_map
            .ok_or_else(|| bad("no weight_map".to_owned()))?
            .0;
        if map.is_empty() {
            return Err(bad("the weight_map is empty".to_owned()));
        }

        let mut names: Vec<&str> = map.iter().map(|(name, _)| name.as_str()).collect();
        names.sort_unstable();
        let twice = names.windows(2).find(|pair| pair.first() == pair.last());
        if let Some(name) = twice.and_then(|pair| pair.first()) {
            return Err(Error::DuplicateKey {
                path: path.to_owned(),
                key: (*name).to_owned(),
            });
        }
        let mut shards = BTreeMap::<String, Vec<String>>::new();
        for (name, shard) in map {
            if !shards.contains_key(&shard) && !stays_inside(&shard) {
                return Err(Error::UnsafePath {
                    path: path.to_owned(),
                    value: shard,
                });
            }
            shards.entry(shard).or_default().push(name);
        }
        let total_size = raw.metadata.and_then(|metadata| metadata.total_size);
        Ok(Self {
            path: path.to_owned(),
            shards,
            total_size: total_size.and_then(|size| size.0),
        })
    }

    /// Where a shard is on disk. Links are followed: caches keep shards elsewhere.
    pub(crate) fn shard_path(&self, shard: &str) -> PathBuf {
        match self.path.parent() {
            Some(folder) => folder.join(shard),
            None => PathBuf::from(shard),
        }
    }

    /// Opens every shard before the first is read, so that the first missing one is named at once.
    pub(crate) fn open_shards(&self) -> Result<Vec<Arc<SourceReader>>, Error> {
        let missing = |shard: &str| Error::MissingShard {
            path: self.path.clone(),
            shard: base_name(Path::new(shard)),
            what: format!(
                "the index places {} tensors there",
                self.shards.get(shard).map_or(0, Vec::len)
            ),
        };
        let mut files = Vec::with_capacity(self.shards.len());
        for shard in self.shards.keys() {
            let path = self.shard_path(shard);
            if !path.exists() {
                return Err(missing(shard));
            }
            files.push(SourceReader::open(&path)?);
        }
        Ok(files)
    }
}

/// Whether a path from an index stays below the folder of the index.
fn stays_inside(path: &str) -> bool {
    let mut parts = path.split(['/', '\\']);
    let drive = path.get(1..2) == Some(":");
    !path.is_empty()
        && !path.starts_with(['/', '\\'])
        && !drive
        && !path.contains(char::is_control)
        && parts.all(|part| part != "..")
}

#[derive(Deserialize)]
struct Raw {
    #[serde(default)]
    metadata: Option<Metadata>,
    weight_map: Option<WeightMap>,
}

/// What is of use in the metadata, which may be of any shape.
#[derive(Default)]
struct Metadata {
    total_size: Option<TotalSize>,
}

impl<'de> Deserialize<'de> for Metadata {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = Metadata;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("metadata")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Metadata, A::Error> {
                let mut metadata = Metadata::default();
                while let Some(key) = map.next_key::<String>()? {
                    if key == "total_size" {
                        metadata.total_size = Some(map.next_value()?);
                    } else {
                        map.next_value::<IgnoredAny>()?;
                    }
                }
                Ok(metadata)
            }

            fn visit_unit<E>(self) -> Result<Metadata, E> {
                Ok(Metadata::default())
            }
        }
        deserializer.deserialize_map(Any)
    }
}

/// A whole number of bytes, if the value is one: writers have put floats and text there.
struct TotalSize(Option<u64>);

impl<'de> Deserialize<'de> for TotalSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = TotalSize;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a size")
            }

            fn visit_u64<E>(self, size: u64) -> Result<TotalSize, E> {
                Ok(TotalSize(Some(size)))
            }

            fn visit_i64<E>(self, _: i64) -> Result<TotalSize, E> {
                Ok(TotalSize(None))
            }

            fn visit_f64<E>(self, _: f64) -> Result<TotalSize, E> {
                Ok(TotalSize(None))
            }

            fn visit_bool<E>(self, _: bool) -> Result<TotalSize, E> {
                Ok(TotalSize(None))
            }

            fn visit_str<E>(self, _: &str) -> Result<TotalSize, E> {
                Ok(TotalSize(None))
            }

            fn visit_unit<E>(self) -> Result<TotalSize, E> {
                Ok(TotalSize(None))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<TotalSize, A::Error> {
                while seq.next_element::<IgnoredAny>()?.is_some() {}
                Ok(TotalSize(None))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<TotalSize, A::Error> {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(TotalSize(None))
            }
        }
        deserializer.deserialize_any(Any)
    }
}

/// Tensor to shard, names as often as they stand there.
struct WeightMap(Vec<(String, String)>);

impl<'de> Deserialize<'de> for WeightMap {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = WeightMap;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of tensor name to file name")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<WeightMap, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(WeightMap(pairs))
            }
        }
        deserializer.deserialize_map(Object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_lead_out_are_told() {
        for good in ["a.bin", "layers/a.bin", "./a.bin", "a..b", "..a/b"] {
            assert!(stays_inside(good), "{good}");
        }
        for bad in [
            "", "/a", "../a", "a/../b", "a/..", "\\a", "a\\..\\b", "C:\\a", "c:a", "a\0",
        ] {
            assert!(!stays_inside(bad), "{bad:?}");
        }
    }

    #[test]
    fn odd_metadata_is_no_error() {
        let read = |metadata: &str| {
            let text = format!(r#"{{"metadata":{metadata},"weight_map":{{"a":"b"}}}}"#);
            Index::parse(Path::new("i.json"), text.as_bytes()).map(|index| index.total_size)
        };
        assert_eq!(read(r#"{"total_size":48}"#).ok(), Some(Some(48)));
        for odd in [
            "null",
            "{}",
            r#"{"total_size":"48"}"#,
            r#"{"total_size":[{"a":1}]}"#,
        ] {
            assert_eq!(read(odd).ok(), Some(None), "{odd}");
        }
    }

    #[test]
    fn a_name_that_stands_twice_is_refused() {
        let text = br#"{"weight_map":{"a":"x","a":"y"}}"#;
        let error = Index::parse(Path::new("i.json"), text)
            .map(|_| ())
            .map_err(|e| e.code());
        assert_eq!(error, Err("duplicate-key"));
    }
}
