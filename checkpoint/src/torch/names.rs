//! Paths inside an object: how the names of tensors are made.

use crate::pickle::{Graph, Id, Node};

/// One part of a path.
#[derive(Clone, Copy, Debug)]
pub(super) enum Part {
    /// A key of a dict.
    Key(Id),
    /// A place in a list.
    Index(usize),
}

/// A place inside an object: a part behind another place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place(u32);

/// The object itself.
pub(super) const TOP: Place = Place(0);

/// Places seen, each a link to the one it is in, so that a long path costs no more than a short
/// one until its name is made.
#[derive(Debug)]
pub(super) struct Places<'g> {
    graph: &'g Graph,
    links: Vec<(Place, Part)>,
    most: usize,
}

impl<'g> Places<'g> {
    /// No places but the top. At most `most` may be added.
    pub(super) fn new(graph: &'g Graph, most: usize) -> Self {
        Self {
            graph,
            links: Vec::new(),
            most,
        }
    }

    /// A place inside of another; none if there are too many.
    pub(super) fn add(&mut self, inside: Place, part: Part) -> Option<Place> {
        if self.links.len() >= self.most {
            return None;
        }
        self.links.push((inside, part));
        u32::try_from(self.links.len()).ok().map(Place)
    }

    /// How many places there may be.
    pub(super) fn most(&self) -> usize {
        self.most
    }

    fn parts(&self, place: Place) -> Vec<Part> {
        let mut parts = Vec::new();
        let mut at = place;
        while let Some(&(inside, part)) = self.link(at) {
            parts.push(part);
            at = inside;
        }
        parts.reverse();
        parts
    }

    fn link(&self, place: Place) -> Option<&(Place, Part)> {
        self.links
            .get(usize::try_from(place.0).ok()?.checked_sub(1)?)
    }

    /// The parts of the path joined by dots, from below `root` on.
    pub(super) fn name(&self, place: Place) -> String {
        let parts = self.parts(place);
        let texts: Vec<String> = parts.into_iter().map(|part| self.text(part)).collect();
        texts.join(".")
    }

    /// The path as an expression of Python, in which no two places look alike.
    pub(super) fn expression(&self, place: Place) -> String {
        self.parts(place)
            .into_iter()
            .fold("object".to_owned(), |path, part| match part {
                Part::Index(index) => format!("{path}[{index}]"),
                Part::Key(key) => match self.graph.node(key) {
                    Node::Text(text) => format!("{path}[{text:?}]"),
                    Node::Bytes(_) => format!("{path}[b{:?}]", self.text(part)),
                    _ => format!("{path}[{}]", self.text(part)),
                },
            })
    }

    /// One part as a text; unusual keys by what they are.
    pub(super) fn text(&self, part: Part) -> String {
        match part {
            Part::Index(index) => index.to_string(),
            Part::Key(key) => {
                key_name(self.graph, key).unwrap_or_else(|| match self.graph.node(key) {
                    Node::None => "None".to_owned(),
                    Node::Bool(true) => "True".to_owned(),
                    Node::Bool(false) => "False".to_owned(),
                    Node::Global(global) => global.path(),
                    Node::Tuple(parts) => format!("<tuple of {}>", parts.len()),
                    _ => "<key>".to_owned(),
                })
            }
        }
    }
}

/// A key as part of a name, if it can be one: text, or a whole number in decimal.
pub(super) fn key_name(graph: &Graph, key: Id) -> Option<String> {
    match graph.node(key) {
        Node::Text(text) => Some(text.to_owned()),
        Node::Bytes(bytes) => std::str::from_utf8(bytes).ok().map(str::to_owned),
        Node::Int(number) => Some(number.to_string()),
        Node::Wide(number) => Some(number.to_string()),
        _ => None,
    }
}
