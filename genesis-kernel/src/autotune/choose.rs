//! The configuration of a launch: looked up where it is known, and measured only where that is asked.
//!
//! ```text
//! this process -> the database on disk -> the kernel's table -> [GENESIS_AUTOTUNE=1: measure]
//!   -> the nearest measured problem -> the heuristic -> the model's best
//! ```

use std::sync::{Arc, OnceLock, PoisonError};

use super::search::Plan;
use super::tune::{TuneRequest, rank, tune};
use crate::configs::{Choice, Config, Database, Problem, Record, Source, Tuning, database};
use crate::diag::Error;
use crate::ir::DType;
use crate::kernel::KernelDef;
use crate::knobs;
use crate::runtime::{Arg, CheckedArg, Device, Grid, Stream};
use crate::tuning::Machine;

/// A measured problem is near if its sizes are within this many doublings, summed over the sizes.
const NEAR: f64 = 1.0;

impl KernelDef {
    /// The configuration that [`KernelDef::launch_tuned`] runs these arguments with, and where it
    /// comes from. It may be measured, with these arguments. `present` says of each optional parameter whether it is
    /// there.
    ///
    /// # Safety
    /// As [`KernelDef::launch_tuned`].
    /// # Errors
    /// If the kernel has no `#[autotune]`, or the GPU can't be used.
    pub unsafe fn choose(
        &self,
        stream: &Stream,
        dtypes: &[DType],
        present: &[bool],
        args: &[Arg],
    ) -> Result<(Arc<Config>, Source), Error> {
        self.check_present(present)?;
        let tuning = self.tuning.ok_or_else(|| {
            Error::launch(format!("{}: the kernel has no #[autotune]", self.ast.name))
        })?;
        let (device, sizes) = (stream.device(), (tuning.sizes)(args));
        let problem = Problem { machine: machine(stream)?, dtypes, sizes: &sizes, present, args };
        let forms = problem.form_bits();
        let hash = hash(device, dtypes, &sizes, forms);
        let is_same = |choice: &Choice| {
            let same = choice.device == device && choice.forms == forms;
            same && choice.dtypes == dtypes && choice.sizes == sizes
        };
        let choices = self.chosen.choices.read().unwrap_or_else(PoisonError::into_inner);
        let first = choices.partition_point(|choice| choice.hash < hash);
        let mut same_hash = choices[first..].iter().take_while(|choice| choice.hash == hash);
        if let Some(choice) = same_hash.find(|choice| is_same(choice)) {
            return Ok((Arc::clone(&choice.config), choice.source));
        }
        drop(choices);
        let (config, source) = self.look_up(tuning, stream, &problem)?;
        let (config, dtypes) = (Arc::new(config), dtypes.to_vec());
        let choice = Choice { hash, device, dtypes, sizes, forms, config, source };
        let found = (Arc::clone(&choice.config), source);
        let mut choices = self.chosen.choices.write().unwrap_or_else(PoisonError::into_inner);
        // Another thread may have been first: both choices are the same then, and one is enough.
        let at = choices.partition_point(|other| other.hash < hash);
        choices.insert(at, choice);
        Ok(found)
    }

    #[cold]
    fn look_up(
        &self,
        tuning: &'static Tuning,
        stream: &Stream,
        problem: &Problem<'_>,
    ) -> Result<(Config, Source), Error> {
        let table = self.chosen.table.get_or_init(|| database::parse(tuning.table));
        let measured = [(database::of_this_user(), Source::Database), (table, Source::Table)];
        for (records, source) in measured {
            if let Some((config, _)) = self.nearest(records, tuning, problem, 0.0) {
                return Ok((config, source));
            }
        }
        if knobs::get().autotune
            && let Some(config) = self.measure(stream, problem)?
        {
            return Ok((config, Source::Measured));
        }
        let near = measured
            .iter()
            .filter_map(|(records, _)| self.nearest(records, tuning, problem, NEAR))
            .min_by(|a, b| a.1.total_cmp(&b.1));
        if let Some((config, _)) = near {
            return Ok((config, Source::Near));
        }
        if let Some(heuristic) = tuning.heuristic {
            return Ok((heuristic(problem), Source::Heuristic));
        }
        let best = rank(self, tuning, problem).into_iter().next();
        let (config, _) = best.ok_or_else(|| {
            let name = self.ast.name;
            Error::launch(format!("{name}: no configuration of its #[autotune] fits the call"))
        })?;
        Ok((config, Source::Model))
    }

    /// The configuration of the nearest record within a distance. One of the same driver wins.
    fn nearest(
        &self,
        records: &[Record],
        tuning: &Tuning,
        problem: &Problem<'_>,
        limit: f64,
    ) -> Option<(Config, f64)> {
        let place = |record: &Record| {
            let distance = record.distance(tuning.key, problem.sizes)?;
            let other_driver = record.driver != problem.machine.driver;
            let config = record.config(self.ast)?;
            let fits = distance <= limit && tuning.allows(&config, problem);
            fits.then_some((config, distance, other_driver))
        };
        let fitting = records
            .iter()
            .filter(|record| record.is_of(self.ast, problem))
            .filter_map(place)
            .min_by(|a, b| a.1.total_cmp(&b.1).then(a.2.cmp(&b.2)));
        fitting.map(|(config, distance, _)| (config, distance))
    }

