//! The backend that servers and commands use: a model with its tokenizer, run by an engine on its own thread.

use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use serde_json::{Map, Value};
use tokio_stream::Stream;

use super::backend::{Answer, Backend, Format, Gauge, ModelInfo, Refusal};
use crate::error::{Error, Result};
use crate::generate::{
    self, Constraint, Engine, EngineOptions, EngineStats, Event, Grammars, Request, Runner,
    Sampling, embed,
};
use crate::models::{CausalLm, Loaded};
use crate::text::{ChatTemplate, Conversation, Pretrained};

/// A model that answers.
pub struct EngineBackend {
    info: ModelInfo,
    text: Pretrained,
    /// For conversations without and with tools.
    templates: [Result<ChatTemplate>; 2],
    model: Arc<dyn CausalLm>,
    runner: Runner,
    /// Made for the first answer that must follow a format: it holds all tokens once more.
    grammars: OnceLock<Result<Grammars>>,
}

impl EngineBackend {
    /// Starts an engine for a model. Of `info` the name, its date and its identity are taken.
    ///
    /// # Errors
    /// If the cache does not fit into memory, or options contradict each other.
    pub fn start(
        loaded: &Loaded,
        text: Pretrained,
        info: ModelInfo,
        options: EngineOptions,
    ) -> Result<EngineBackend> {
        let model = loaded.model.clone();
        let tokenizer = Arc::new(text.tokenizer.clone());
        let engine = Engine::new(model.clone(), Some(tokenizer), options)?;
        let runner = Runner::start(engine)?;
        let limits = *runner.limits();
        let mut stop_tokens = text.stop_tokens.clone();
        stop_tokens.extend(&loaded.config.eos_tokens);
        stop_tokens.sort_unstable();
        stop_tokens.dedup();
        stop_tokens.retain(|&token| (token as usize) < limits.vocab_size);
        let info = ModelInfo {
            context: limits.context,
            vocab_size: limits.vocab_size,
            sampling: usual_sampling(&loaded.config.generation),
            stop_tokens,
            ..info
        };
        let templates = [text.chat_template(false), text.chat_template(true)];
        let grammars = OnceLock::new();
        Ok(EngineBackend { info, text, templates, model, runner, grammars })
    }
}

/// How the model's authors sample, by `generation_config.json`: greedily where it does not say.
fn usual_sampling(generation: &Map<String, Value>) -> Sampling {
    let number = |name: &str| generation.get(name).and_then(Value::as_f64).map(|x| x as f32);
    let penalty = number("repetition_penalty").filter(|&penalty| penalty > 0.0);
    let greedy = Sampling { repetition_penalty: penalty.unwrap_or(1.0), ..Sampling::default() };
    if generation.get("do_sample").and_then(Value::as_bool) != Some(true) {
        return greedy;
    }
    let share = |name: &str| number(name).filter(|share| (0.0..=1.0).contains(share));
    let top_k = generation.get("top_k").and_then(Value::as_u64).filter(|&k| k > 0);
    Sampling {
        temperature: number("temperature").filter(|&t| t >= 0.0).unwrap_or(1.0),
        top_k: top_k.and_then(|k| usize::try_from(k).ok()),
        top_p: share("top_p").filter(|&p| p > 0.0).unwrap_or(1.0),
        min_p: share("min_p").unwrap_or(0.0),
        ..greedy
    }
}

impl Backend for EngineBackend {
    fn model(&self) -> &ModelInfo {
        &self.info
    }

    fn encode(&self, text: &str, add_special: bool) -> Result<Vec<u32>> {
        self.text.tokenizer.encode(text, add_special)
    }

    fn decode(&self, tokens: &[u32]) -> Result<String> {
        self.text.tokenizer.decode(tokens, false)
    }

    fn render(&self, conversation: &Conversation) -> Result<String> {
        let has_tools = !conversation.tools.is_empty();
        let template = self.templates[usize::from(has_tools)].as_ref().map_err(Error::clone)?;
        let mut own = self.text.conversation(conversation.messages.clone());
        own.tools.clone_from(&conversation.tools);
        own.add_generation_prompt = conversation.add_generation_prompt;
        own.extra.extend(conversation.extra.clone());
        template.render(&own)
    }

