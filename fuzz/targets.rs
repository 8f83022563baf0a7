//! What each fuzz target does with its bytes. Also included by the test that replays the corpus.

#[path = "../checkpoint/tests/torch/stored_zip.rs"]
mod stored_zip;

use std::{fs, path::Path};

use stored_zip::stored_zip;
use wpack_checkpoint::{Input, OpenOptions};
use wpack_format::{BlockTable, Header, Root, SliceTable, TableRef, TensorTable};

/// What a target does with its bytes. The path is a file that it may write.
pub(crate) type Target = fn(&[u8], &Path);

/// Every target: its name and what it does.
pub(crate) const TARGETS: &[(&str, Target)] = &[
    ("zip", file),
    ("pickle", pickle),
    ("legacy", file),
    ("safetensors", file),
    ("pack", pack),
];

/// Most bytes of one tensor that are read: enough to reach every way of reading.
const READ: u64 = 64 << 10;

/// The bytes are a file.
pub(crate) fn file(data: &[u8], scratch: &Path) {
    fs::write(scratch, data).expect("the scratch file");
    let input = [Input {
        component: None,
        path: scratch.to_str().expect("UTF-8").to_owned(),
    }];
    let Ok(checkpoint) = wpack_checkpoint::open(&input, &OpenOptions::default()) else {
        return;
    };
    let mut buffer = vec![0; 64 << 10];
    for tensor in checkpoint
        .components
        .iter()
        .flat_map(|component| &component.tensors)
    {
        let len = tensor.bytes.len();
        tensor.bytes.will_need(0, len);
        for start in [0, len.saturating_sub(READ)] {
            let part = usize::try_from((len - start).min(READ)).expect("small");
            // Damage of the data is found when they are read.
            let _unused = tensor.bytes.read_at(start, &mut buffer[..part]);
        }
        // No view may be readable past its end.
        assert!(tensor.bytes.read_at(len, &mut buffer[..1]).is_err());
    }
}

/// The bytes are the object of a sound archive, which has four storages of 64 bytes.
pub(crate) fn pickle(data: &[u8], scratch: &Path) {
    let storage: Vec<u8> = (0..64).collect();
    let records: [(&str, &[u8]); 6] = [
        ("a/data.pkl", data),
        ("a/version", b"3\n"),
        ("a/data/0", &storage),
        ("a/data/1", &storage),
        ("a/data/2", &storage),
        ("a/data/3", &storage),
    ];
    file(&stored_zip(&records), scratch);
}

/// The first byte chooses a decoder; digests are set right, so that what is behind them is reached.
pub(crate) fn pack(data: &[u8], _scratch: &Path) {
    let Some((&which, data)) = data.split_first() else {
        return;
    };
    match which {
        0 => {
            if let Ok(pack) = wpack_loader::Pack::from_bytes(data)
                && let Ok(shard) = pack.shard(0)
            {
                for view in shard.iter() {
                    assert!(view.bytes().len() <= data.len());
                }
            }
        }
        1 => {
            let mut page = data.to_vec();
            if let Some(front) = page.get(..4064) {
                let digest = wpack_format::sha256(front);
                if let Some(place) = page.get_mut(4064..4096) {
                    place.copy_from_slice(&digest);
                }
            }
            let len = u64::try_from(page.len()).expect("small");
            if let Ok(header) = Header::decode(&page, len) {
                // All but the unused flags, which readers ignore, and the digest over them.
                let again = header.encode();
                assert_eq!(again.get(..24), page.get(..24));
                assert_eq!(again.get(32..4064), page.get(32..4064));
            }
        }
        2 => {
            let len = u64::try_from(data.len()).expect("small");
            let header = Header {
                version: 1,
                file_len: 1 << 40,
                extent_align: 4096,
                index_len: len.next_multiple_of(8),
                root: TableRef::of(4096, data),
            };
            if let Ok(root) = Root::decode(data, &header) {
                // One way to write a root, but for the unused flags, which readers ignore.
                let again = root.encode();
                assert_eq!(again.len(), data.len());
                let header = Header {
                    root: TableRef::of(4096, &again),
                    ..header
                };
                let root = Root::decode(&again, &header).expect("what was written is read");
                assert_eq!(root.encode(), again);
            }
        }
        3 => {
            let Some((count, data)) = data.split_first_chunk::<2>() else {
                return;
            };
            let count = u32::from(u16::from_le_bytes(*count));
            if let Ok(table) = TensorTable::decode(data, count) {
                for (tensor, index) in table.iter().zip(0..) {
                    let _unused = format!("{tensor:?}");
                    assert!(table.get(index).is_some());
                }
                for (name, _) in table.sorted_names() {
                    assert!(table.find(name).is_some());
                }
            }
        }
        4 => {
            let Some((sizes, data)) = data.split_first_chunk::<12>() else {
                return;
            };
            let [a, b, c, d, e, f, g, h, i, j, k, l] = *sizes;
            let count = u32::from(u16::from_le_bytes([a, b]));
            let tensors = u32::from(u16::from_le_bytes([c, d]));
            let extent = u64::from_le_bytes([e, f, g, h, i, j, k, l]);
            if let Ok(table) = SliceTable::decode(data, count, extent, tensors) {
                for (slice, index) in table.iter().zip(0..) {
                    let _unused = (
                        slice.elements(),
                        slice.real_elements(),
                        slice.fill_elements(),
                    );
                    assert!(slice.tensors().take(1 << 16).all(|tensor| tensor < tensors));
                    assert!(table.get(index).is_some());
                }
            }
        }
        _ => {
            let Some((len, data)) = data.split_first_chunk::<8>() else {
                return;
            };
            if let Ok(table) = BlockTable::decode(data, u64::from_le_bytes(*len)) {
                assert_eq!(table.iter().count(), table.len());
            }
        }
    }
}
