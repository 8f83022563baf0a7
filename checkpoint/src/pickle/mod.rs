//! A pickle machine: turns a pickle into a graph of nodes, and does nothing else.
//!
//! It knows all 68 opcodes of protocols 0 to 5. Nothing is imported and nothing is called: a global
//! is a name, a call is a node that holds the callee and its arguments. Values are held by
//! reference, so a value that is fetched from the memo a million times is there once. No part of it
//! recurses, in building, walking or dropping. Work is linear in the input, and so is memory, up to
//! a limit.
//!
//! Reference: `Lib/pickletools.py` of CPython 3.13 and `torch/_weights_only_unpickler.py` of
//! PyTorch 2.11.

mod execute;
mod fault;
mod globals;
mod graph;
mod input;
mod literal;
mod machine;
mod make;
mod memo;
mod objects;
mod opcode;
mod values;

pub(crate) use fault::Fault;
pub(crate) use globals::{Build, Global, Meaning};
pub(crate) use graph::{Graph, Id, Node, Object};
pub(crate) use input::{Feed, Input};
pub(crate) use machine::{Pickle, run};

/// Deepest nesting of containers. The pickler of CPython stops at 1000 levels of its own.
pub(crate) const MAX_DEPTH: u16 = 1000;

/// Longest text or byte string whose content is kept; of longer ones only the length is.
pub(crate) const MAX_KEPT: usize = 64 << 10;

/// Most memory that one graph may take, whatever the size of the file.
pub(crate) const MAX_MEMORY: u64 = 256 << 20;

#[cfg(test)]
mod tests;