    fn submit(&self, request: Request) -> Result<Answer, Refusal> {
        request.check(self.runner.limits()).map_err(|error| Refusal::Invalid(error.to_string()))?;
        match self.runner.submit(request) {
            Ok(answer) => Ok(Answer::new(Events(answer))),
            Err(error) if error.is_busy() => Err(Refusal::Busy(error.to_string())),
            Err(error) => Err(Refusal::Failed(error.to_string())),
        }
    }

    fn constraint(&self, format: &Format) -> Result<Option<Arc<dyn Constraint>>> {
        let make = || {
            let ends = &self.info.stop_tokens;
            Grammars::of_tokenizer(&self.text.tokenizer, self.info.vocab_size, ends)
        };
        let grammars = self.grammars.get_or_init(make).as_ref().map_err(Error::clone)?;
        match format {
            Format::JsonObject => grammars.json_object(),
            Format::JsonSchema(schema) => grammars.json_schema(schema),
        }
        .map(Some)
    }

    fn embed(&self, tokens: &[u32]) -> Result<Option<Vec<f32>>> {
        embed(&*self.model, tokens).map(Some)
    }

    fn gauges(&self) -> Vec<Gauge> {
        let EngineStats {
            pages_used,
            pages,
            steps,
            recorded_steps,
            ahead_steps,
            drafted_tokens,
            accepted_tokens,
            preemptions,
            ..
        } = self.runner.stats();
        let gauge = |name, help, is_counter, value| Gauge { name, help, is_counter, value };
        vec![
            gauge(
                "genesis_cache_pages_used",
                "Pages of the cache in use.",
                false,
                pages_used as f64,
            ),
            gauge("genesis_cache_pages", "Pages of the cache.", false, pages as f64),
            gauge("genesis_engine_steps_total", "Steps of the engine.", true, steps as f64),
            gauge(
                "genesis_recorded_steps_total",
                "Steps that ran as a graph.",
                true,
                recorded_steps as f64,
            ),
            gauge(
                "genesis_ahead_steps_total",
                "Steps launched before the last one's tokens were known.",
                true,
                ahead_steps as f64,
            ),
            gauge("genesis_drafted_tokens_total", "Tokens guessed.", true, drafted_tokens as f64),
            gauge("genesis_accepted_tokens_total", "Guesses kept.", true, accepted_tokens as f64),
            gauge("genesis_preemptions_total", "Answers set back.", true, preemptions as f64),
        ]
    }
}

/// The events of an engine's answer as a stream.
struct Events(generate::Answer);

impl Stream for Events {
    type Item = Result<Event>;

    fn poll_next(mut self: Pin<&mut Self>, ctx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_event(ctx).map(|event| event.map(Ok))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn usual(generation: &Value) -> Sampling {
        usual_sampling(generation.as_object().expect("an object"))
    }

    #[test]
    fn models_are_sampled_as_their_authors_do() {
        let sampling = usual(&json!({"do_sample": true, "temperature": 0.7, "top_k": 20,
            "top_p": 0.8, "repetition_penalty": 1.1}));
        let Sampling { temperature, top_k, top_p, repetition_penalty, .. } = sampling;
        assert_eq!((temperature, top_k, top_p, repetition_penalty), (0.7, Some(20), 0.8, 1.1));
        assert_eq!(usual(&json!({"do_sample": true})).temperature, 1.0);
        assert_eq!(usual(&json!({"temperature": 0.7})).temperature, 0.0);
    }

    #[test]
    fn settings_without_sense_are_as_if_not_there() {
        let sampling =
            usual(&json!({"do_sample": true, "temperature": -1, "top_p": 7, "top_k": "a",
            "repetition_penalty": 0}));
        assert_eq!(sampling, Sampling { temperature: 1.0, ..Sampling::default() });
    }
}
