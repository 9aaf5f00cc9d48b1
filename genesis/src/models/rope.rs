//! Rotary positions, in every variant that `transformers` knows.
//!
//! Channel `i` of the first half and channel `i` of the second half of what is rotated are a pair, turned by
//! `position * inv_freq[i]`. Variants differ in `inv_freq` alone, and in a factor of cosine and sine:
//!
//! | type | frequencies `f_i = theta^(-2 i / R)` become |
//! |---|---|
//! | default, mrope | `f_i`; mrope's three kinds of position are one for text |
//! | linear | `f_i / factor` |
//! | dynamic | those of a larger theta, for sequences longer than the model was trained for |
//! | yarn | `f_i / factor` for slow channels, `f_i` for fast ones, a ramp between (arXiv:2309.00071) |
//! | llama3 | the same idea by wavelength, with a smooth step between |
//! | longrope | `f_i / short_factor[i]`, or `long_factor` for long sequences (arXiv:2402.13753) |
//!
//! Angles are made anew in each pass rather than looked up: a table of 131,072 positions would be 64 MB, and
//! the positions of a pass are few. Where a variant depends on the length of the sequence, whole sequences are
//! rotated by their length. In a paged batch frequencies must not change under the keys that are cached, so
//! such a model is good for the length that its first frequencies are for, see [`Rope::max_positions`].

use std::f64::consts::PI;

use genesis_kernel::ir::DType;
use serde_json::{Map, Value};

use super::rotation::Rotation;
use super::settings::Settings;
use super::{Batch, Pass};
use crate::error::Result;
use crate::nn::{Buffer, Module};
use crate::tensor::{Creation, Tensor};

/// The most channels of a head.
const MOST_CHANNELS: usize = 1 << 16;

/// What a configuration says of rotary positions.
#[derive(Clone, PartialEq, Debug)]
pub struct RopeSettings {
    /// The variant.
    pub kind: RopeKind,
    /// The base of the wavelengths.
    pub theta: f64,
    /// Channels that are rotated, the first ones of a head.
    pub channels: usize,
    /// The most positions that the model was made for.
    pub max_positions: usize,
}

/// A variant, with its own numbers.
#[derive(Clone, PartialEq, Debug)]
pub enum RopeKind {
    /// Unchanged frequencies.
    Default,
    /// All frequencies divided.
    Linear {
        /// The divisor.
        factor: f64,
    },
    /// A base that grows with the length of the sequence.
    Dynamic {
        /// How fast it grows.
        factor: f64,
    },
    /// Slow channels interpolated, fast ones not.
    Yarn(Yarn),
    /// Long wavelengths interpolated, short ones not.
    Llama3 {
        /// The divisor of long wavelengths.
        factor: f64,
        /// The original length over it is the longest wavelength that is interpolated in part.
        low_freq_factor: f64,
        /// The original length over it is the shortest one.
        high_freq_factor: f64,
        /// The length that the model was trained for at first.
        original: f64,
    },
    /// A divisor of each frequency.
    LongRope {
        /// Divisors up to the original length.
        short: Vec<f64>,
        /// Divisors beyond it.
        long: Vec<f64>,
        /// The length that the model was trained for at first.
        original: usize,
        /// The factor of cosine and sine.
        attention_factor: f64,
    },
}

/// The numbers of YaRN.
#[derive(Clone, PartialEq, Debug)]
pub struct Yarn {
    /// The divisor of slow channels.
    pub factor: f64,
    /// The length that the model was trained for at first.
    pub original: f64,
    /// Turns within the original length above which a channel is fast.
    pub beta_fast: f64,
    /// Turns within the original length below which a channel is slow.
    pub beta_slow: f64,
    /// Whether the ends of the ramp are whole channels.
    pub truncate: bool,
    /// The factor of cosine and sine.
    pub attention_factor: f64,
}

