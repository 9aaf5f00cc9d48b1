//! A model of bytes: its answer is a function of the prompt, so that answers which get mixed up are seen.
//!
//! It repeats what the last message says behind `say `, or else turns the prompt around. Words in the prompt
//! let it be slow, fail, or go on without an end.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use genesis::generate::{Event, FinishReason, Request, RequestId, Sampling, TokenLogprobs, Usage};
use genesis::serve::{Answer, Backend, Gauge, ModelInfo, Refusal, Sender, ServeOptions, Server};
use genesis::text::Conversation;
use genesis::{Error, Result};

/// Tokens of a prompt and its answer.
pub(super) const CONTEXT: usize = 4096;

/// Bytes are tokens, and this one ends answers.
const END: u32 = 256;

/// The model.
pub(super) struct Toy {
    info: ModelInfo,
    /// Answers that somebody waits for.
    pub(super) live: Arc<AtomicUsize>,
    has_embeddings: bool,
}

impl Toy {
    pub(super) fn new() -> Toy {
        let info = ModelInfo {
            name: "org/toy".to_owned(),
            created: 7,
            context: CONTEXT,
            vocab_size: 257,
            sampling: Sampling::default(),
            stop_tokens: vec![END],
            identity: "toy".to_owned(),
        };
        Toy { info, live: Arc::default(), has_embeddings: true }
    }

    pub(super) fn without_embeddings(mut self) -> Toy {
        self.has_embeddings = false;
        self
    }
}

/// What the model answers.
pub(super) fn answer(prompt: &str) -> String {
    match prompt.rsplit_once("say ") {
        Some((_, rest)) => rest.trim_end_matches("\nassistant: ").to_owned(),
        None => prompt.chars().rev().collect(),
    }
}

/// A conversation as the model reads it.
pub(super) fn rendered(user: &str) -> String {
    format!("user: {user}\nassistant: ")
}

impl Backend for Toy {
    fn model(&self) -> &ModelInfo {
        &self.info
    }

    fn encode(&self, text: &str, _add_special: bool) -> Result<Vec<u32>> {
        Ok(text.bytes().map(u32::from).collect())
    }

    fn decode(&self, tokens: &[u32]) -> Result<String> {
        let bytes: Vec<u8> = tokens.iter().filter_map(|&token| u8::try_from(token).ok()).collect();
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn render(&self, conversation: &Conversation) -> Result<String> {
        let mut text = String::new();
        for tool in &conversation.tools {
            text += &format!("tool: {}\n", tool["function"]["name"].as_str().unwrap_or("?"));
        }
        for message in &conversation.messages {
            let (role, content) = (&message["role"], &message["content"]);
            if role == "tool" && conversation.tools.is_empty() {
                return Err(Error::op("chat template", "there are no tools"));
            }
            let (role, content) = (role.as_str(), content.as_str());
            text += &format!("{}: {}\n", role.unwrap_or("?"), content.unwrap_or(""));
        }
        Ok(text + "assistant: ")
    }

    fn submit(&self, request: Request) -> std::result::Result<Answer, Refusal> {
        let prompt = self.decode(&request.prompt).map_err(|e| Refusal::Failed(e.to_string()))?;
        if prompt.contains("the engine is full") {
            return Err(Refusal::Busy("the engine is full".to_owned()));
        }
        let (sender, answer) = Answer::channel();
        let live = self.live.clone();
        live.fetch_add(1, Ordering::SeqCst);
        std::thread::spawn(move || {
            (0..request.samples).for_each(|sample| speak(&request, sample, &prompt, &sender));
            live.fetch_sub(1, Ordering::SeqCst);
        });
        Ok(answer)
    }

    fn embed(&self, tokens: &[u32]) -> Result<Option<Vec<f32>>> {
        let sum: u32 = tokens.iter().sum();
        Ok(self.has_embeddings.then(|| vec![tokens.len() as f32, sum as f32]))
    }

    fn gauges(&self) -> Vec<Gauge> {
        let (name, help) = ("genesis_toy_answers", "Answers of the toy.");
        let value = self.live.load(Ordering::SeqCst) as f64;
        vec![Gauge { name, help, is_counter: false, value }]
    }
}

/// Sends one answer, a byte at a time.
fn speak(request: &Request, sample: usize, prompt: &str, sender: &Sender) {
    let mut event = Event {
        id: RequestId(0),
        sample,
        token: None,
        text: String::new(),
        logprob: None,
        prompt_logprobs: Vec::new(),
        finish: None,
        error: None,
        usage: Usage { prompt_tokens: prompt.len(), cached_tokens: 2, completion_tokens: 0 },
    };
    if prompt.contains("fail") {
        event.finish = Some(FinishReason::Error);
        event.error = Some(Error::op("matmul", "the device is lost"));
        sender.send(Ok(event));
        return;
    }
    let pause = Duration::from_millis(if prompt.contains("slowly") { 20 } else { 0 });
    let mut text = answer(prompt);
    if prompt.contains("forever") {
        text = text.repeat(1_000_000 / text.len().max(1));
    }
    let stop = request.stop.iter().filter_map(|stop| text.find(stop)).min();
    text.truncate(stop.unwrap_or(text.len()));
    let mut held = Vec::new();
    for byte in text.bytes() {
        std::thread::sleep(pause);
        held.push(byte);
        // Half a character is held back.
        event.text = String::from_utf8(held.clone()).unwrap_or_default();
        if !event.text.is_empty() {
            held.clear();
        }
        event.token = Some(u32::from(byte));
        event.usage.completion_tokens += 1;
        event.logprob = request.logprobs.map(|count| logprobs(u32::from(byte), count));
        let is_last = event.usage.completion_tokens == request.max_tokens;
        event.finish = is_last.then_some(FinishReason::Length);
        if !sender.send(Ok(event.clone())) || is_last {
            return;
        }
    }
    event.text = String::new();
    (event.token, event.logprob) = (Some(END), None);
    event.finish = Some(FinishReason::Stop);
    sender.send(Ok(event));
}

fn logprobs(token: u32, count: usize) -> TokenLogprobs {
    let top = (0..count as u32).map(|rank| (token + rank, -0.5 - rank as f32)).collect();
    TokenLogprobs { token, logprob: -0.5, top }
}

/// A server of the model, and the number of answers that are being made.
pub(super) fn start(options: ServeOptions) -> (Server, Arc<AtomicUsize>) {
    let toy = Toy::new();
    let live = toy.live.clone();
    (serve(toy, options), live)
}

pub(super) fn serve(toy: Toy, options: ServeOptions) -> Server {
    let address = "127.0.0.1:0".parse().expect("an address");
    Server::start(Arc::new(toy), address, options).expect("the server starts")
}

/// Waits until a condition holds, and fails where it does not in time.
pub(super) fn eventually(what: &str, condition: impl Fn() -> bool) {
    for _ in 0..500 {
        if condition() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("not in time: {what}");
}
