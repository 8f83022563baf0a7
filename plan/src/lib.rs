//! Which bytes of which tensor each rank holds. Pure: tensors, a mesh and a layout go in, a plan
//! comes out, and no byte moves.
//!
//! ```
//! use wpack_format::DType;
//! use wpack_plan::{ComponentSpec, Inventory, Request, TensorSpec, plan};
//!
//! let inventory = Inventory {
//!     components: vec![ComponentSpec {
//!         name: "model".into(),
//!         tensors: vec![TensorSpec {
//!             names: vec!["weight".into()],
//!             dtype: DType::F32,
//!             shape: vec![5, 3],
//!         }],
//!     }],
//! };
//! let request = Request { layout: "zero3".into(), ranks: Some(4), ..Request::default() };
//! let plan = plan(&inventory, &request)?;
//! assert_eq!(plan.extents().len(), 4);
//! // 15 elements over 4 ranks: 4 each, the last has one of fill.
//! assert_eq!(plan.bytes_by_rank(), [16, 16, 16, 16]);
//! # Ok::<(), wpack_plan::Error>(())
//! ```

mod axis_order;
mod component;
mod draft;
mod error;
mod index;
mod inventory;
mod layouts;
mod mesh;
mod options;
mod paths;
mod placement;
mod plan;
mod plan_file;
mod request;
mod roles;
mod rule;
mod rule_text;
mod rules;
mod slicing;
mod step;
mod stream;

pub use error::{Error, Fault};
pub use inventory::{ComponentSpec, Inventory, TensorSpec};
pub use layouts::{Layout, Style, layouts};
pub use mesh::{MAX_RANKS, Mesh};
pub use options::{Fsdp1, NameRule, Options, Order, Pattern, Stages, Zero};
pub use plan::{Decision, MAX_SLICES, Plan, PlannedExtent, plan};
pub use plan_file::{
    Fsdp1Text, MergeText, OrderText, PadText, PlanFile, RuleText, Section, StagesText,
    TransformText, ZeroText,
};
pub use request::Request;
pub use rule::Rule;
pub use step::{Step, StepKind};
