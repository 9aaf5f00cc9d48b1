//! A language model of the King James Bible, character by character.

use std::path::Path;

use super::models::{Gpt, GptOptions};
use super::{Config, Metric, Shown, Task};
use crate::data::{
    DataLoader, Dataset, LoaderOptions, SampleRng, TokenWindows, Tokens, bible_text,
};
use crate::error::{Error, Result};
use crate::nn::{Layer, Module};
use crate::ops::Reduction;
use crate::tensor::Tensor;

/// Bytes that occur in a text, numbered in their order.
#[derive(Clone, Debug)]
pub struct Characters {
    bytes: Vec<u8>,
}

impl Characters {
    /// The bytes of a text.
    pub fn of(text: &[u8]) -> Characters {
        let mut seen = [false; 256];
        text.iter().for_each(|&byte| seen[usize::from(byte)] = true);
        Characters { bytes: (0..=255).filter(|&byte| seen[usize::from(byte)]).collect() }
    }

    /// The number of different bytes.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether the text was empty.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The numbers of a text's bytes; what did not occur is left out.
    pub fn encode(&self, text: &[u8]) -> Vec<u8> {
        text.iter().filter_map(|byte| Some(self.bytes.binary_search(byte).ok()? as u8)).collect()
    }

    /// The text of numbers.
    pub fn decode(&self, tokens: &[i64]) -> String {
        let byte = |&token: &i64| self.bytes.get(usize::try_from(token).ok()?).copied();
        String::from_utf8_lossy(&tokens.iter().filter_map(byte).collect::<Vec<u8>>()).into_owned()
    }
}

/// A [`Gpt`] and its text.
pub struct TextModel {
    model: Gpt,
    characters: Characters,
    loader: DataLoader<(Tensor, Tensor)>,
    test: TokenWindows<Vec<u8>>,
    config: Config,
}

impl TextModel {
    /// Tokens that the model looks back on.
    const CONTEXT: usize = 64;
    /// Windows that an evaluation looks at.
    const TESTED: usize = 256;

    /// A model that starts from the default generator, and the text of Debian's `bible-kjv-text` or of
    /// the file that the config names.
    ///
    /// # Errors
    /// If the text is not there or too short, or memory runs out.
    pub fn bible(config: &Config) -> Result<TextModel> {
        TextModel::new(&bible_text(config.data.as_deref())?, config)
    }

    /// A model and a text, whose last tenth it is tested on.
    ///
    /// # Errors
    /// If the text is too short, or memory runs out.
    pub fn new(text: &[u8], config: &Config) -> Result<TextModel> {
        let characters = Characters::of(text);
        let tokens = characters.encode(text);
        let (train, test) = tokens.split_at(tokens.len() - tokens.len() / 10);
        let windows = |part: &[u8]| TokenWindows::new(part.to_vec(), TextModel::CONTEXT);
        let options = LoaderOptions {
            batch_size: config.batch,
            shuffle: true,
            seed: config.seed,
            drop_last: true,
            workers: 1,
            device: Some(config.device),
            ..LoaderOptions::default()
        };
        let size = GptOptions {
            vocabulary: characters.len(),
            context: TextModel::CONTEXT,
            channels: 96,
            heads: 4,
            layers: 3,
            dropout: 0.0,
        };
        Ok(TextModel {
            model: Gpt::new(&size, config.device)?,
            characters,
            loader: DataLoader::new(windows(train)?, options)?,
            test: windows(test)?,
            config: config.clone(),
        })
    }

    /// Text that follows on a prompt.
    ///
    /// # Errors
    /// If no character of the prompt is in the text, or a launch fails.
    pub fn generate(&self, prompt: &str, count: usize, seed: u64) -> Result<String> {
        let tokens = self.characters.encode(prompt.as_bytes());
        let tokens: Vec<i64> = tokens.iter().map(|&token| i64::from(token)).collect();
        let made = self.model.generate(&tokens, count, 0.8, &mut SampleRng::new(seed))?;
        Ok(self.characters.decode(&made))
    }
}

impl Task for TextModel {
    fn name(&self) -> String {
        format!("text of {} characters", self.characters.len())
    }

    fn model(&self) -> &dyn Module {
        &self.model
    }

    fn loader(&self) -> &DataLoader<(Tensor, Tensor)> {
        &self.loader
    }

    fn loss(&self, (tokens, next): &(Tensor, Tensor)) -> Result<Tensor> {
        self.model.forward(tokens)?.cross_entropy(next, Reduction::Mean)
    }

    /// The loss in nats a character, over windows spread across the end of the text.
    fn evaluate(&self) -> Result<Metric> {
        let all = Dataset::len(&self.test);
        let step = all.div_ceil(TextModel::TESTED);
        let places: Vec<usize> = (0..all).step_by(step).collect();
        let (mut sum, mut count) = (0.0, 0);
        for places in places.chunks(self.config.batch.max(1)) {
            let windows = places.iter().map(|&place| self.test.get(place));
            let batch = <(Tensor, Tensor) as crate::data::Sample>::collate(
                windows.collect::<Result<Vec<_>>>()?,
            )?;
            let on = self.config.device;
            let batch = (batch.0.to_device(on)?, batch.1.to_device(on)?);
            sum += self.loss(&batch)?.item()? * places.len() as f64;
            count += places.len();
        }
        Ok(Metric { name: "loss", value: sum / count.max(1) as f64 })
    }

    fn show(&self, _: Option<&Path>) -> Result<Shown> {
        let Some(&first) = self.test.tokens().read(0, 1).first() else {
            return Err(Error::op("text", "there is no text to begin with"));
        };
        let prompt = self.characters.decode(&[first]);
        let prompt = if self.characters.encode(b"And ").len() == 4 { "And " } else { &prompt };
        let text = format!("{prompt}{}", self.generate(prompt, 400, self.config.seed)?);
        Ok(Shown { text: Some(text), files: Vec::new() })
    }
}
