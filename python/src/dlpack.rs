//! Tensor memory handed to Python as DLPack capsules. The only file of this crate with `unsafe`.
//!
//! A capsule owns an [`Arc`] of the memory it points into, so a tensor made from it keeps the mapping
//! alive by itself: neither the pack nor the shard need to outlive it.
#![expect(
    unsafe_code,
    reason = "DLPack is a C structure in a capsule whose consumer calls back to free it"
)]

use std::{ffi::c_void, sync::Arc};

use pyo3::{exceptions::PyMemoryError, ffi, prelude::*, types::PyAny};

/// Memory that tensors point into.
///
/// The range `start()..start() + len()` stays readable (and writable unless
/// [`Memory::is_read_only`]) at the same address as long as the value lives.
pub(crate) trait Memory: Send + Sync {
    /// Address of the first byte.
    fn start(&self) -> *mut u8;
    /// Bytes.
    fn len(&self) -> usize;
    /// True where a write would fault.
    fn is_read_only(&self) -> bool;
}

/// A range of some memory, checked when it is made.
#[derive(Clone)]
pub(crate) struct Span {
    memory: Arc<dyn Memory>,
    offset: usize,
    len: usize,
}

impl Span {
    /// `len` bytes from `offset` on; `None` where that is outside the memory.
    pub(crate) fn new(memory: Arc<dyn Memory>, offset: usize, len: usize) -> Option<Self> {
        let end = offset.checked_add(len)?;
        (end <= memory.len()).then_some(Self {
            memory,
            offset,
            len,
        })
    }

    /// Bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Address of the first byte.
    pub(crate) fn address(&self) -> usize {
        self.pointer().addr()
    }

    /// True where a write would fault.
    pub(crate) fn is_read_only(&self) -> bool {
        self.memory.is_read_only()
    }

    /// Copies the bytes as they are now; `into` has [`Span::len`] bytes, or gets as many as it has.
    pub(crate) fn copy_to(&self, into: &mut [u8]) {
        let len = self.len.min(into.len());
        // SAFETY: `new` and `narrow` checked that the range is inside the memory, which `self` keeps
        // alive; `into` is memory of its own. No reference to the range is made, so a program that writes
        // to its tensors meanwhile gives at worst a mixture of old and new bytes.
        unsafe { std::ptr::copy_nonoverlapping(self.pointer(), into.as_mut_ptr(), len) };
    }

    fn pointer(&self) -> *mut u8 {
        self.memory.start().wrapping_add(self.offset)
    }
}

/// Element type as DLPack spells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct ElementType {
    /// `DLDataTypeCode`.
    pub(crate) code: u8,
    /// Bits of one lane.
    pub(crate) bits: u8,
    /// Lanes.
    pub(crate) lanes: u16,
}

#[derive(Clone, Copy)]
#[repr(C)]
struct Device {
    kind: i32,
    id: i32,
}

/// `kDLCPU`.
pub(crate) const CPU: i32 = 1;

#[repr(C)]
struct Tensor {
    data: *mut c_void,
    device: Device,
    ndim: i32,
    dtype: ElementType,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

#[repr(C)]
struct Managed {
    tensor: Tensor,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Managed)>,
}

#[repr(C)]
struct ManagedVersioned {
    major: u32,
    minor: u32,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut ManagedVersioned)>,
    flags: u64,
    tensor: Tensor,
}

/// The unversioned structure and what it points to, in one allocation. `managed` is the first field, so
/// a pointer to it is a pointer to the whole.
#[repr(C)]
struct Plain {
    managed: Managed,
    own: Own,
}

/// As [`Plain`] for DLPack 1.0.
#[repr(C)]
struct Versioned {
    managed: ManagedVersioned,
    own: Own,
}

struct Own {
    // Shapes and strides of up to four dimensions live in the same allocation as the rest.
    inline: [i64; 8],
    heap: Option<Box<[i64]>>,
    _span: Span,
}

const FLAG_READ_ONLY: u64 = 1;

fn tensor(span: &Span, dtype: ElementType, ndim: i32) -> Tensor {
    Tensor {
        data: span.pointer().cast(),
        device: Device { kind: CPU, id: 0 },
        ndim,
        dtype,
        shape: std::ptr::null_mut(),
        strides: std::ptr::null_mut(),
        byte_offset: 0,
    }
}

