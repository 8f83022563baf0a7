//! Values as nodes of an arena, held by number.

use std::rc::Rc;

use super::Global;

/// A node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Id(pub(super) u32);

impl Id {
    /// Its place among [`Graph::len`] nodes.
    pub(crate) fn index(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

/// What a node is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Node<'g> {
    /// `None`.
    None,
    /// `True` and `False`.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A whole number of up to 128 bits.
    Wide(i128),
    /// A larger one, its value not kept.
    Huge,
    /// A floating-point number; its value is of no use to anyone.
    Float,
    /// Text.
    Text(&'g str),
    /// Text too long to keep.
    LongText,
    /// Bytes.
    Bytes(&'g [u8]),
    /// Bytes too long to keep.
    LongBytes,
    /// A bytearray, its content not kept.
    ByteArray,
    /// A tuple.
    Tuple(&'g [Id]),
    /// A list.
    List(&'g [Id]),
    /// A dict, in the order of insertion; a key that was set twice is there twice.
    Dict(&'g [(Id, Id)]),
    /// A set.
    Set(&'g [Id]),
    /// A frozen set.
    FrozenSet(&'g [Id]),
    /// A class or function by name.
    Global(&'g Global),
    /// The result of a call that was not made.
    Object(&'g Object),
    /// A reference to something outside of the pickle.
    Persistent(Id),
}

/// A call that was not made, and what was done to its result.
#[derive(Debug)]
pub(crate) struct Object {
    /// Class or function.
    pub(crate) callee: Id,
    /// A tuple.
    pub(crate) args: Id,
    /// Offset of the opcode that made it.
    pub(crate) at: u64,
    pub(super) more: Option<Box<More>>,
}

#[derive(Debug, Default)]
pub(super) struct More {
    pub(super) kwargs: Option<Id>,
    pub(super) states: Vec<Id>,
    pub(super) items: Vec<(Id, Id)>,
    pub(super) list: Vec<Id>,
}

impl Object {
    /// Keyword arguments.
    pub(crate) fn kwargs(&self) -> Option<Id> {
        self.more.as_deref()?.kwargs
    }

    /// Arguments of BUILD.
    pub(crate) fn states(&self) -> &[Id] {
        self.more.as_deref().map_or(&[], |more| &more.states)
    }

    /// Pairs that SETITEM and SETITEMS added.
    pub(crate) fn items(&self) -> &[(Id, Id)] {
        self.more.as_deref().map_or(&[], |more| &more.items)
    }

    /// Values that APPEND, APPENDS and ADDITEMS added.
    pub(crate) fn list(&self) -> &[Id] {
        self.more.as_deref().map_or(&[], |more| &more.list)
    }

    pub(super) fn more(&mut self) -> &mut More {
        self.more.get_or_insert_default()
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Tag {
    None,
    Bool,
    Int,
    Wide,
    Huge,
    Float,
    Text,
    LongText,
    Bytes,
    LongBytes,
    ByteArray,
    Tuple,
    List,
    Dict,
    Set,
    FrozenSet,
    Global,
    Object,
    Persistent,
}

/// 12 bytes: a hostile pickle makes a node of each of its bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cell {
    pub(super) tag: Tag,
    pub(super) depth: u16,
    pub(super) a: u32,
    pub(super) b: u32,
}

/// Cells per piece of the arena; pieces never move, so growth needs no second copy.
pub(super) const PIECE: usize = 4 << 10;

/// An empty list, dict or set: its vector is made when the first value comes.
pub(super) const EMPTY: u32 = u32::MAX;

/// Everything one pickle holds.
#[derive(Debug)]
pub(crate) struct Graph {
    pub(super) pieces: Vec<Vec<Cell>>,
    pub(super) len: u32,
    pub(super) text: String,
    pub(super) bytes: Vec<u8>,
    pub(super) wides: Vec<i128>,
    pub(super) tuples: Vec<Id>,
    pub(super) lists: Vec<Vec<Id>>,
    pub(super) dicts: Vec<Vec<(Id, Id)>>,
    pub(super) globals: Vec<Rc<Global>>,
    pub(super) objects: Vec<Object>,
    pub(super) used: u64,
    pub(super) limit: u64,
}

impl Graph {
    /// An empty graph that may take `limit` bytes of memory.
    pub(crate) fn new(limit: u64) -> Self {
        Self {
            pieces: Vec::new(),
            len: 0,
            text: String::new(),
            bytes: Vec::new(),
            wides: Vec::new(),
            tuples: Vec::new(),
            lists: Vec::new(),
            dicts: Vec::new(),
            globals: Vec::new(),
            objects: Vec::new(),
            used: 0,
            limit,
        }
    }

    /// Nodes in all.
    pub(crate) fn len(&self) -> usize {
        Id(self.len).index()
    }

    /// Classes and functions in the order in which they were first named.
    pub(crate) fn globals(&self) -> impl Iterator<Item = &Global> {
        self.globals.iter().map(AsRef::as_ref)
    }

    /// What a node is.
    pub(crate) fn node(&self, id: Id) -> Node<'_> {
        let Some(cell) = self.cell(id) else {
            return Node::None;
        };
        self.view(cell).unwrap_or(Node::None)
    }

    fn view(&self, cell: Cell) -> Option<Node<'_>> {
        Some(match cell.tag {
            Tag::None => Node::None,
            Tag::Bool => Node::Bool(cell.a != 0),
            Tag::Int => Node::Int(join(cell.a, cell.b)),
            Tag::Wide => Node::Wide(*self.wides.get(index(cell.a))?),
            Tag::Huge => Node::Huge,
            Tag::Float => Node::Float,
            Tag::Text => Node::Text(self.text.get(range(cell))?),
            Tag::LongText => Node::LongText,
            Tag::Bytes => Node::Bytes(self.bytes.get(range(cell))?),
            Tag::LongBytes => Node::LongBytes,
            Tag::ByteArray => Node::ByteArray,
            Tag::Tuple => Node::Tuple(self.tuples.get(range(cell))?),
            Tag::List => Node::List(self.values(cell.a)),
            Tag::Set => Node::Set(self.values(cell.a)),
            Tag::FrozenSet => Node::FrozenSet(self.tuples.get(range(cell))?),
            Tag::Dict if cell.a == EMPTY => Node::Dict(&[]),
            Tag::Dict => Node::Dict(self.dicts.get(index(cell.a))?),
            Tag::Global => Node::Global(self.globals.get(index(cell.a))?),
            Tag::Object => Node::Object(self.objects.get(index(cell.a))?),
            Tag::Persistent => Node::Persistent(Id(cell.a)),
        })
    }

    fn values(&self, at: u32) -> &[Id] {
        self.lists.get(index(at)).map_or(&[], Vec::as_slice)
    }

    pub(super) fn cell(&self, id: Id) -> Option<Cell> {
        self.pieces
            .get(id.index() / PIECE)?
            .get(id.index() % PIECE)
            .copied()
    }

    pub(super) fn cell_mut(&mut self, id: Id) -> Option<&mut Cell> {
        self.pieces
            .get_mut(id.index() / PIECE)?
            .get_mut(id.index() % PIECE)
    }

    pub(super) fn depth(&self, id: Id) -> u16 {
        self.cell(id).map_or(0, |cell| cell.depth)
    }
}

pub(super) fn index(at: u32) -> usize {
    usize::try_from(at).unwrap_or(usize::MAX)
}

fn range(cell: Cell) -> std::ops::Range<usize> {
    index(cell.a)..index(cell.b)
}

fn join(low: u32, high: u32) -> i64 {
    let [a, b, c, d] = low.to_le_bytes();
    let [e, f, g, h] = high.to_le_bytes();
    i64::from_le_bytes([a, b, c, d, e, f, g, h])
}
