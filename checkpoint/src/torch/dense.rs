//! A dense tensor as a view of a storage.

use std::sync::Arc;

use wpack_format::DType;

use super::{
    dtype,
    gather::{self, Change},
    storages::Loaded,
};

/// A view of a storage.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Dense {
    /// Index of the storage.
    pub(super) storage: usize,
    /// First byte.
    pub(super) start: u64,
    pub(super) dtype: DType,
    /// As PyTorch has it.
    pub(super) shape: Vec<u64>,
    /// In elements; 0 where a dimension has no second element, so that equal views are equal.
    pub(super) strides: Vec<u64>,
    pub(super) change: Change,
}

impl Dense {
    pub(super) fn is_empty(&self) -> bool {
        self.shape.contains(&0)
    }

    /// Bytes of its values; none if they cannot be counted.
    pub(super) fn len(&self) -> Option<u64> {
        if self.is_empty() {
            return Some(0);
        }
        self.shape
            .iter()
            .try_fold(dtype::width(self.dtype), |all, &size| all.checked_mul(size))
    }

    /// The tensor under its names. None if it cannot be said how many values a packed one has.
    pub(super) fn tensor(
        &self,
        names: Vec<String>,
        loaded: &Loaded,
        source: usize,
    ) -> Option<crate::Tensor> {
        let mut shape = self.shape.clone();
        if self.dtype == DType::F4 {
            let last = shape.last_mut()?;
            *last = last.checked_mul(2)?;
        }
        let storage = Arc::clone(loaded.storages.get(self.storage)?);
        let width = dtype::width(self.dtype);
        let view = gather::View::new(
            storage,
            self.start,
            width,
            &self.shape,
            &self.strides,
            self.change,
        );
        Some(crate::Tensor {
            names,
            dtype: self.dtype,
            shape,
            stored_shape: self.shape.clone(),
            source,
            bytes: Arc::new(view),
        })
    }
}