impl RopeSettings {
    /// Reads `rope_parameters`, or what was before it `rope_scaling` and `rope_theta`.
    pub(super) fn read(
        settings: &mut Settings,
        (head_dim, max_positions): (usize, usize),
        default_theta: f64,
    ) -> Result<RopeSettings> {
        let theta = settings.positive_if("rope_theta")?;
        let partial = settings.positive_if("partial_rotary_factor")?;
        let original = settings.size_if("original_max_position_embeddings")?;
        let (old, new) = (settings.nested("rope_scaling")?, settings.nested("rope_parameters")?);
        let mut keys = old.or(new).unwrap_or_else(|| settings.empty("rope_parameters"));
        keys.put_if_absent("rope_theta", theta.unwrap_or(default_theta));
        partial.iter().for_each(|&n| keys.put_if_absent("partial_rotary_factor", n));
        original.iter().for_each(|&n| keys.put("original_max_position_embeddings", n));
        RopeSettings::of(keys, head_dim, max_positions)
    }

    /// Reads the settings of one kind of layer; every key of them counts.
    pub(super) fn of(
        mut keys: Settings,
        head_dim: usize,
        max_positions: usize,
    ) -> Result<RopeSettings> {
        let theta = keys.positive_if("rope_theta")?.unwrap_or(10_000.0);
        let share = keys.positive_if("partial_rotary_factor")?.unwrap_or(1.0);
        let channels = (head_dim as f64 * share) as usize;
        if !(2..=head_dim.min(MOST_CHANNELS)).contains(&channels) || !channels.is_multiple_of(2) {
            let what =
                format!("{channels} channels of heads of {head_dim} can't be rotated in pairs");
            return Err(keys.refusal(what));
        }
        let kind = RopeKind::read(&mut keys, channels, max_positions)?;
        keys.finish()?;
        Ok(RopeSettings { kind, theta, channels, max_positions })
    }

    /// Reads `rope_parameters` as `config.json` has them.
    ///
    /// # Errors
    /// If the variant is not known, or a key is missing, out of range, or not one of the variant.
    /// # Examples
    /// ```
    /// use genesis::models::RopeSettings;
    ///
    /// let json = r#"{"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0}"#;
    /// let parameters = serde_json::from_str(json).expect("an object");
    /// let (frequencies, _) = RopeSettings::parse(&parameters, 64, 4096)?.frequencies(1);
    /// assert_eq!(frequencies[0], 0.25);
    /// # Ok::<(), genesis::Error>(())
    /// ```
    pub fn parse(
        parameters: &Map<String, Value>,
        head_dim: usize,
        max_positions: usize,
    ) -> Result<RopeSettings> {
        let keys = Settings::of(parameters.clone(), "rope_parameters");
        RopeSettings::of(keys, head_dim, max_positions)
    }

    /// The frequencies of a sequence of so many tokens, and the factor of cosine and sine.
    pub fn frequencies(&self, length: usize) -> (Vec<f64>, f64) {
        let plain = self.plain(self.theta);
        match &self.kind {
            RopeKind::Default => (plain, 1.0),
            RopeKind::Linear { factor } => (plain.iter().map(|f| f / factor).collect(), 1.0),
            RopeKind::Dynamic { factor } => {
                let (most, r) = (self.max_positions as f64, self.channels as f64);
                let growth = factor * (length as f64).max(most) / most - (factor - 1.0);
                (self.plain(self.theta * growth.powf(r / (r - 2.0).max(1.0))), 1.0)
            }
            RopeKind::Yarn(yarn) => (yarn.frequencies(&plain, self.theta), yarn.attention_factor),
            RopeKind::Llama3 { factor, low_freq_factor, high_freq_factor, original } => {
                let (low, high) = (*low_freq_factor, *high_freq_factor);
                let smoothed = |f: &f64| {
                    let turns = original * f / (2.0 * PI);
                    let kept = ((turns - low) / (high - low)).clamp(0.0, 1.0);
                    (1.0 - kept) * f / factor + kept * f
                };
                (plain.iter().map(smoothed).collect(), 1.0)
            }
            RopeKind::LongRope { short, long, original, attention_factor } => {
                let divisors = if length > *original { long } else { short };
                let divided = plain.iter().zip(divisors).map(|(f, divisor)| f / divisor);
                (divided.collect(), *attention_factor)
            }
        }
    }