impl Own {
    fn new(span: Span, shape: &[i64]) -> Self {
        let rank = shape.len();
        let mut inline = [0; 8];
        let mut heap = None;
        let dims: &mut [i64] = if 2 * rank <= inline.len() {
            &mut inline
        } else {
            heap.insert(vec![0; 2 * rank].into_boxed_slice())
        };
        for (to, from) in dims.iter_mut().zip(shape) {
            *to = *from;
        }
        let mut stride: i64 = 1;
        for (to, from) in dims
            .iter_mut()
            .skip(rank)
            .take(rank)
            .rev()
            .zip(shape.iter().rev())
        {
            *to = stride;
            stride = stride.saturating_mul((*from).max(1));
        }
        Self {
            inline,
            heap,
            _span: span,
        }
    }

    /// Addresses of shape and strides; valid as long as `self` does not move.
    fn dims(&mut self, rank: usize) -> (*mut i64, *mut i64) {
        let start = match &mut self.heap {
            Some(heap) => heap.as_mut_ptr(),
            None => self.inline.as_mut_ptr(),
        };
        (start, start.wrapping_add(rank))
    }
}

unsafe extern "C" fn free_plain(managed: *mut Managed) {
    // SAFETY: `managed` is the first field of a `Plain` that `plain_capsule` leaked from a box, and the
    // consumer calls its deleter once.
    drop(unsafe { Box::from_raw(managed.cast::<Plain>()) });
}

unsafe extern "C" fn free_versioned(managed: *mut ManagedVersioned) {
    // SAFETY: as in `free_plain`, for a `Versioned`.
    drop(unsafe { Box::from_raw(managed.cast::<Versioned>()) });
}

/// Frees the structure of a capsule that no consumer has taken: one that was is renamed.
unsafe extern "C" fn drop_plain(capsule: *mut ffi::PyObject) {
    // SAFETY: Python calls this with the capsule being destroyed; the name says whether the pointer in it
    // still belongs to it.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, c"dltensor".as_ptr()) == 1 {
            let managed = ffi::PyCapsule_GetPointer(capsule, c"dltensor".as_ptr());
            free_plain(managed.cast());
        }
    }
}

unsafe extern "C" fn drop_versioned(capsule: *mut ffi::PyObject) {
    // SAFETY: as in `drop_plain`.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, c"dltensor_versioned".as_ptr()) == 1 {
            let managed = ffi::PyCapsule_GetPointer(capsule, c"dltensor_versioned".as_ptr());
            free_versioned(managed.cast());
        }
    }
}

/// A capsule named `dltensor` of a row-major array over `span`.
pub(crate) fn plain_capsule<'py>(
    py: Python<'py>,
    span: Span,
    dtype: ElementType,
    shape: &[i64],
) -> PyResult<Bound<'py, PyAny>> {
    let ndim =
        i32::try_from(shape.len()).map_err(|_| PyMemoryError::new_err("too many dimensions"))?;
    let managed = Managed {
        tensor: tensor(&span, dtype, ndim),
        context: std::ptr::null_mut(),
        deleter: Some(free_plain),
    };
    let mut plain = Box::new(Plain {
        managed,
        own: Own::new(span, shape),
    });
    let (dims, strides) = plain.own.dims(shape.len());
    plain.managed.tensor.shape = dims;
    plain.managed.tensor.strides = strides;
    let pointer = Box::into_raw(plain);
    // SAFETY: the pointer is not null, the name is static, and the destructor frees what is behind it
    // unless a consumer took it over (which, by the protocol, renames the capsule).
    let capsule = unsafe {
        let capsule = ffi::PyCapsule_New(pointer.cast(), c"dltensor".as_ptr(), Some(drop_plain));
        Bound::from_owned_ptr_or_err(py, capsule)
    };
    if capsule.is_err() {
        // SAFETY: no capsule was made, so the box is still ours alone.
        drop(unsafe { Box::from_raw(pointer) });
    }
    capsule
}

/// A capsule named `dltensor_versioned` (DLPack 1.0), which can say that its memory is read-only.
pub(crate) fn versioned_capsule<'py>(
    py: Python<'py>,
    span: Span,
    dtype: ElementType,
    shape: &[i64],
) -> PyResult<Bound<'py, PyAny>> {
    let ndim =
        i32::try_from(shape.len()).map_err(|_| PyMemoryError::new_err("too many dimensions"))?;
    let flags = if span.is_read_only() {
        FLAG_READ_ONLY
    } else {
        0
    };
    let managed = ManagedVersioned {
        major: 1,
        minor: 0,
        context: std::ptr::null_mut(),
        deleter: Some(free_versioned),
        flags,
        tensor: tensor(&span, dtype, ndim),
    };
    let mut versioned = Box::new(Versioned {
        managed,
        own: Own::new(span, shape),
    });
    let (dims, strides) = versioned.own.dims(shape.len());
    versioned.managed.tensor.shape = dims;
    versioned.managed.tensor.strides = strides;
    let pointer = Box::into_raw(versioned);
    // SAFETY: as in `plain_capsule`.
    let capsule = unsafe {
        let name = c"dltensor_versioned".as_ptr();
        let capsule = ffi::PyCapsule_New(pointer.cast(), name, Some(drop_versioned));
        Bound::from_owned_ptr_or_err(py, capsule)
    };
    if capsule.is_err() {
        // SAFETY: no capsule was made, so the box is still ours alone.
        drop(unsafe { Box::from_raw(pointer) });
    }
    capsule
}

