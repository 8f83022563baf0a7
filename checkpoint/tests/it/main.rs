//! The crate as its users see it.

mod docs;
mod fixtures;
mod folders;
mod messages;
mod safetensors;
mod support;