    /// `theta^(-2 i / R)`
    fn plain(&self, theta: f64) -> Vec<f64> {
        let r = self.channels as f64;
        (0..self.channels / 2).map(|i| theta.powf(-2.0 * i as f64 / r)).collect()
    }
}

impl RopeKind {
    fn read(keys: &mut Settings, channels: usize, max_positions: usize) -> Result<RopeKind> {
        let old = keys.text("type")?;
        let name = keys.text("rope_type")?.or(old).unwrap_or_else(|| "default".to_owned());
        let most = max_positions as f64;
        let original = match name.as_str() {
            "yarn" | "llama3" | "longrope" | "su" => {
                keys.size("original_max_position_embeddings", max_positions)?
            }
            _ => max_positions,
        };
        match name.as_str() {
            "default" => Ok(RopeKind::Default),
            "mrope" => {
                keys.numbers_if("mrope_section")?;
                Ok(RopeKind::Default)
            }
            "linear" => Ok(RopeKind::Linear { factor: keys.needed("factor")? }),
            "dynamic" => Ok(RopeKind::Dynamic { factor: keys.needed("factor")? }),
            "yarn" => Ok(RopeKind::Yarn(Yarn::read(keys, original as f64, most)?)),
            "llama3" => {
                let (low, high) =
                    (keys.needed("low_freq_factor")?, keys.needed("high_freq_factor")?);
                if high <= low {
                    let what =
                        format!("high_freq_factor {high} is not above low_freq_factor {low}");
                    return Err(keys.refusal(what));
                }
                Ok(RopeKind::Llama3 {
                    factor: keys.needed("factor")?,
                    low_freq_factor: low,
                    high_freq_factor: high,
                    original: original as f64,
                })
            }
            "longrope" | "su" => {
                let factor = keys.positive_if("factor")?.unwrap_or(most / original as f64);
                let usual = match factor > 1.0 {
                    true => (1.0 + factor.ln() / (original as f64).ln()).sqrt(),
                    false => 1.0,
                };
                Ok(RopeKind::LongRope {
                    short: divisors(keys, "short_factor", channels / 2)?,
                    long: divisors(keys, "long_factor", channels / 2)?,
                    original,
                    attention_factor: keys.number_if("attention_factor")?.unwrap_or(usual),
                })
            }
            _ => Err(keys.unsupported("rope_type", &name.as_str().into())),
        }
    }
}

/// A divisor of each frequency.
fn divisors(keys: &mut Settings, key: &str, count: usize) -> Result<Vec<f64>> {
    let found = keys.numbers_if(key)?.unwrap_or_default();
    match found.len() == count && found.iter().all(|&n| n > 0.0) {
        true => Ok(found),
        false => Err(keys.refusal(format!("{key} must be {count} numbers above 0"))),
    }
}

impl Yarn {
    fn read(keys: &mut Settings, original: f64, max_positions: f64) -> Result<Yarn> {
        let factor = keys.positive_if("factor")?.unwrap_or(max_positions / original);
        let (all, whole) = (keys.number_if("mscale")?, keys.number_if("mscale_all_dim")?);
        let scaled = |by: f64| if factor <= 1.0 { 1.0 } else { 0.1 * by * factor.ln() + 1.0 };
        let usual = match (all.filter(|&n| n != 0.0), whole.filter(|&n| n != 0.0)) {
            (Some(all), Some(whole)) => scaled(all) / scaled(whole),
            _ => scaled(1.0),
        };
        Ok(Yarn {
            factor,
            original,
            beta_fast: keys.positive_if("beta_fast")?.unwrap_or(32.0),
            beta_slow: keys.positive_if("beta_slow")?.unwrap_or(1.0),
            truncate: keys.flag("truncate", true)?,
            attention_factor: keys.number_if("attention_factor")?.unwrap_or(usual),
        })
    }

