//! `--processes` of `plan` and `inspect`.

use wpack_format::DType;

use super::glob::Chosen;

use crate::{
    Error,
    args::FitArgs,
    host,
    report::{self, Fit, Weights},
};

/// Sums up tensors for the question whether processes fit on a host.
pub(super) struct Fitting<'a> {
    args: &'a FitArgs,
    trainable: Chosen,
    weights: Weights,
}

impl<'a> Fitting<'a> {
    pub(super) fn new(args: &'a FitArgs) -> Result<Self, Error> {
        let patterns = args.trainable.iter().map(String::as_str);
        Ok(Self {
            args,
            trainable: Chosen::of("--trainable", patterns)?,
            weights: Weights::default(),
        })
    }

    /// Counts a tensor, where the question was asked.
    pub(super) fn count<'n>(
        &mut self,
        names: impl IntoIterator<Item = &'n str>,
        dtype: DType,
        shape: &[u64],
    ) {
        if self.args.processes.is_none() {
            return;
        }
        let elements = report::elements(shape);
        let bytes = dtype.bytes(elements).unwrap_or(u64::MAX);
        let weights = &mut self.weights;
        weights.bytes = weights.bytes.saturating_add(bytes);
        if self.trainable.matches(names) {
            weights.trainable_bytes = weights.trainable_bytes.saturating_add(bytes);
            weights.trainable_elements = weights.trainable_elements.saturating_add(elements);
        }
    }

    /// The answer, where it was asked for.
    pub(super) fn answer(self) -> Result<Option<Fit>, Error> {
        let Some(processes) = self.args.processes else {
            return Ok(None);
        };
        if self.trainable.any() && self.weights.trainable_bytes == 0 {
            return Err(Error::Usage {
                what: format!(
                    "no parameter matches --trainable {}",
                    self.args.trainable.join(" ")
                ),
                hint: "`wpack inspect --tensors` lists the names".to_owned(),
            });
        }
        let available = self.args.host_memory.or_else(host::available_memory);
        Ok(Some(Fit::of(processes, self.weights, available)))
    }
}
