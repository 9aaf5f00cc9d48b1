//! Training of language models: fine-tuning on conversations, and training from nothing on texts.
//!
//! ```text
//! files ─Document─> Encoder ─tokens, what is learned─> Corpus ─samples─> rows ─TokenBatch─> loss_sum ─> step
//! ```
//!
//! | part | what it does |
//! |---|---|
//! | [`read_documents`] | texts and lines of JSON, with errors that name line and field |
//! | [`Encoder`] | tokens by the model's tokenizer and chat template, and which of them the assistant wrote |
//! | [`Corpus`] | samples that fit a row, and which of them share one |
//! | [`TokenBatch`] | packed samples as tensors: attention looks at a token's own sample only |
//! | [`loss_sum`] | the cross entropy of what is learned |
//! | [`read_pairs`], [`PairBatch`], [`preference_losses`] | the same of pairs of answers, and the loss of DPO |
//! | [`Options`] | what a run is asked to do; a file of configuration has its fields |
//! | [`Start`] | a model that is loaded or new, with its tokenizer |
//! | [`plan_memory`] | what memory a run will need |
//! | [`run`] | the loop: accumulation, clipping, schedule, evaluation, checkpoints, going on, export |
//!
//! A step's loss is the mean over the tokens that are learned in all of its batches, so that batches that are
//! accumulated give the gradient of one large batch, whatever their tokens are.

mod batch;
mod corpus;
mod document;
mod encoder;
mod evaluate;
mod export;
mod keeping;
mod lesson;
mod loss;
mod memory;
mod mesh;
mod options;
mod packing;
mod pair;
mod preference;
mod presets;
mod ranks;
mod rates;
mod records;
mod run;
mod saves;
mod schedule;
mod stages;
mod start;
mod step;
mod stepper;
mod turns;

pub use batch::TokenBatch;
pub use corpus::{Corpus, Sample};
pub use document::{Document, read_documents};
pub use encoder::{Encoded, Encoder, LossOn};
pub use evaluate::Evaluation;
pub use export::{export, export_checkpoint};
pub use lesson::Preferences;
pub use loss::loss_sum;
pub use memory::{MemoryPlan, plan_memory, plan_memory_of_ranks};
pub use options::{
    BaseWeights, DpoOptions, LayerKeeps, OptimizerKind, Options, Precision, SaveDtype,
};
pub use pair::{Pair, read_pairs};
pub use preference::{PairBatch, preference_losses};
pub use presets::preset_names;
pub use records::Progress;
pub use run::{Event, Outcome, Session, run};
pub use schedule::Curve;
pub use start::{Start, is_new};
pub use step::{Trained, train_step};
