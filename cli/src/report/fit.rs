//! Whether processes that load a model fit on a host.

use serde::Serialize;

/// What so many processes need of the host's memory once each has loaded the model, by mode of training.
#[derive(Clone, Debug, Serialize)]
pub struct Fit {
    /// Processes on the host.
    pub processes: u32,
    /// Bytes of memory that the host has for them; null where the system does not say.
    pub available_bytes: Option<u64>,
    /// Bytes of all weights.
    pub model_bytes: u64,
    /// Of those, bytes of parameters that are trained.
    pub trainable_bytes: u64,
    /// Mode by mode.
    pub modes: Vec<FitMode>,
}

/// One mode of training.
#[derive(Clone, Debug, Serialize)]
pub struct FitMode {
    /// `ddp`, `zero2`, `zero3` or `offload` (ZeRO-2 with the optimizer in host memory).
    pub mode: &'static str,
    /// Every process loads the checkpoint into memory of its own.
    pub without: Need,
    /// Every process maps the pack.
    pub with: Need,
}

/// Memory, and whether there is enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Need {
    /// Bytes that belong to one process each and cannot be dropped, summed over all.
    pub private_bytes: u64,
    /// Bytes of file pages that all share; they can be dropped, and are then read again.
    pub page_bytes: u64,
    /// `yes`, `tight` (the pages do not all fit and are read again), `no`; null without a figure of the
    /// host's memory.
    pub fits: Option<&'static str>,
}

/// What is trained and what is not.
#[derive(Clone, Copy, Debug, Default)]
pub struct Weights {
    /// Bytes of all tensors.
    pub bytes: u64,
    /// Bytes of parameters that are trained.
    pub trainable_bytes: u64,
    /// Elements of parameters that are trained.
    pub trainable_elements: u64,
}

/// Bytes of host memory per trained element with the optimizer there: the larger of DeepSpeed's own
/// two figures, without its factor for spare buffers (`estimate_zero2_model_states_mem_needs` in
/// `deepspeed/runtime/zero/stage_1_and_2.py`: max(4 x processes, 16)).
const fn offload_bytes(processes: u32) -> u64 {
    let gathered = 4 * processes as u64;
    if gathered > 16 { gathered } else { 16 }
}

impl Fit {
    /// Works it out.
    ///
    /// Upper bounds: weights that a process moves to its device leave the host again, but all processes
    /// pass through this point together. With a pack, a trained parameter becomes the process's own when
    /// the optimizer writes it; under ZeRO-3 each process keeps only its part of the weights.
    #[must_use]
    pub fn of(processes: u32, weights: Weights, available: Option<u64>) -> Self {
        let n = u64::from(processes);
        let copies = weights.bytes.saturating_mul(n);
        let trained = weights.trainable_bytes.saturating_mul(n);
        let states = weights
            .trainable_elements
            .saturating_mul(offload_bytes(processes));
        let need = |private_bytes: u64, page_bytes: u64| Need {
            private_bytes,
            page_bytes,
            fits: available.map(|available| {
                if private_bytes > available {
                    "no"
                } else if private_bytes.saturating_add(page_bytes) > available {
                    "tight"
                } else {
                    "yes"
                }
            }),
        };
        let mode = |mode, without: u64, with: u64| FitMode {
            mode,
            without: need(without, 0),
            with: need(with, weights.bytes),
        };
        Self {
            processes,
            available_bytes: available,
            model_bytes: weights.bytes,
            trainable_bytes: weights.trainable_bytes,
            modes: vec![
                mode("ddp", copies, trained),
                mode("zero2", copies, trained),
                mode("zero3", copies, weights.bytes),
                mode(
                    "offload",
                    copies.saturating_add(states),
                    trained.saturating_add(states),
                ),
            ],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Row<'a> = (&'a str, (u64, Option<&'a str>), (u64, Option<&'a str>));

    fn rows(fit: &Fit) -> Vec<Row<'_>> {
        let side = |need: &Need| (need.private_bytes, need.fits);
        let modes = fit.modes.iter();
        modes
            .map(|m| (m.mode, side(&m.without), side(&m.with)))
            .collect()
    }

    #[test]
    fn frozen_weights_are_kept_once() {
        let weights = Weights {
            bytes: 57,
            ..Weights::default()
        };
        let fit = Fit::of(4, weights, Some(62));
        assert_eq!(
            rows(&fit),
            [
                ("ddp", (228, Some("no")), (0, Some("yes"))),
                ("zero2", (228, Some("no")), (0, Some("yes"))),
                ("zero3", (228, Some("no")), (57, Some("tight"))),
                ("offload", (228, Some("no")), (0, Some("yes"))),
            ]
        );
        let fit = Fit::of(4, weights, Some(56));
        assert_eq!(fit.modes[0].with.fits, Some("tight"));
        assert_eq!(fit.modes[2].with.fits, Some("no"));
    }

    #[test]
    fn trained_weights_become_private_and_their_optimizer_has_a_place() {
        let weights = Weights {
            bytes: 10,
            trainable_bytes: 4,
            trainable_elements: 2,
        };
        let fit = Fit::of(8, weights, None);
        assert_eq!(
            rows(&fit),
            [
                ("ddp", (80, None), (32, None)),
                ("zero2", (80, None), (32, None)),
                ("zero3", (80, None), (10, None)),
                ("offload", (80 + 64, None), (32 + 64, None)),
            ]
        );
    }
}
