//! From placements and coordinates to one rank's slice of one tensor.

use wpack_format::{BoxPart, Content, DType, Fill, FlatPart};

use crate::error::Fault;
use crate::mesh::Mesh;
use crate::placement::Placement;
use crate::rule::{Interval, compose};
use crate::stream::Stream;

/// A tensor and the coordinates that look at it.
#[derive(Clone, Copy)]
pub(crate) struct Cut<'a> {
    pub(crate) dtype: DType,
    pub(crate) shape: &'a [u64],
    pub(crate) placements: &'a [Placement],
    /// None where every rank holds everything.
    pub(crate) mesh: Option<&'a Mesh>,
    pub(crate) coords: &'a [u32],
}

impl Cut<'_> {
    /// The shape that these coordinates hold, fill included.
    pub(crate) fn shape(&self) -> Result<Vec<u64>, Fault> {
        let mut local = self.shape.to_vec();
        let Some(mesh) = self.mesh else {
            return Ok(local);
        };
        let (mut cut, mut flat) = (false, false);
        for placement in self.placements {
            let (parts, at) = (
                placement.axes().size(mesh),
                placement.axes().at(mesh, self.coords),
            );
            match placement {
                Placement::Owned { .. } => {}
                _ if flat => return Err(Fault::NotProven),
                Placement::Shard { dim, rule, .. } => {
                    let dims = local.len();
                    let size = usize::try_from(*dim)
                        .ok()
                        .and_then(|dim| local.get_mut(dim));
                    let size = size.ok_or(Fault::NoDimension { dim: *dim, dims })?;
                    *size = rule.len(*size, parts, at)?;
                    cut = true;
                }
                Placement::FlatShard { .. } => {
                    if cut {
                        return Err(Fault::NotProven);
                    }
                    // DeepSpeed refuses a parameter without dimension.
                    if local.is_empty() {
                        return Err(Fault::NoDimension { dim: 0, dims: 0 });
                    }
                    local = vec![elements(&local).div_ceil(parts)];
                    flat = true;
                }
            }
        }
        Ok(local)
    }

    /// What these coordinates hold of a tensor, or of a stream, and its shape.
    pub(crate) fn content(
        &self,
        tensor: u32,
        stream: Option<&Stream>,
    ) -> Result<(Content, Vec<u64>), Fault> {
        let shape = self.shape()?;
        let Some(mesh) = self.mesh else {
            return Ok((Content::Whole { tensor }, shape));
        };
        let flat = self
            .placements
            .iter()
            .find_map(|placement| match placement {
                Placement::FlatShard { axes, .. } => Some(axes),
                _ => None,
            });
        if let Some(axes) = flat {
            let count = elements(self.shape);
            let part = count.div_ceil(axes.size(mesh));
            let start = part.saturating_mul(axes.at(mesh, self.coords)).min(count);
            let len = part.min(count - start);
            let mut parts = match stream {
                Some(stream) => stream.cut(start, len),
                // A range without elements still says whose slice it is.
                None => vec![FlatPart::Range { tensor, start, len }],
            };
            if len < part {
                parts.push(FlatPart::Fill {
                    len: part - len,
                    value: Fill::ZERO,
                });
            }
            return Ok((Content::Flat { parts }, shape));
        }
        if shape == self.shape {
            return Ok((Content::Whole { tensor }, shape));
        }
        let mut held: Vec<Vec<Interval>> = self
            .shape
            .iter()
            .map(|&hi| {
                if hi > 0 {
                    vec![Interval { lo: 0, hi }]
                } else {
                    vec![]
                }
            })
            .collect();
        for placement in self.placements {
            let Placement::Shard { axes, dim, rule } = placement else {
                continue;
            };
            let dims = held.len();
            let pieces = usize::try_from(*dim).ok().and_then(|dim| held.get_mut(dim));
            let pieces = pieces.ok_or(Fault::NoDimension { dim: *dim, dims })?;
            *pieces = compose(pieces, rule, axes.size(mesh), axes.at(mesh, self.coords))?;
        }
        Ok((boxes(tensor, &held)?, shape))
    }

    /// Bytes of what these coordinates hold. `rank` is named in the error.
    pub(crate) fn bytes(&self, rank: u32) -> Result<u64, Fault> {
        let shape = self.shape()?;
        let bytes = self
            .dtype
            .bytes(elements(&shape))
            .ok_or(Fault::PartialByte { rank })?;
        if !self.dtype.bits().is_multiple_of(8) {
            self.check_bytes(rank)?;
        }
        Ok(bytes)
    }

    /// Refuses a slice of a packed type any of whose runs starts or ends inside a byte.
    fn check_bytes(&self, rank: u32) -> Result<(), Fault> {
        let whole = |count: u64| self.dtype.bytes(count).is_some();
        let (content, _) = self.content(0, None)?;
        let fits = match content {
            Content::Whole { .. } => true,
            Content::Flat { parts } => parts.iter().all(|part| match part {
                FlatPart::Range { start, len, .. } => whole(*start) && whole(*len),
                FlatPart::Fill { len, .. } => whole(*len),
            }),
            Content::Boxes { parts, .. } => parts.iter().all(|part| match part {
                BoxPart::Box { start, size } => self.box_fits(start, size),
                BoxPart::Fill { .. } => true,
            }),
        };
        if fits {
            Ok(())
        } else {
            Err(Fault::PartialByte { rank })
        }
    }

    fn box_fits(&self, start: &[u64], size: &[u64]) -> bool {
        let whole = |count: u64| self.dtype.bytes(count).is_some();
        // From the innermost dimension out, as long as dimensions are whole: one run of `inner`
        // elements. The first cut dimension ends the run; those outside it repeat it at `stride`.
        let mut inner = 1;
        let mut rest = self.shape.iter().zip(start.iter().zip(size)).rev();
        for (&full, (&from, &len)) in rest.by_ref() {
            if len != full {
                let repeats = rest.any(|(_, (_, &outer))| outer > 1);
                let stride_fits = !repeats || whole(inner * full);
                return whole(from * inner) && whole(len * inner) && stride_fits;
            }
            inner *= full;
        }
        true
    }
}

