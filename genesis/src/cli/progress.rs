//! How far a run of steps is: a progress bar on a terminal, lines elsewhere.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressStyle};

use super::output::Lines;

/// Shows the steps of a run.
pub(super) struct Steps<'l> {
    bar: Option<ProgressBar>,
    lines: &'l Lines,
    /// A line is printed for each so many steps.
    every: usize,
}

impl<'l> Steps<'l> {
    /// A bar where stderr is a terminal, unless `quiet`; else a line each `every` steps.
    pub(super) fn new(lines: &'l Lines, every: usize, quiet: bool) -> Steps<'l> {
        let bar = (std::io::stderr().is_terminal() && !quiet).then(|| {
            let style = "{elapsed_precise} {bar:24} {pos}/{len} {msg} eta {eta}";
            let style =
                ProgressStyle::with_template(style).expect("the template is constant and valid");
            ProgressBar::new(0).with_style(style)
        });
        Steps { bar, lines, every }
    }

    /// A step is done.
    pub(super) fn step(&self, step: usize, steps: usize, message: String) {
        match &self.bar {
            Some(bar) => {
                bar.set_length(steps as u64);
                bar.set_position(step as u64);
                bar.set_message(message);
            }
            None if step.is_multiple_of(self.every) || step == steps => {
                self.line(format!("step {step}/{steps} {message}"));
            }
            None => {}
        }
    }

    /// Prints a line above the bar.
    pub(super) fn line(&self, line: String) {
        match &self.bar {
            Some(bar) => bar.println(line),
            None => self.lines.line(line),
        }
    }

    /// Takes the bar away.
    pub(super) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
