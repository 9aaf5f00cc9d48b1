//! `genesis generate`
//!
//! A file of prompts in, a line of JSON for each out, in the order of the prompts, however many are answered
//! side by side. A prompt is a line of text, or, in a file that ends in `.jsonl`, a value:
//!
//! ```text
//! "The sea is"                                            a text that goes on
//! {"prompt": "The sea is", "id": 7}                       the same; the id comes back
//! {"messages": [{"role": "user", "content": "Hello"}]}    a conversation
//! ```

mod prompts;

use std::collections::{BTreeMap, VecDeque};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use genesis::generate::{Event, FinishReason, Sampling, Usage};
use genesis::serve::{Answer, Backend};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};

use self::prompts::{Prompt, Source};
use super::answer::{Waiter, request};
use super::output::{put, warn};
use super::signals::Signals;
use super::values::positive;
use super::{Failure, Outcome, model, rates, sampling};

/// Answer a file of prompts, or time a language model.
#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    model: model::ModelArgs,
    #[command(flatten)]
    sampling: sampling::SamplingArgs,
    /// The file of prompts: lines of text, or of JSON where its name ends in .jsonl; `-` is stdin.
    #[arg(long, required_unless_present = "bench", conflicts_with = "bench")]
    prompts: Option<PathBuf>,
    /// Where answers go, as lines of JSON; stdout without it.
    #[arg(long, conflicts_with = "bench")]
    out: Option<PathBuf>,
    /// Prompts are what a user says in a conversation, and not texts that go on.
    #[arg(long, conflicts_with = "bench")]
    chat: bool,
    /// What the model is told before each conversation.
    #[arg(long, requires = "chat")]
    system: Option<String>,
    /// A string that ends an answer; may be given several times.
    #[arg(long, conflicts_with = "bench")]
    stop: Vec<String>,
    /// Prompts that are answered side by side; 16 without it, 1 with --bench.
    #[arg(long, value_parser = positive)]
    batch: Option<usize>,
    /// Print how fast prompts are read and answers written, beside what the device allows.
    #[arg(long)]
    bench: bool,
    /// Tokens of the prompts of --bench.
    #[arg(long, default_value_t = 128, value_parser = positive, requires = "bench")]
    prompt_tokens: usize,
    /// One JSON value instead of lines, of --bench.
    #[arg(long, requires = "bench")]
    json: bool,
    /// A file that rows of --bench are added to, as lines of JSON with date, commit and machine.
    #[arg(long, requires = "bench")]
    rows: Option<PathBuf>,
}

pub(super) fn run(args: &Args) -> Outcome {
    let mut wanted = args.model.clone();
    wanted.sequences = args.batch.unwrap_or(if args.bench { 1 } else { 16 });
    let Some(file) = args.prompts.as_deref().filter(|_| !args.bench) else {
        let bench = rates::Bench {
            sequences: wanted.sequences,
            prompt_tokens: args.prompt_tokens,
            new_tokens: args.sampling.max_tokens.unwrap_or(128),
            cache_mib: wanted.cache_mib,
            json: args.json,
            rows: args.rows.clone(),
        };
        let loaded = model::open(&wanted)?;
        let sampling = args.sampling.over(&loaded.backend.model().sampling);
        return rates::run(&loaded, &bench, &sampling);
    };
    let found = model::find(&wanted)?;
    // What is wrong with a prompt is said before a model is loaded for minutes.
    let prompts = prompts::read(file)?;
    let loaded = model::open_found(&wanted, &found)?;
    let signals = Signals::take()?;
    let backend = &*loaded.backend;
    let job = Job { args, backend, sampling: args.sampling.over(&backend.model().sampling) };
    let ended = job.answer(prompts, wanted.sequences, signals.stop());
    ended?;
    signals.status().map_or(Ok(()), |status| Err(Failure::Stopped(status)))
}

/// Prompts that are being answered.
struct Job<'a> {
    args: &'a Args,
    backend: &'a dyn Backend,
    sampling: Sampling,
}

/// A prompt that is being answered, and what there is of the answer.
struct Open {
    index: usize,
    prompt: Prompt,
    text: String,
}

