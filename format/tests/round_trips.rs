//! What is encoded decodes to itself, and only to itself.

mod common;

use common::{any_slices, any_tensors, extent_len, root, slices, tensors};
use proptest::{collection::btree_set, prelude::*};
use wpack_format::{
    Block, BlockTable, Header, Owners, Root, SliceTable, TableRef, Tensor, TensorTable,
};

fn count<T>(items: &[T]) -> u32 {
    u32::try_from(items.len()).unwrap()
}

proptest! {
    #[test]
    fn tensor_tables(tensors in any_tensors()) {
        let bytes = TensorTable::encode(&tensors);
        let table = TensorTable::decode(&bytes, count(&tensors)).unwrap();
        prop_assert_eq!(table.len(), tensors.len());
        let again: Vec<Tensor> = table.iter().map(|tensor| tensor.to_tensor()).collect();
        prop_assert_eq!(TensorTable::encode(&again), &bytes[..]);
        prop_assert_eq!(&again, &tensors);
        for (index, tensor) in (0..).zip(&tensors) {
            let read = table.get_ref(index).unwrap();
            prop_assert_eq!(read.name(), &tensor.names[0].name);
            prop_assert_eq!(read.elements(), tensor.shape.iter().product::<u64>());
            prop_assert_eq!(Some(read.len_bytes()), tensor.dtype.bytes(read.elements()));
            for name in &tensor.names {
                prop_assert_eq!(table.find(&name.name), Some(index));
            }
        }
        prop_assert_eq!(table.find("no such name"), None);
        let sorted: Vec<&str> = table.sorted_names().map(|(name, _)| name).collect();
        prop_assert!(sorted.is_sorted());
        prop_assert_eq!(sorted.len(), tensors.iter().map(|tensor| tensor.names.len()).sum::<usize>());
    }

    #[test]
    fn slice_tables((tensors, slices) in any_slices()) {
        let bytes = SliceTable::encode(&slices);
        let end = extent_len(&slices);
        let table = SliceTable::decode(&bytes, count(&slices), end, count(&tensors)).unwrap();
        prop_assert_eq!(table.len(), slices.len());
        for (index, slice) in (0..).zip(&slices) {
            prop_assert_eq!(table.get(index), Some(slice.clone()));
            let read = table.get_ref(index).unwrap();
            prop_assert_eq!(Some(read.len), slice.len_bytes());
            prop_assert_eq!(Some(read.elements()), slice.elements());
            prop_assert_eq!(Some(read.real_elements()), slice.real_elements());
            prop_assert_eq!(Some(read.fill_elements()), slice.fill_elements());
            prop_assert!(read.tensors().eq(slice.tensors()));
            prop_assert_eq!(slice.check(&tensors[..]), Ok(()));
        }
        let tensor_table = TensorTable::encode(&tensors);
        let tensor_table = TensorTable::decode(tensor_table, count(&tensors)).unwrap();
        prop_assert_eq!(table.check_tensors(&tensor_table), Ok(()));
    }

    /// The index is sized before data is written: neither offsets nor checksums change a length.
    #[test]
    fn lengths_do_not_depend_on_places((_, mut slices) in any_slices(), shift in 0_u64..1 << 40) {
        let before = SliceTable::encode(&slices).len();
        for slice in &mut slices {
            slice.offset = slice.offset.wrapping_mul(shift);
            slice.crc32c = slice.crc32c.map(|crc| !crc);
        }
        prop_assert_eq!(SliceTable::encode(&slices).len(), before);
    }

    #[test]
    fn owners_have_one_form(ranks in btree_set(0_u32..64, 1..20)) {
        let owners = Owners::from_ranks(ranks.iter().copied()).unwrap();
        prop_assert!(owners.ranks(64).eq(ranks.iter().copied()));
        prop_assert_eq!(owners.max_rank(), ranks.last().copied());
        prop_assert_eq!(owners.count(64), ranks.len() as u64);
        for rank in 0..70 {
            prop_assert_eq!(owners.contains(rank), ranks.contains(&rank));
        }
    }
}

#[test]
fn a_root_leads_back() {
    let (root, header) = root();
    let bytes = root.encode();
    let page = header.encode();
    assert_eq!(Header::decode(&page, header.file_len), Ok(header.clone()));
    assert_eq!(Root::decode(&bytes, &header), Ok(root.clone()));
    assert_eq!(root.ranks(), Some(8));
    assert_eq!(header.root, TableRef::of(4096, &bytes));
    assert_eq!(header.root.check_digest("the root", &bytes), Ok(()));
}

/// As above, for the root: everything that is known only after data was written has a fixed width.
#[test]
fn the_root_has_its_length_before_its_digests() {
    let (mut root, header) = root();
    let before = root.encode().len();
    for extent in &mut root.extents {
        let offset = extent.blocks.offset;
        extent.blocks = TableRef::of(offset, &BlockTable::encode(&[Block::of(b"data")]));
    }
    root.description.files[0].offset = 7;
    assert_eq!(root.encode().len(), before);
    assert_eq!(root.arrange(4096).unwrap().file_len, header.file_len);
}

#[test]
fn an_empty_pack_is_header_and_index() {
    let mut root = Root {
        description: Default::default(),
        components: Vec::new(),
        extents: Vec::new(),
    };
    let header = root.arrange(4096).unwrap();
    let bytes = root.encode();
    let header = header.seal(&bytes);
    assert_eq!(header.file_len, 8192);
    assert_eq!(Root::decode(&bytes, &header), Ok(root));
}

#[test]
fn all_ranks_of_any_world() {
    assert!(Owners::All.contains(u32::MAX));
    assert_eq!(Owners::All.max_rank(), None);
    assert!(Owners::All.ranks(3).eq(0..3));
    assert_eq!(Owners::from_ranks([]), None);
    assert_eq!(Owners::from_ranks([1, 1]), None);
    assert_eq!(Owners::from_ranks([2, 1]), None);
    assert!(Owners::from_ranks([u32::MAX - 1, u32::MAX]).is_some());
}

#[test]
fn what_slices_hold() {
    let slices = slices();
    let fills: Vec<_> = slices.iter().map(|slice| slice.fill_elements()).collect();
    assert_eq!(fills, [Some(6), Some(0), Some(1)]);
    assert!(slices[2].tensors().eq([0, 2]));
    for slice in &slices {
        assert_eq!(slice.check(&tensors()[..]), Ok(()));
    }
}

/// A fresh pool word, name or count that fits no field makes bytes that no reader accepts.
#[test]
fn what_does_not_fit_is_refused_not_cut() {
    let mut many = tensors();
    many[2].shape = vec![1; 256];
    many[2].stored_shape = vec![1; 256];
    assert!(TensorTable::decode(TensorTable::encode(&many), 3).is_err());
    many[2].shape = vec![1; 70_000];
    many[2].stored_shape = vec![1; 70_000];
    assert!(TensorTable::decode(TensorTable::encode(&many), 3).is_err());
    let mut wide = slices();
    wide[1].shape = vec![1 << 33, 1 << 33];
    let end = extent_len(&slices());
    assert!(SliceTable::decode(SliceTable::encode(&wide), 3, end, 3).is_err());
}
