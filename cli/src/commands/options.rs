//! What `convert` and `plan` ask the libraries for.

use wpack_checkpoint::{Checkpoint, OpenOptions};
use wpack_plan::PlanFile;

use crate::{Error, args::SourceArgs};

/// Reads the headers.
pub(super) fn open(args: &SourceArgs, plan: &PlanFile) -> Result<Checkpoint, Error> {
    let options = OpenOptions {
        root: plan.root.clone(),
        output_limit: args.output_limit,
    };
    Ok(wpack_checkpoint::open(&args.inputs, &options)?)
}