impl Job<'_> {
    fn answer(&self, prompts: Vec<Prompt>, batch: usize, stop: &AtomicBool) -> Outcome {
        let waiter = Waiter::new()?;
        let mut out = Out::open(self.args.out.as_deref(), prompts.len())?;
        let mut waiting: VecDeque<(usize, Prompt)> = prompts.into_iter().enumerate().collect();
        let mut answers: Vec<Option<Answer>> =
            (0..batch.min(waiting.len())).map(|_| None).collect();
        let mut open: Vec<Option<Open>> = answers.iter().map(|_| None).collect();
        loop {
            for (answer, open) in answers.iter_mut().zip(&mut open) {
                if open.is_none()
                    && let Some((index, prompt)) = waiting.pop_front()
                {
                    *answer = Some(self.begin(index, &prompt)?);
                    *open = Some(Open { index, prompt, text: String::new() });
                }
            }
            if open.iter().all(Option::is_none) {
                return out.end();
            }
            let Some((place, event)) = waiter.next_of(&mut answers, stop)? else {
                return out.end();
            };
            let Some(at) = open.get_mut(place) else { continue };
            if let Some(open) = at {
                open.text.push_str(&event.text);
            }
            if event.finish.is_some()
                && let Some(open) = at.take()
            {
                answers[place] = None;
                out.add(open.index, line(open, &event))?;
            }
        }
    }

    fn begin(&self, index: usize, prompt: &Prompt) -> Result<Answer, Failure> {
        let tokens = prompt.tokens(self.backend, self.args.chat, self.args.system.as_deref());
        let named = |failure| match failure {
            Failure::Message(why) => Failure::Message(format!("prompt {}: {why}", index + 1)),
            other => other,
        };
        let most = prompt.max_tokens.or(self.args.sampling.max_tokens);
        let request = tokens.and_then(|tokens| request(self.backend, tokens, &self.sampling, most));
        let mut request = request.map_err(named)?;
        request.stop.clone_from(&self.args.stop);
        self.backend.submit(request).map_err(|error| named(error.into()))
    }
}

/// An answer as a line of the output.
fn line(open: Open, last: &Event) -> Value {
    let Usage { prompt_tokens, cached_tokens, completion_tokens } = last.usage;
    let mut line = serde_json::Map::new();
    line.insert("index".to_owned(), open.index.into());
    if let Some(id) = open.prompt.id {
        line.insert("id".to_owned(), id);
    }
    match open.prompt.source {
        Source::Text(text) => line.insert("prompt".to_owned(), text.into()),
        Source::Messages(messages) => line.insert("messages".to_owned(), messages.into()),
    };
    line.insert("text".to_owned(), open.text.into());
    let finish = if last.finish == Some(FinishReason::Length) { "length" } else { "stop" };
    line.insert("finish_reason".to_owned(), finish.into());
    let usage = json!({
        "prompt_tokens": prompt_tokens,
        "cached_tokens": cached_tokens,
        "completion_tokens": completion_tokens,
    });
    line.insert("usage".to_owned(), usage);
    Value::Object(line)
}

/// Lines in the order of their prompts.
struct Out {
    file: Option<(std::fs::File, PathBuf)>,
    /// Answers whose turn has not come.
    early: BTreeMap<usize, Value>,
    next: usize,
    bar: Option<ProgressBar>,
}

impl Out {
    fn open(path: Option<&Path>, prompts: usize) -> Result<Out, Failure> {
        let Some(path) = path else {
            return Ok(Out { file: None, early: BTreeMap::new(), next: 0, bar: None });
        };
        let file = std::fs::File::create(path).map_err(|error| {
            Failure::Message(format!("can't write {}: {error}", path.display()))
        })?;
        // It draws on stderr, and only on a terminal.
        let bar = ProgressBar::new(prompts as u64);
        let style = ProgressStyle::with_template("{bar:40} {pos} of {len}, {eta} left");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        let file = Some((file, path.to_owned()));
        Ok(Out { file, early: BTreeMap::new(), next: 0, bar: Some(bar) })
    }

    fn add(&mut self, index: usize, line: Value) -> Outcome {
        self.early.insert(index, line);
        if let Some(bar) = &self.bar {
            bar.inc(1);
        }
        while let Some(line) = self.early.remove(&self.next) {
            self.next += 1;
            match &mut self.file {
                None => put(format_args!("{line}\n"))?,
                Some((file, path)) => writeln!(file, "{line}").map_err(|error| {
                    Failure::Message(format!("can't write {}: {error}", path.display()))
                })?,
            }
        }
        Ok(())
    }

    /// Says what became of the answers.
    fn end(self) -> Outcome {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        if let Some((_, path)) = &self.file {
            warn(format_args!("{} answers in {}", self.next, path.display()));
        }
        Ok(())
    }
}
