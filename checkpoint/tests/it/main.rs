//! The crate as its users see it.

mod folders;
mod messages;
mod safetensors;
mod support;