/// Memory of this process, aligned for every element type.
pub(crate) struct Buffer {
    bytes: *mut [u8],
    skip: usize,
    len: usize,
}

/// Alignment of [`Buffer`]: what frameworks expect of tensor memory.
const BUFFER_ALIGN: usize = 64;

// SAFETY: the allocation belongs to the value alone, and sharing it shares nothing but an address.
unsafe impl Send for Buffer {}
// SAFETY: as above; no method gives a reference into the bytes.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// `len` zero bytes that `fill` overwrites; `None` where they cannot be had.
    pub(crate) fn filled<E>(
        len: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<Option<Self>, E> {
        let mut bytes = Vec::new();
        let Some(room) = len.checked_add(BUFFER_ALIGN - 1) else {
            return Ok(None);
        };
        if bytes.try_reserve_exact(room).is_err() {
            return Ok(None);
        }
        bytes.resize(room, 0_u8);
        let skip = bytes
            .as_ptr()
            .align_offset(BUFFER_ALIGN)
            .min(BUFFER_ALIGN - 1);
        if let Some(into) = bytes.get_mut(skip..skip + len) {
            fill(into)?;
        }
        Ok(Some(Self {
            bytes: Box::into_raw(bytes.into_boxed_slice()),
            skip,
            len,
        }))
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: the pointer came from `Box::into_raw` in `filled` and is freed only here.
        drop(unsafe { Box::from_raw(self.bytes) });
    }
}

impl Memory for Buffer {
    fn start(&self) -> *mut u8 {
        self.bytes.cast::<u8>().wrapping_add(self.skip)
    }

    fn len(&self) -> usize {
        self.len
    }

    fn is_read_only(&self) -> bool {
        false
    }
}

impl Memory for wpack_loader::ExtentMap {
    fn start(&self) -> *mut u8 {
        self.as_mut_ptr()
    }

    fn len(&self) -> usize {
        Self::len(self)
    }

    fn is_read_only(&self) -> bool {
        self.mode() == wpack_loader::MapMode::ReadOnly
    }
}

/// Memory that a Python object owns, lent for as long as the caller keeps that object.
pub(crate) struct Lent {
    start: *mut u8,
    len: usize,
}

// SAFETY: an address and a length; who may touch the bytes is the promise made to `Lent::new`.
unsafe impl Send for Lent {}

impl Lent {
    /// # Safety
    ///
    /// `len` bytes from `address` on are allocated, initialised or plain memory, and stay so while the
    /// value lives; nothing else reads or writes them meanwhile, except a device or library that copies
    /// out of them between two uses of the value, which the caller keeps apart.
    pub(crate) unsafe fn new(address: usize, len: usize) -> Self {
        let start = std::ptr::with_exposed_provenance_mut(address);
        Self { start, len }
    }

    fn parts(&self) -> (*mut u8, usize) {
        if self.len == 0 {
            (std::ptr::NonNull::dangling().as_ptr(), 0)
        } else {
            (self.start, self.len)
        }
    }
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        let (start, len) = self.parts();
        // SAFETY: the promise of `Lent::new`.
        unsafe { std::slice::from_raw_parts(start, len) }
    }
}

impl AsMut<[u8]> for Lent {
    fn as_mut(&mut self) -> &mut [u8] {
        let (start, len) = self.parts();
        // SAFETY: the promise of `Lent::new`; `&mut self` keeps other uses through the value apart.
        unsafe { std::slice::from_raw_parts_mut(start, len) }
    }
}

/// Memory of a slot of the ring, or of a destination, that Python's side owns.
pub(crate) fn lend(address: usize, len: usize) -> Lent {
    // SAFETY: `wpack._stage`, the only caller, holds the tensors that own the memory until the load has
    // returned, gives each range once, and touches a slot only between its submission and its return.
    unsafe { Lent::new(address, len) }
}
