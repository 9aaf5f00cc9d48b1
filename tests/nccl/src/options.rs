//! What the environment variable `VIRTUAL_NCCL` says.

use std::sync::OnceLock;

use crate::faults::Faults;
use crate::link::Link;

/// Faults, and what there is between ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Options {
    pub(crate) faults: Faults,
    pub(crate) link: Link,
}

/// The options of this process's environment.
pub(crate) fn get() -> &'static Options {
    static OPTIONS: OnceLock<Options> = OnceLock::new();
    OPTIONS.get_or_init(|| {
        let text = std::env::var("VIRTUAL_NCCL").unwrap_or_default();
        parse(&text).unwrap_or_else(|| panic!("VIRTUAL_NCCL: `{text}` is not known"))
    })
}

fn parse(text: &str) -> Option<Options> {
    let mut options = Options::default();
    for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
        let (name, value) = word.split_once('=')?;
        let is_known = options.faults.take(name, value) || options.link.take(name, value);
        is_known.then_some(())?;
    }
    Some(options)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn words_are_read() {
        let faults = Faults { dead: Some((1, 3)), late: Some((0, Duration::from_millis(200))) };
        let both = Options { faults, ..Options::default() };
        assert_eq!(parse("dead=1:3, late=0:200"), Some(both));
        let link = Link { rate: Some(12.5), latency: 5_500 };
        assert_eq!(parse("link=12.5,latency=5.5"), Some(Options { link, ..Options::default() }));
        assert_eq!(parse(""), Some(Options::default()));
        for wrong in ["dead=1", "slow=1:2", "link=0", "link=fast", "latency=-1"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
