//! wpack-convert
