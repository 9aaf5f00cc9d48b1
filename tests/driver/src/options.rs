//! What the environment variable `VIRTUAL_GPU` says of the machine.

use cudarc::driver::sys::CUresult;

/// The machine that is pretended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Options {
    /// Whether launches do nothing.
    pub(crate) null: bool,
    /// Whether calls are counted.
    pub(crate) count: bool,
    /// Whether times are those of the virtual clock.
    pub(crate) clock: bool,
    /// The number of GPUs.
    pub(crate) devices: u32,
    /// Bytes of memory of each.
    pub(crate) memory: usize,
    /// The launch, counted from 1, that breaks its device, and how.
    pub(crate) fault: Option<(u64, CUresult)>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            null: false,
            count: false,
            clock: false,
            devices: 1,
            memory: 4 << 30,
            fault: None,
        }
    }
}

impl Options {
    /// What the environment says.
    pub(crate) fn from_env() -> Options {
        let text = std::env::var("VIRTUAL_GPU").unwrap_or_default();
        Options::parse(&text).unwrap_or_else(|wrong| panic!("VIRTUAL_GPU: {wrong}"))
    }

    fn parse(text: &str) -> Result<Options, String> {
        let mut options = Options::default();
        for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            let wrong = || format!("`{word}` is not known");
            match name {
                "null" => options.null = true,
                "count" => options.count = true,
                "clock" => options.clock = true,
                "devices" => options.devices = value.parse().map_err(|_| wrong())?,
                "memory" => options.memory = bytes(value).ok_or_else(wrong)?,
                "fault" => options.fault = Some(fault(value).ok_or_else(wrong)?),
                _ => return Err(wrong()),
            }
        }
        Ok(options)
    }
}

/// `64M`, or plain bytes.
fn bytes(text: &str) -> Option<usize> {
    let digits = text.trim_end_matches(['K', 'M', 'G']);
    let shift = match &text[digits.len()..] {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        _ => return None,
    };
    digits.parse::<usize>().ok()?.checked_mul(1 << shift)
}

/// `3`, or `3:assert` for another fault than a bad address.
fn fault(text: &str) -> Option<(u64, CUresult)> {
    let (number, what) = text.split_once(':').unwrap_or((text, "address"));
    let what = match what {
        "address" => CUresult::CUDA_ERROR_ILLEGAL_ADDRESS,
        "misaligned" => CUresult::CUDA_ERROR_MISALIGNED_ADDRESS,
        "instruction" => CUresult::CUDA_ERROR_ILLEGAL_INSTRUCTION,
        "launch" => CUresult::CUDA_ERROR_LAUNCH_FAILED,
        "memory" => CUresult::CUDA_ERROR_ECC_UNCORRECTABLE,
        _ => return None,
    };
    Some((number.parse().ok()?, what))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_words_with_commas_between() {
        let options = Options::parse("null, devices=2,memory=64M,fault=3").unwrap();
        let fault = Some((3, CUresult::CUDA_ERROR_ILLEGAL_ADDRESS));
        let wished =
            Options { null: true, devices: 2, memory: 64 << 20, fault, ..Options::default() };
        assert_eq!(options, wished);
        assert_eq!(Options::parse("count").map(|options| options.count), Ok(true));
        assert_eq!(Options::parse("clock").map(|options| options.clock), Ok(true));
        assert_eq!(Options::parse(""), Ok(Options::default()));
        assert_eq!(Options::parse("speed=2"), Err("`speed=2` is not known".to_owned()));
    }
}
