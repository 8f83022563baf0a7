//! The layouts by name. Each stands in a file of its own and says which framework it repeats, in which
//! versions that was shown, and which of its functions decide.

mod ep;
mod fsdp1;
mod fsdp2;
mod hsdp;
mod pp;
mod replicate;
mod rules;
mod style;
mod tp;
mod usp;
mod zero12;
mod zero3;

pub(crate) use rules::check_whole;
pub use style::Style;

use crate::draft::Draft;
use crate::{Error, Options};

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
    pub(crate) axis: fn(&Options) -> Option<&str>,
    /// Adds its placements to the tensors of a component.
    pub(crate) place: fn(&mut Draft<'_>) -> Result<(), Error>,
}

impl Layout {
    /// The axis it cuts over when only a number of ranks is given; none where it cuts nothing.
    #[must_use]
    pub fn axis<'o>(&self, options: &'o Options) -> Option<&'o str> {
        (self.axis)(options)
    }
}

/// Every layout there is, in the order of the documentation.
static LAYOUTS: [&Layout; 12] = [
    &replicate::LAYOUT,
    &usp::LAYOUT,
    &zero12::ZERO1,
    &zero12::ZERO2,
    &zero3::LAYOUT,
    &fsdp1::LAYOUT,
    &fsdp2::LAYOUT,
    &hsdp::LAYOUT,
    &tp::LAYOUT,
    &ep::LAYOUT,
    &pp::LAYOUT,
    &rules::LAYOUT,
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