/// Boxes of the tensor along the one dimension that may fall into several pieces.
fn boxes(tensor: u32, held: &[Vec<Interval>]) -> Result<Content, Fault> {
    let index = |dim: usize| u32::try_from(dim).map_err(|_| Fault::TwoDimensions);
    if let Some(empty) = held.iter().position(Vec::is_empty) {
        // One box without elements: the slice of a rank that holds nothing still says of what.
        let len = |pieces: &Vec<Interval>| pieces.iter().map(|piece| piece.hi - piece.lo).sum();
        let part = BoxPart::Box {
            start: vec![0; held.len()],
            size: held.iter().map(len).collect(),
        };
        return Ok(Content::Boxes {
            tensor,
            dim: index(empty)?,
            parts: vec![part],
        });
    }
    let mut split = held
        .iter()
        .enumerate()
        .filter(|(_, pieces)| pieces.len() > 1);
    let along = split.next().map_or(0, |(dim, _)| dim);
    if split.next().is_some() {
        return Err(Fault::TwoDimensions);
    }
    let pieces = held.get(along).map_or(&[][..], Vec::as_slice);
    let parts = pieces
        .iter()
        .map(|piece| {
            let whole = |dim: usize, pieces: &Vec<Interval>| match pieces.first() {
                Some(only) if dim != along => *only,
                _ => *piece,
            };
            let (start, size) = held
                .iter()
                .enumerate()
                .map(|(dim, pieces)| whole(dim, pieces))
                .map(|Interval { lo, hi }| (lo, hi - lo))
                .unzip();
            BoxPart::Box { start, size }
        })
        .collect();
    Ok(Content::Boxes {
        tensor,
        dim: index(along)?,
        parts,
    })
}

/// The number of elements of a shape; the inventory's check has shown that it does not overflow.
pub(crate) fn elements(shape: &[u64]) -> u64 {
    shape
        .iter()
        .fold(1, |product, &size| product.saturating_mul(size))
}
