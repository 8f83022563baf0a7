//! The JSON header: names, types, shapes and offsets as they stand there, no key twice.
//!
//! Nothing here recurses on input: the depth of what is read is fixed by its type, and what is
//! ignored is skipped without recursion.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashSet},
    fmt,
    path::Path,
};

use serde::{
    Deserialize,
    de::{MapAccess, Visitor},
};

use crate::{
    Error,
    error::{Name, shown},
};

/// The key that holds text and no tensor.
const METADATA_KEY: &str = "__metadata__";

/// What a header says.
pub(super) struct Header {
    /// Tensors, in the order of the text.
    pub(super) entries: Vec<Entry>,
    /// Text to text.
    pub(super) metadata: BTreeMap<String, String>,
}

/// One tensor.
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) dtype: String,
    pub(super) shape: Vec<u64>,
    pub(super) data_offsets: [u64; 2],
}

/// Reads the text of a header.
pub(super) fn parse(path: &Path, text: &[u8]) -> Result<Header, Error> {
    let bad = |what: String| Error::BadHeader {
        path: path.to_owned(),
        what,
    };
    let text = std::str::from_utf8(text)
        .map_err(|error| bad(format!("not UTF-8 at byte {}", error.valid_up_to())))?;
    let Raw {
        entries,
        metadata,
        metadata_keys,
    } = serde_json::from_str(text).map_err(|error| bad(shown(&error.to_string())))?;
    let duplicate = |key: String| Error::DuplicateKey {
        path: path.to_owned(),
        key,
    };

    if metadata_keys > 1 {
        return Err(duplicate(METADATA_KEY.to_owned()));
    }
    let mut names = HashSet::with_capacity(entries.len());
    if let Some(twice) = entries
        .iter()
        .find(|entry| !names.insert(entry.name.as_str()))
    {
        return Err(duplicate(twice.name.clone()));
    }
    drop(names);
    let mut unique = BTreeMap::new();
    for (key, value) in metadata {
        if key.chars().any(|c| c == '\0') {
            return Err(bad(format!("NUL in the metadata key {}", Name(&key))));
        }
        if unique.contains_key(&key) {
            return Err(duplicate(format!("{METADATA_KEY}.{key}")));
        }
        unique.insert(key, value);
    }
    Ok(Header {
        entries,
        metadata: unique,
    })
}

#[derive(Default)]
struct Raw {
    entries: Vec<Entry>,
    metadata: Vec<(String, String)>,
    metadata_keys: usize,
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Raw;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of tensors")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Raw, A::Error> {
                let mut raw = Raw::default();
                while let Some(key) = map.next_key::<String>()? {
                    if key == METADATA_KEY {
                        raw.metadata_keys += 1;
                        if let Some(Pairs(pairs)) = map.next_value()? {
                            raw.metadata.extend(pairs);
                        }
                    } else {
                        let Fields {
                            dtype,
                            shape,
                            data_offsets,
                        } = map.next_value()?;
                        let dtype = dtype.into_owned();
                        raw.entries.push(Entry {
                            name: key,
                            dtype,
                            shape,
                            data_offsets,
                        });
                    }
                }
                Ok(raw)
            }
        }
        deserializer.deserialize_map(Object)
    }
}

/// The fields of a tensor; others are ignored.
#[derive(Deserialize)]
struct Fields<'a> {
    #[serde(borrow)]
    dtype: Cow<'a, str>,
    shape: Vec<u64>,
    data_offsets: [u64; 2],
}

/// Text to text, keys as often as they stand there.
struct Pairs(Vec<(String, String)>);

impl<'de> Deserialize<'de> for Pairs {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Pairs;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of text to text")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Pairs(pairs))
            }
        }
        deserializer.deserialize_map(Object)
    }
}
