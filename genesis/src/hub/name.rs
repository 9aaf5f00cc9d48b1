//! Names of models on the hub: `org/name`, with a revision and a file.
//!
//! A name becomes parts of paths and of addresses, so that it is taken apart and checked before either.

/// What a name says.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Name {
    /// `org/name`, or `name` alone as the oldest models have it.
    pub(super) repo: String,
    /// A branch, tag or commit; `main` where none is given.
    pub(super) revision: String,
    /// A GGUF file or the end of its stem, such as `Q4_K_M`.
    pub(super) file: Option<String>,
}

impl Name {
    /// `org/name[@revision][:file]`.
    pub(super) fn parse(text: &str) -> Result<Name, String> {
        let (rest, file) = match text.split_once(':') {
            Some((rest, file)) => (rest, Some(file)),
            None => (text, None),
        };
        let (repo, revision) = rest.split_once('@').unwrap_or((rest, "main"));
        let is_path = repo.starts_with(['.', '/', '~']) || repo.matches('/').count() > 1;
        if is_path || is_weights(repo) {
            return Err("there is no such file or folder".to_owned());
        }
        if !repo.split('/').all(is_part) || repo.contains("--") {
            let wanted = "org/name, or org/name@revision, or org/name:file";
            return Err(format!("is no path here, and no name of a model, which is {wanted}"));
        }
        if !revision.split('/').all(is_part) {
            return Err(format!("{revision:?} is no branch, tag or commit"));
        }
        if file.is_some_and(|file| !is_part(file)) {
            return Err(format!("{:?} is no file of a model", file.unwrap_or_default()));
        }
        let owned = str::to_owned;
        Ok(Name { repo: owned(repo), revision: owned(revision), file: file.map(owned) })
    }
}

fn is_weights(repo: &str) -> bool {
    repo.ends_with(".gguf") || repo.ends_with(".safetensors")
}

/// Whether it is one part of a path, of letters that neither paths nor addresses read otherwise.
pub(super) fn is_part(part: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    (1..=200).contains(&part.len()) && part.chars().all(is_plain) && !part.starts_with('.')
}

/// Whether it is a commit in full.
pub(super) fn is_commit(text: &str) -> bool {
    text.len() == 40 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_apart() {
        let parse = |text| {
            let Name { repo, revision, file } = Name::parse(text).unwrap();
            (repo, revision, file)
        };
        let all = |repo: &str, revision: &str, file: Option<&str>| {
            (repo.to_owned(), revision.to_owned(), file.map(str::to_owned))
        };
        assert_eq!(parse("Qwen/Qwen2.5-0.5B"), all("Qwen/Qwen2.5-0.5B", "main", None));
        assert_eq!(parse("gpt2@refs/pr/1"), all("gpt2", "refs/pr/1", None));
        assert_eq!(parse("a/b@v1:Q4_K_M"), all("a/b", "v1", Some("Q4_K_M")));
    }

    #[test]
    fn what_would_be_a_path_elsewhere_is_refused() {
        for text in [
            "",
            "/a",
            "a/",
            "a/b/c",
            "../b",
            "a/..",
            "a b",
            "a/b@../../x",
            "a/b:../x",
            "a/b@",
            "a--b/c",
        ] {
            assert!(Name::parse(text).is_err(), "{text}");
        }
        let missing = Err("there is no such file or folder".to_owned());
        assert_eq!(Name::parse("./model"), missing);
        assert_eq!(Name::parse("model.gguf"), missing);
    }
}