    /// Measures on the caller's arguments; none if nothing could be measured.
    fn measure(&self, stream: &Stream, problem: &Problem<'_>) -> Result<Option<Config>, Error> {
        let plan = Plan { budget: knobs::get().autotune_budget, ..Plan::default() };
        let present = problem.present;
        let request =
            TuneRequest { plan, present, ..TuneRequest::new(self, stream, problem.dtypes) };
        // SAFETY: `choose`, whose caller promises as much, is the only one that leads here.
        let report = match unsafe { tune(&request, problem.args, &mut |_| ()) } {
            Ok(report) => report,
            Err(error) if error.is_device_lost() => return Err(error),
            Err(_) => return Ok(None),
        };
        if let (Some(database), Some(record)) = (database::user_database(), report.record()) {
            // A full or read-only disk is not an error: the next process measures again.
            let _ = Database::add(&database, &record);
        }
        Ok(report.best().map(|best| best.config.clone()))
    }

    /// Runs the kernel with the configuration that is best for its arguments.
    ///
    /// # Safety
    /// As [`KernelDef::launch`], for every configuration of the kernel's space.
    /// # Errors
    /// As [`KernelDef::launch`], and if the kernel has no `#[autotune]`.
    pub unsafe fn launch_tuned(
        &self,
        stream: &Stream,
        dtypes: &[DType],
        args: &[Arg],
    ) -> Result<(), Error> {
        // SAFETY: the caller's promise is the same.
        unsafe { self.launch_tuned_present(stream, dtypes, &[], args) }
    }

    /// [`KernelDef::launch_tuned`] of a kernel with optional parameters, of each of which `present` says whether it is
    /// there.
    ///
    /// # Safety
    /// As [`KernelDef::launch_tuned`].
    /// # Errors
    /// As [`KernelDef::launch_tuned`], and if `present` has another length.
    pub unsafe fn launch_tuned_present(
        &self,
        stream: &Stream,
        dtypes: &[DType],
        present: &[bool],
        args: &[Arg],
    ) -> Result<(), Error> {
        // SAFETY: the caller's promise is the same.
        let (config, _) = unsafe { self.choose(stream, dtypes, present, args)? };
        let grid = self.grid_of(&config, args);
        let with_present = (!present.is_empty()).then(|| config.consts_with(present));
        let (consts, options) = (with_present.as_ref().unwrap_or(&config.consts), config.options);
        // SAFETY: the caller's promise is the same.
        unsafe { self.launch_with(stream, grid, dtypes, consts, options, args) }
    }

    /// Refuses a list that is not about this kernel's optional parameters.
    fn check_present(&self, present: &[bool]) -> Result<(), Error> {
        let optional = self.ast.consts.len() - self.ast.declared_consts().len();
        if present.len() == optional {
            return Ok(());
        }
        let (name, given) = (self.ast.name, present.len());
        Err(Error::launch(format!(
            "{name}: has {optional} optional parameters, and the launch says of {given} whether they are there"
        )))
    }

    /// [`KernelDef::launch_checked`] with the configuration that is best for the arguments; `present` as of
    /// [`KernelDef::launch_tuned_present`].
    ///
    /// # Errors
    /// As [`KernelDef::launch_checked`], and if the kernel has no `#[autotune]`.
    pub fn launch_tuned_checked(
        &self,
        stream: &Stream,
        dtypes: &[DType],
        present: &[bool],
        args: &[CheckedArg<'_>],
    ) -> Result<(), Error> {
        let raw: Vec<Arg> = args.iter().map(CheckedArg::arg).collect();
        self.check(stream, args)?;
        // SAFETY: as in `launch_checked`.
        unsafe { self.launch_tuned_present(stream, dtypes, present, &raw) }
    }

    /// The grid of a configuration; one program if the kernel has no `#[autotune]`.
    pub fn grid_of(&self, config: &Config, args: &[Arg]) -> Grid {
        self.tuning.map_or(Grid::x(1), |tuning| (tuning.grid)(&config.consts, args))
    }
}

/// Multiplies and folds a word at a time; the keys come from a program, not from an attacker.
fn hash(device: Device, dtypes: &[DType], sizes: &[i64], forms: u64) -> u64 {
    let device = match device {
        Device::Cpu => 0,
        Device::Cuda(number) => u64::from(number) + 1,
    };
    let words = dtypes.iter().map(|&dtype| dtype as u64).chain(sizes.iter().map(|&n| n as u64));
    [device, forms].into_iter().chain(words).fold(0, |hash, word| {
        let product = u128::from(hash ^ word ^ 0x9e37_79b9_7f4a_7c15) * 0xd6e8_feb8_6659_fd93;
        product as u64 ^ (product >> 64) as u64
    })
}

/// The machine of a stream, looked at once.
pub fn machine(stream: &Stream) -> Result<&'static Machine, Error> {
    static MACHINES: [OnceLock<Result<Machine, Error>>; 65] = [const { OnceLock::new() }; 65];
    let device = stream.device();
    let slot = match device {
        Device::Cpu => 0,
        Device::Cuda(number) => 1 + number as usize,
    };
    let missing = || Error::device(format!("there is no {device}"));
    let slot = MACHINES.get(slot).ok_or_else(missing)?;
    slot.get_or_init(|| Machine::of(device)).as_ref().map_err(Error::clone)
}