    /// The channels that turn more than `beta_fast` times keep their frequency, those under `beta_slow` turns
    /// are interpolated.
    fn frequencies(&self, plain: &[f64], theta: f64) -> Vec<f64> {
        let channels = 2.0 * plain.len() as f64;
        let channel_of =
            |turns: f64| channels * (self.original / (turns * 2.0 * PI)).ln() / (2.0 * theta.ln());
        let (mut low, mut high) = (channel_of(self.beta_fast), channel_of(self.beta_slow));
        if self.truncate {
            (low, high) = (low.floor(), high.ceil());
        }
        (low, high) = (low.max(0.0), high.min(channels - 1.0));
        let width = if low == high { 0.001 } else { high - low };
        let mixed = |(i, f): (usize, &f64)| {
            let slow = ((i as f64 - low) / width).clamp(0.0, 1.0);
            f / self.factor * slow + f * (1.0 - slow)
        };
        plain.iter().enumerate().map(mixed).collect()
    }
}

/// Rotary positions of the layers of a model.
#[derive(Debug, Module)]
pub struct Rope {
    /// The frequencies of sequences that are not longer than usual: `[R / 2]`, f32.
    pub inv_freq: Buffer,
    /// The factor of cosine and sine.
    pub attention_factor: f64,
    /// What they follow from.
    #[module(skip)]
    pub settings: RopeSettings,
}

impl Rope {
    /// Rotary positions by these settings.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn new(settings: RopeSettings, at: impl Into<Creation>) -> Result<Rope> {
        let device = at.into().device;
        let (frequencies, attention_factor) = settings.frequencies(0);
        let inv_freq = Tensor::from_f64(&frequencies, &[frequencies.len()], (DType::F32, device))?;
        Ok(Rope { inv_freq: Buffer::transient(inv_freq), attention_factor, settings })
    }

    /// The most positions of a sequence in a paged batch.
    ///
    /// Longrope's long divisors are another model's numbers than its short ones, so that keys of both don't
    /// fit; a cache holds those of the short ones.
    pub fn max_positions(&self) -> usize {
        match &self.settings.kind {
            RopeKind::LongRope { original, .. } => self.settings.max_positions.min(*original),
            _ => self.settings.max_positions,
        }
    }

    /// The rotation of whole sequences of this length from position 0 on.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn whole(&self, length: usize) -> Result<Rotation> {
        let device = self.inv_freq.device();
        let positions = Tensor::arange(0.0, length as f64, 1.0, (DType::F32, device))?;
        if length <= self.max_positions() {
            return Ok(Rotation::new(&positions, &self.inv_freq, self.attention_factor));
        }
        let (frequencies, _) = self.settings.frequencies(length);
        let longer = Tensor::from_f64(&frequencies, &[frequencies.len()], (DType::F32, device))?;
        Ok(Rotation::new(&positions, &longer, self.attention_factor))
    }

    /// The rotation of the new tokens of a paged batch.
    pub fn paged(&self, batch: &Batch) -> Rotation {
        self.at(&batch.positions)
    }

    /// The rotation of tokens at these positions, of sequences that are not longer than usual.
    fn at(&self, positions: &Tensor) -> Rotation {
        Rotation::new(positions, &self.inv_freq, self.attention_factor)
    }

    /// The rotation of the tokens of a pass.
    pub(super) fn of(&self, tokens: &Tensor, pass: &Pass<'_>) -> Result<Rotation> {
        match pass {
            Pass::Whole => self.whole(tokens.dim(-1)?),
            Pass::Packed(packed) => Ok(self.at(&packed.positions)),
            Pass::Paged { batch, .. } => Ok(self.paged(batch)),
        }
    }
}
