//! Writing pickles by hand, as torch writes them.

/// Opcodes in a row.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pickle(Vec<u8>);

impl Pickle {
    /// Opcodes as they are.
    pub(crate) fn raw(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self
    }

    pub(crate) fn text(self, text: &str) -> Self {
        let len = u32::try_from(text.len()).expect("short").to_le_bytes();
        self.raw(b"X").raw(&len).raw(text.as_bytes())
    }

    pub(crate) fn int(self, value: i32) -> Self {
        self.raw(b"J").raw(&value.to_le_bytes())
    }

    pub(crate) fn global(self, module: &str, name: &str) -> Self {
        self.raw(format!("c{module}\n{name}\n").as_bytes())
    }

    pub(crate) fn tuple(self, values: &[i32]) -> Self {
        values
            .iter()
            .fold(self.raw(b"("), |out, &value| out.int(value))
            .raw(b"t")
    }

    /// A storage of `torch.CLASS`.
    pub(crate) fn storage(self, class: &str, key: &str, count: i32) -> Self {
        let module = if class.starts_with("Untyped") {
            "torch.storage"
        } else {
            "torch"
        };
        let out = self
            .raw(b"(")
            .text("storage")
            .global(module, class)
            .text(key)
            .text("cpu");
        out.int(count).raw(b"tQ")
    }

    /// A tensor of a whole storage of float32.
    pub(crate) fn tensor(self, key: &str, shape: &[i32]) -> Self {
        let count = shape.iter().product();
        let mut strides = vec![1; shape.len()];
        for at in (1..shape.len()).rev() {
            strides[at - 1] = strides[at] * shape[at];
        }
        self.view("FloatStorage", key, count, 0, shape, &strides)
    }

    /// A view by `_rebuild_tensor_v2`.
    pub(crate) fn view(
        self,
        class: &str,
        key: &str,
        count: i32,
        offset: i32,
        shape: &[i32],
        strides: &[i32],
    ) -> Self {
        self.global("torch._utils", "_rebuild_tensor_v2")
            .raw(b"(")
            .storage(class, key, count)
            .int(offset)
            .tuple(shape)
            .tuple(strides)
            .raw(b"\x89")
            .global("collections", "OrderedDict")
            .raw(b")RtR")
    }

    /// A dict: keys are texts.
    pub(crate) fn dict(self, entries: &[(&str, Self)]) -> Self {
        let out = self.raw(b"}(");
        entries
            .iter()
            .fold(out, |out, (key, value)| out.text(key).raw(&value.0))
            .raw(b"u")
    }

    /// The whole pickle.
    pub(crate) fn done(self) -> Vec<u8> {
        [b"\x80\x02", self.0.as_slice(), b"."].concat()
    }

    /// The opcodes so far.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}
