//! `genesis chat`
//!
//! On a terminal it is a conversation with a prompt that is edited; from a pipe each line is one turn.
//! Ctrl-C stops the answer that is being written and keeps what there is of it. A line that begins with a
//! slash is a command, one that ends with a backslash goes on in the next, and `"""` holds lines together.

mod session;

use std::io::{BufRead, IsTerminal};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use genesis_kernel::knobs;
use rustyline::DefaultEditor;
use rustyline::error::ReadlineError;
use signal_hook::consts::SIGINT;

use self::session::{Ended, Session, Turn};
use super::output::{put, warn};
use super::{Failure, Outcome, model, sampling, say};

/// Talk with a language model.
#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    model: model::ModelArgs,
    #[command(flatten)]
    sampling: sampling::SamplingArgs,
    /// What the model is told before the conversation.
    #[arg(long)]
    system: Option<String>,
    /// Answer this, and end.
    #[arg(long)]
    prompt: Option<String>,
    /// Whether a model that can think before it answers does; as its template says without it.
    #[arg(long)]
    thinking: Option<bool>,
    /// Say behind each answer how many tokens it took, and how fast they came.
    #[arg(long)]
    stats: bool,
}

const HELP: &str = "\
/reset        begin a new conversation
/system TEXT  what the model is told before the conversation; without a text it is told nothing
/save FILE    write the conversation as JSON
/help         this list
/exit         end, as Ctrl-D and a second Ctrl-C do
A line that ends with \\ goes on in the next one; \"\"\" begins and ends a text of several lines.
Ctrl-C stops an answer.";

pub(super) fn run(args: &Args) -> Outcome {
    let loaded = model::open(&args.model)?;
    let stop = Arc::<AtomicBool>::default();
    let mut session = Session::new(loaded.backend, args.sampling.clone())?;
    session.system = args.system.clone();
    if let Some(thinking) = args.thinking {
        session.set("enable_thinking", thinking);
    }
    let chat = Chat { stop, stats: args.stats };
    if let Some(prompt) = &args.prompt {
        return chat.answer(&mut session, prompt).map(drop);
    }
    match std::io::stdin().is_terminal() {
        true => chat.converse(&mut session),
        false => chat.read(&mut session),
    }
}

/// A conversation with somebody.
struct Chat {
    /// Set by Ctrl-C while an answer is written.
    stop: Arc<AtomicBool>,
    stats: bool,
}

impl Chat {
    /// Writes the answer to a text.
    fn answer(&self, session: &mut Session, text: &str) -> Result<Ended, Failure> {
        let turn = session.ask(text, &self.stop, &mut |piece| put(piece))?;
        if !turn.ends_with_newline {
            say("")?;
        }
        if self.stats {
            warn(stats(&turn));
        }
        if turn.ended == Ended::Length {
            warn("[cut off: the answer is as long as it may be]");
        }
        Ok(turn.ended)
    }

    /// Each line of stdin is a turn, or a command.
    fn read(&self, session: &mut Session) -> Outcome {
        let mut lines = Lines::default();
        for line in std::io::stdin().lock().lines() {
            let Some(text) = lines.push(&line?) else { continue };
            if self.take(session, &text)? == Goes::End {
                return Ok(());
            }
        }
        match lines.rest() {
            Some(text) => self.take(session, &text).map(drop),
            None => Ok(()),
        }
    }

    /// A conversation at a terminal.
    fn converse(&self, session: &mut Session) -> Outcome {
        signal_hook::flag::register(SIGINT, self.stop.clone())?;
        let mut editor = DefaultEditor::new()?;
        let history = knobs::get().cache_dir.as_deref().map(|folder| folder.join("chat-history"));
        if let Some(history) = &history {
            // There is none the first time.
            let _ = editor.load_history(history);
        }
        warn(format_args!("{}: /help lists commands, Ctrl-D ends", session.model_name()));
        let ended = self.turns(session, &mut editor);
        if let Some(history) = &history {
            save_history(&mut editor, history);
        }
        ended
    }

