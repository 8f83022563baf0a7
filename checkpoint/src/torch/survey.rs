//! One look at a whole object before it is walked: where tensors are, and whether it contains
//! itself.

use super::object::{Role, View};
use crate::pickle::{Id, Node};

/// What was seen.
#[derive(Debug)]
pub(super) struct Survey {
    /// By number of the node: a tensor is it, or inside of it.
    holds: Vec<bool>,
    /// The object contains itself somewhere.
    pub(super) recursive: bool,
    /// Arrays and scalars of numpy.
    pub(super) numpy: usize,
}

enum Step {
    Enter(Id),
    Leave(Id),
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    New,
    Open,
    Done,
}

impl Survey {
    /// Looks at everything that can be reached from `top`, each node once.
    pub(super) fn new(view: View<'_>, top: Id) -> Self {
        let nodes = view.graph.len();
        let mut states = vec![State::New; nodes];
        let mut holds = vec![false; nodes];
        let mut edges = Vec::new();
        let mut found = Vec::new();
        let (mut recursive, mut numpy) = (false, 0);
        let mut children = Vec::new();
        let mut stack = vec![Step::Enter(top)];
        while let Some(step) = stack.pop() {
            let id = match step {
                Step::Enter(id) => id,
                Step::Leave(id) => {
                    if let Some(state) = states.get_mut(id.index()) {
                        *state = State::Done;
                    }
                    continue;
                }
            };
            match states.get_mut(id.index()) {
                Some(state @ State::New) => *state = State::Open,
                Some(State::Open) => {
                    recursive = true;
                    continue;
                }
                _ => continue,
            }
            numpy += usize::from(view.is_numpy(id));
            if matches!(view.role(id), Role::Tensor) {
                found.push(id);
            }
            stack.push(Step::Leave(id));
            children.clear();
            view.children(id, &mut children);
            for &child in children
                .iter()
                .rev()
                .filter(|&&child| is_inner(view, child))
            {
                edges.push((child, id));
                stack.push(Step::Enter(child));
            }
        }
        edges.sort_unstable();
        while let Some(id) = found.pop() {
            match holds.get_mut(id.index()) {
                Some(held) if !*held => *held = true,
                _ => continue,
            }
            let from = edges.partition_point(|&(child, _)| child < id);
            let parents = edges.get(from..).unwrap_or_default();
            let parents = parents.iter().take_while(|&&(child, _)| child == id);
            found.extend(parents.map(|&(_, parent)| parent));
        }
        Self {
            holds,
            recursive,
            numpy,
        }
    }

    /// Whether a tensor is in a node.
    pub(super) fn holds(&self, id: Id) -> bool {
        self.holds.get(id.index()).copied().unwrap_or(false)
    }
}

/// Whether anything can be inside of a node.
fn is_inner(view: View<'_>, id: Id) -> bool {
    matches!(
        view.graph.node(id),
        Node::Tuple(_)
            | Node::List(_)
            | Node::Dict(_)
            | Node::Set(_)
            | Node::FrozenSet(_)
            | Node::Object(_)
            | Node::Persistent(_)
    )
}
