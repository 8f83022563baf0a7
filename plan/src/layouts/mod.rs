//! The layouts by name. Each stands in a file of its own and says which framework it repeats, in which
//! versions that was shown, and which of its functions decide.

mod fsdp2;
mod replicate;
mod usp;
mod zero3;

use crate::Error;
use crate::draft::Draft;

/// A layout: how a framework lays parameters out.
pub struct Layout {
    /// Its name.
    pub name: &'static str,
    /// What it does, in a line.
    pub summary: &'static str,
    /// The framework and the versions whose own slices were found equal, or none where nothing is cut.
    pub proven: &'static [&'static str],
    /// The functions of the framework that decide.
    pub source: &'static [&'static str],
    /// The axis it cuts over when only a number of ranks is given; none where nothing is cut.
    pub axis: Option<&'static str>,
    /// Adds its placements to the tensors of a component.
    pub(crate) place: fn(&mut Draft<'_>) -> Result<(), Error>,
}

/// Every layout there is, in the order of the documentation.
static LAYOUTS: [&Layout; 4] = [
    &replicate::LAYOUT,
    &usp::LAYOUT,
    &zero3::LAYOUT,
    &fsdp2::LAYOUT,
];

/// Every layout there is.
#[must_use]
pub fn layouts() -> &'static [&'static Layout] {
    &LAYOUTS
}

/// The layouts of a name: one, or several joined with `+`, which act from left to right.
pub(crate) fn find(text: &str) -> Result<Vec<&'static Layout>, Error> {
    text.split('+')
        .map(|name| {
            LAYOUTS
                .iter()
                .copied()
                .find(|layout| layout.name == name)
                .ok_or_else(|| Error::UnknownLayout {
                    layout: text.to_owned(),
                    known: LAYOUTS.iter().map(|layout| layout.name).collect(),
                })
        })
        .collect()
}