    fn turns(&self, session: &mut Session, editor: &mut DefaultEditor) -> Outcome {
        let (mut lines, mut was_interrupted) = (Lines::default(), false);
        loop {
            match editor.readline(if lines.is_open() { ". " } else { "> " }) {
                Ok(line) => {
                    was_interrupted = false;
                    let Some(text) = lines.push(&line) else { continue };
                    if !text.trim().is_empty() {
                        // What can't be remembered was still said.
                        let _ = editor.add_history_entry(&text);
                    }
                    self.stop.store(false, Ordering::SeqCst);
                    match self.take(session, &text) {
                        Ok(Goes::On) => {}
                        Ok(Goes::End) => return Ok(()),
                        // The conversation goes on: another text may be answered.
                        Err(Failure::Message(why)) => warn(format_args!("error: {why}")),
                        Err(other) => return Err(other),
                    }
                }
                Err(ReadlineError::Interrupted) if was_interrupted => return Ok(()),
                Err(ReadlineError::Interrupted) => {
                    (lines, was_interrupted) = (Lines::default(), true);
                    warn("Ctrl-C again ends, and so does Ctrl-D");
                }
                Err(ReadlineError::Eof) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Does what a line says.
    fn take(&self, session: &mut Session, text: &str) -> Result<Goes, Failure> {
        let Some(command) = text.trim().strip_prefix('/') else {
            if !text.trim().is_empty() && self.answer(session, text)? == Ended::Stopped {
                warn("[stopped]");
            }
            return Ok(Goes::On);
        };
        let (name, rest) = command.split_once(char::is_whitespace).unwrap_or((command, ""));
        match (name, rest.trim()) {
            ("exit" | "quit", _) => return Ok(Goes::End),
            ("help", _) => warn(HELP),
            ("reset", _) => session.reset(),
            ("system", text) => {
                session.system = Some(text.to_owned()).filter(|text| !text.is_empty());
                session.reset();
            }
            ("save", "") => warn("/save needs the name of a file"),
            ("save", file) => {
                session.save(Path::new(file))?;
                warn(format_args!("saved to {file}"));
            }
            (other, _) => warn(format_args!("there is no /{other}; /help lists the commands")),
        }
        Ok(Goes::On)
    }
}

/// Whether a conversation goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Goes {
    On,
    End,
}

fn save_history(editor: &mut DefaultEditor, history: &PathBuf) {
    let folder = history.parent().map_or(Ok(()), std::fs::create_dir_all);
    if let Err(error) =
        folder.map_err(ReadlineError::from).and_then(|()| editor.save_history(history))
    {
        warn(format_args!("warning: can't write {}: {error}", history.display()));
    }
}

fn stats(turn: &Turn) -> String {
    let Turn { usage, first, rest, .. } = turn;
    let mut text = format!(
        "[{} tokens of prompt, {} of them cached; {} tokens",
        usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens
    );
    if let Some(first) = first {
        text += &format!(", the first after {:.2} s", first.as_secs_f64());
    }
    if usage.completion_tokens > 1 && !rest.is_zero() {
        let rate = (usage.completion_tokens - 1) as f64 / rest.as_secs_f64();
        text += &format!(", then {rate:.1} tokens/s");
    }
    text + "]"
}

/// Lines that are one text.
#[derive(Default)]
struct Lines {
    text: Option<String>,
    /// Between `"""` and `"""`.
    is_quoted: bool,
}

const QUOTES: &str = "\"\"\"";

impl Lines {
    fn is_open(&self) -> bool {
        self.text.is_some()
    }

    /// Adds a line, and gives the text if that was its last.
    fn push(&mut self, line: &str) -> Option<String> {
        if self.is_quoted {
            let text = self.text.get_or_insert_default();
            let (line, is_last) = match line.trim_end().strip_suffix(QUOTES) {
                Some(line) => (line, true),
                None => (line, false),
            };
            text.push_str(line);
            if is_last {
                self.is_quoted = false;
                return self.text.take().map(|text| text.trim_end_matches('\n').to_owned());
            }
            text.push('\n');
            return None;
        }
        if self.text.is_none()
            && let Some(rest) = line.trim_start().strip_prefix(QUOTES)
        {
            if let Some(whole) = rest.trim_end().strip_suffix(QUOTES) {
                return Some(whole.to_owned());
            }
            self.is_quoted = true;
            let begun = if rest.is_empty() { String::new() } else { format!("{rest}\n") };
            self.text = Some(begun);
            return None;
        }
        let mut text = self.text.take().unwrap_or_default();
        match line.strip_suffix('\\') {
            Some(line) => {
                text.push_str(line);
                text.push('\n');
                self.text = Some(text);
                None
            }
            None => Some(text + line),
        }
    }

    /// A text whose last line did not come.
    fn rest(self) -> Option<String> {
        self.text.filter(|text| !text.trim().is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(lines: &[&str]) -> Vec<String> {
        let mut joined = Lines::default();
        lines.iter().filter_map(|line| joined.push(line)).collect()
    }

    #[test]
    fn a_backslash_joins_lines() {
        assert_eq!(texts(&["a\\", "b\\", "c", "d"]), ["a\nb\nc", "d"]);
    }

    #[test]
    fn quotes_hold_lines_together() {
        assert_eq!(texts(&["\"\"\"", "a", "", "b", "\"\"\"", "c"]), ["a\n\nb", "c"]);
        assert_eq!(texts(&["\"\"\"a", "b\"\"\""]), ["a\nb"]);
        assert_eq!(texts(&["\"\"\"a\"\"\""]), ["a"]);
        assert_eq!(texts(&["\"\"\"", "a\\", "b", "\"\"\""]), ["a\\\nb"]);
    }

    #[test]
    fn what_is_left_open_is_still_said() {
        let mut lines = Lines::default();
        assert_eq!(lines.push("a\\"), None);
        assert_eq!(lines.rest().as_deref(), Some("a\n"));
        assert_eq!(Lines::default().rest(), None);
    }
}
