//! wpack-loader
