//! The progress bar: bytes, rate and time left.

use std::{
    fmt,
    sync::{Arc, Mutex},
    time::Duration,
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use wpack_loader::Progress;

/// A bar on standard error, or none; or what another program shows instead.
pub struct Bar {
    verb: &'static str,
    shown: bool,
    told: Option<Arc<dyn Progress + Send>>,
    bar: Mutex<Option<ProgressBar>>,
}

impl fmt::Debug for Bar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bar")
            .field("verb", &self.verb)
            .field("shown", &self.shown)
            .finish()
    }
}

impl Bar {
    pub(crate) fn new(
        verb: &'static str,
        shown: bool,
        told: Option<Arc<dyn Progress + Send>>,
    ) -> Self {
        Self {
            verb,
            shown,
            told,
            bar: Mutex::new(None),
        }
    }

    fn with(&self, act: impl FnOnce(&ProgressBar)) {
        let bar = self
            .bar
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(bar) = bar.as_ref() {
            act(bar);
        }
    }
}

impl Progress for Bar {
    fn begin(&self, what: &str, total: u64) {
        let what = if what.is_empty() { self.verb } else { what };
        if let Some(told) = &self.told {
            told.begin(what, total);
        }
        if !self.shown {
            return;
        }
        let template = "{msg:>9} [{bar:30}] {binary_bytes}/{binary_total_bytes}  {binary_bytes_per_sec}  {eta} left";
        let style = ProgressStyle::with_template(template)
            .unwrap_or_else(|_| ProgressStyle::default_bar())
            .progress_chars("=> ");
        let bar =
            ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr_with_hz(10))
                .with_style(style)
                .with_message(what.to_owned());
        bar.enable_steady_tick(Duration::from_millis(250));
        let mut slot = self
            .bar
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(old) = slot.replace(bar) {
            old.finish_and_clear();
        }
    }

    fn advance(&self, bytes: u64) {
        if let Some(told) = &self.told {
            told.advance(bytes);
        }
        self.with(|bar| bar.inc(bytes));
    }

    fn finish(&self) {
        if let Some(told) = &self.told {
            told.finish();
        }
        self.with(ProgressBar::finish_and_clear);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.finish();
    }
}
