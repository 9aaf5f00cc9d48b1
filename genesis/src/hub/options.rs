//! Where models are kept and where they come from, as Hugging Face's variables say.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use genesis_kernel::knobs;

/// How far a download is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress<'a> {
    /// The file that is downloaded.
    pub file: &'a str,
    /// Its bytes that are here.
    pub done: u64,
    /// All of its bytes, where that is known.
    pub total: Option<u64>,
}

/// What is told of every part of a file that came.
pub type OnProgress = Arc<dyn Fn(Progress<'_>) + Send + Sync>;

/// Where [`resolve`](super::resolve) looks for models, and how it downloads them.
///
/// The default is what `HF_HUB_CACHE`, `HF_HOME`, `HF_ENDPOINT`, `HF_TOKEN` and `HF_HUB_OFFLINE` say.
#[derive(Clone)]
pub struct HubOptions {
    /// The folder of downloaded models; none where no home is known.
    pub cache: Option<PathBuf>,
    /// The address of the hub, `https://huggingface.co`.
    pub endpoint: String,
    /// Who downloads: for private and gated models. It is sent to the endpoint alone.
    pub token: Option<String>,
    /// Downloads nothing.
    pub offline: bool,
    /// How often a download is taken up again after no byte came.
    pub retries: u32,
    /// How long to wait before the first of these; twice as long before each further one.
    pub wait: Duration,
    /// Who draws a bar.
    pub progress: Option<OnProgress>,
}

impl Default for HubOptions {
    fn default() -> HubOptions {
        HubOptions::from(knobs::hub_variable)
    }
}

impl HubOptions {
    fn from(variable: impl Fn(&str) -> Option<OsString>) -> HubOptions {
        let text = |name| variable(name).and_then(|value| value.into_string().ok());
        let path = |name| variable(name).map(|value| at_home(PathBuf::from(value), &variable));
        let caches = path("XDG_CACHE_HOME")
            .or_else(|| Some(PathBuf::from(variable("HOME")?).join(".cache")));
        let home = path("HF_HOME").or_else(|| Some(caches?.join("huggingface")));
        let cache = path("HF_HUB_CACHE").or_else(|| Some(home.as_ref()?.join("hub")));
        let file = path("HF_TOKEN_PATH").or_else(|| Some(home.as_ref()?.join("token")));
        let token = text("HF_TOKEN").or_else(|| crate::files::read_regular_text(&file?).ok());
        let endpoint = text("HF_ENDPOINT").unwrap_or_else(|| "https://huggingface.co".to_owned());
        let is_on = |value: String| {
            matches!(value.to_ascii_uppercase().as_str(), "1" | "ON" | "YES" | "TRUE")
        };
        HubOptions {
            cache,
            endpoint: endpoint.trim_end_matches('/').to_owned(),
            token: token.map(|token| token.trim().to_owned()).filter(|token| !token.is_empty()),
            offline: text("HF_HUB_OFFLINE").is_some_and(is_on),
            retries: 5,
            wait: Duration::from_secs(1),
            progress: None,
        }
    }
}

/// A path whose `~` is the home.
fn at_home(path: PathBuf, variable: &impl Fn(&str) -> Option<OsString>) -> PathBuf {
    match (path.strip_prefix("~"), variable("HOME")) {
        (Ok(rest), Some(home)) => PathBuf::from(home).join(rest),
        _ => path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(values: &[(&str, &str)]) -> HubOptions {
        HubOptions::from(|name| {
            values.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into())
        })
    }

    #[test]
    fn variables_say_where_models_are() {
        let cache = |values: &[(&str, &str)]| with(values).cache;
        let is = |path: &str| Some(PathBuf::from(path));
        assert_eq!(cache(&[("HOME", "/u")]), is("/u/.cache/huggingface/hub"));
        assert_eq!(cache(&[("HOME", "/u"), ("XDG_CACHE_HOME", "/x")]), is("/x/huggingface/hub"));
        assert_eq!(cache(&[("HOME", "/u"), ("HF_HOME", "~/h")]), is("/u/h/hub"));
        assert_eq!(cache(&[("HF_HUB_CACHE", "/c"), ("HF_HOME", "/h")]), is("/c"));
        assert_eq!(cache(&[]), None);
    }

    #[test]
    fn variables_say_who_downloads_from_where() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().to_str().unwrap();
        std::fs::write(folder.path().join("token"), " hf_file\n").unwrap();
        let options =
            with(&[("HF_HOME", home), ("HF_ENDPOINT", "http://h/"), ("HF_HUB_OFFLINE", "yes")]);
        assert_eq!((options.endpoint.as_str(), options.offline), ("http://h", true));
        assert_eq!(options.token.as_deref(), Some("hf_file"));
        let options = with(&[("HF_HOME", home), ("HF_TOKEN", "hf_own"), ("HF_HUB_OFFLINE", "0")]);
        assert_eq!((options.token.as_deref(), options.offline), (Some("hf_own"), false));
        assert_eq!(with(&[]).endpoint, "https://huggingface.co");
    }
}
