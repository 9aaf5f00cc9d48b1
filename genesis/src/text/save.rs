//! Tokenizer, special tokens and chat templates as files of a model folder.

use std::fs;
use std::path::Path;

use serde_json::{Map, Value};

use super::pretrained::Pretrained;
use super::tokenizer::failed;
use crate::error::{Error, Result};

impl Pretrained {
    /// Writes `tokenizer.json`, `tokenizer_config.json` and `chat_template.jinja`, so that [`Pretrained::load`] and
    /// transformers read the same; other chat templates go to `chat_templates`.
    ///
    /// # Errors
    /// If the folder can't be written.
    pub fn save(&self, folder: impl AsRef<Path>) -> Result<()> {
        let folder = folder.as_ref();
        let write = |name: &str, text: &str| {
            let path = folder.join(name);
            let problem = |error| Error::io(format!("can't write {}: {error}", path.display()));
            fs::create_dir_all(path.parent().unwrap_or(folder)).map_err(problem)?;
            fs::write(&path, text).map_err(problem)
        };
        let tokenizer = self.tokenizer.inner().to_string(true);
        write("tokenizer.json", &tokenizer.map_err(|error| failed("save", &*error))?)?;
        let mut config = Map::new();
        config.insert("tokenizer_class".to_owned(), "PreTrainedTokenizerFast".into());
        config.insert("clean_up_tokenization_spaces".to_owned(), false.into());
        let special = self.special_tokens.iter();
        config.extend(special.map(|(name, token)| (name.clone(), token.clone().into())));
        write("tokenizer_config.json", &format!("{:#}\n", Value::Object(config)))?;
        for (name, source) in &self.chat_templates {
            match name.as_str() {
                "default" => write("chat_template.jinja", source)?,
                name => write(&format!("chat_templates/{name}.jinja"), source)?,
            }
        }
        Ok(())
    }
}
