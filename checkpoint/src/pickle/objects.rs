//! Containers, classes and calls. A container is changed only by the opcodes that are for its kind.

use std::rc::Rc;

use super::{Fault, Feed, Global, Id, Meaning, Node, machine::Machine};

impl<F: Feed> Machine<'_, F> {
    pub(super) fn append(&mut self, target: Id, values: &[Id]) -> Result<(), Fault> {
        let fits = match self.graph.node(target) {
            Node::List(_) => true,
            Node::Object(object) => self.meaning(object.callee).takes_values(),
            _ => false,
        };
        if !fits {
            return Err(self.fault("the target is not a list"));
        }
        self.graph.extend(target, values)
    }

    pub(super) fn add(&mut self, target: Id, values: &[Id]) -> Result<(), Fault> {
        let fits = match self.graph.node(target) {
            Node::Set(_) => true,
            Node::Object(object) => self.meaning(object.callee).takes_members(),
            _ => false,
        };
        if !fits {
            return Err(self.fault("the target is not a set"));
        }
        self.graph.extend(target, values)
    }

    pub(super) fn set_items(&mut self, target: Id, pairs: &[Id]) -> Result<(), Fault> {
        let fits = match self.graph.node(target) {
            Node::Dict(_) => true,
            Node::Object(object) => self.meaning(object.callee).takes_items(),
            _ => false,
        };
        if !fits {
            return Err(self.fault("the target is not a dict"));
        }
        if !pairs.len().is_multiple_of(2) {
            return Err(self.fault("a key without a value"));
        }
        self.graph.insert(target, pairs)
    }

    pub(super) fn build(&mut self) -> Result<(), Fault> {
        let state = self.pop()?;
        let target = self.top()?;
        if !matches!(self.graph.node(target), Node::Object(_)) {
            return Err(self.fault("the target takes no state"));
        }
        self.graph.build(target, state)
    }

    /// What a callee means; the result of a call and an outer object mean nothing known.
    pub(super) fn meaning(&self, callee: Id) -> Meaning {
        match self.graph.node(callee) {
            Node::Global(global) => global.meaning,
            _ => Meaning::Unknown,
        }
    }

    pub(super) fn named_global(&mut self) -> Result<Id, Fault> {
        let module = self.kept_line()?;
        let name = self.kept_line()?;
        match (String::from_utf8(module), String::from_utf8(name)) {
            (Ok(module), Ok(name)) => self.global(module, name),
            _ => Err(self.fault("the name is not UTF-8")),
        }
    }

    pub(super) fn stack_global(&mut self) -> Result<(), Fault> {
        let name = self.pop()?;
        let module = self.pop()?;
        let (Node::Text(module), Node::Text(name)) =
            (self.graph.node(module), self.graph.node(name))
        else {
            return Err(self.fault("module and name are not texts"));
        };
        let (module, name) = (module.to_owned(), name.to_owned());
        let id = self.global(module, name)?;
        self.push(id)
    }

    pub(super) fn global(&mut self, module: String, name: String) -> Result<Id, Fault> {
        let key = format!("{module}\n{name}");
        if let Some(global) = self.names.get(&key) {
            let global = Rc::clone(global);
            return self.graph.global(&global);
        }
        let path = format!("{module}.{name}");
        let Some(global) = Global::new(module, name) else {
            // A sharded tensor names `getattr`: say the more useful thing.
            let sharded = self
                .graph
                .globals()
                .find(|g| g.meaning == Meaning::Partitioned);
            return Err(match sharded {
                Some(class) => Fault::Partitioned {
                    class: class.path(),
                },
                None => Fault::Unsafe {
                    at: self.at,
                    global: path,
                },
            });
        };
        self.graph
            .charge(256 + u64::try_from(3 * key.len()).unwrap_or(u64::MAX))?;
        let global = Rc::new(global);
        self.names.insert(key, Rc::clone(&global));
        self.graph.global(&global)
    }

    pub(super) fn call(&mut self, callee: Id, args: Id, kwargs: Option<Id>) -> Result<(), Fault> {
        let callable = match self.graph.node(callee) {
            Node::Global(global) => global.meaning.is_callable(),
            Node::Object(_) | Node::Persistent(_) => true,
            _ => false,
        };
        if !callable {
            return Err(self.fault("what is called is no class or function"));
        }
        if !matches!(self.graph.node(args), Node::Tuple(_)) {
            return Err(self.fault("the arguments are no tuple"));
        }
        let id = self.graph.object(callee, args, kwargs, self.at)?;
        self.push(id)
    }

    pub(super) fn persistent(&mut self, id: Id) -> Result<(), Fault> {
        let id = self.graph.persistent(id)?;
        self.graph.charge(16)?;
        self.persistents.push((id, self.at));
        self.push(id)
    }
}
