//! GGUF files by code: the small models that tests load and damage.
//!
//! ```text
//! GgufWriter::default()
//!     .text("general.architecture", "llama")
//!     .count("llama.block_count", 1)
//!     .tensor("output_norm.weight", &[256], GgmlType::F32, &bytes)
//!     .bytes()
//! ```
//!
//! # Source
//! The format's description in ggml's repository, `docs/gguf.md`, and `ggml-common.h` for blocks.

use genesis::data::SampleRng;
use genesis::io::GgmlType;
use half::f16;

/// Where tensors may start.
const ALIGNMENT: usize = 32;

/// A file of version 3 in the making.
#[derive(Clone, Debug, Default)]
pub struct GgufWriter {
    keys: Vec<Vec<u8>>,
    tensors: Vec<Vec<u8>>,
    data: Vec<u8>,
}

impl GgufWriter {
    /// Adds a string of the metadata.
    #[must_use]
    pub fn text(self, key: &str, value: &str) -> GgufWriter {
        self.key(key, 8, &text(value))
    }

    /// Adds a u32 of the metadata.
    #[must_use]
    pub fn count(self, key: &str, value: usize) -> GgufWriter {
        self.key(key, 4, &(value as u32).to_le_bytes())
    }

    /// Adds an f32 of the metadata.
    #[must_use]
    pub fn float(self, key: &str, value: f32) -> GgufWriter {
        self.key(key, 6, &value.to_le_bytes())
    }

    /// Adds a list of strings to the metadata.
    #[must_use]
    pub fn texts(self, key: &str, values: &[&str]) -> GgufWriter {
        let bytes: Vec<u8> = values.iter().flat_map(|value| text(value)).collect();
        self.list(key, 8, values.len(), &bytes)
    }

    /// Adds a list of f32 to the metadata.
    #[must_use]
    pub fn floats(self, key: &str, values: &[f32]) -> GgufWriter {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.list(key, 6, values.len(), &bytes)
    }

    /// Adds a list of i32 to the metadata.
    #[must_use]
    pub fn integers(self, key: &str, values: &[i32]) -> GgufWriter {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.list(key, 5, values.len(), &bytes)
    }

    fn list(self, key: &str, ty: u32, len: usize, bytes: &[u8]) -> GgufWriter {
        let len = (len as u64).to_le_bytes();
        self.key(key, 9, &[&ty.to_le_bytes()[..], &len, bytes].concat())
    }

    fn key(mut self, key: &str, ty: u32, value: &[u8]) -> GgufWriter {
        self.keys.push([&text(key), &ty.to_le_bytes()[..], value].concat());
        self
    }

    /// Adds a tensor of this shape, the outermost extent first.
    ///
    /// # Panics
    /// If it is of a type that [`random_blocks`] does not make.
    #[must_use]
    pub fn tensor(mut self, name: &str, shape: &[usize], ty: GgmlType, bytes: &[u8]) -> GgufWriter {
        let extents = shape.iter().rev().flat_map(|&extent| (extent as u64).to_le_bytes());
        let axes = (shape.len() as u32).to_le_bytes();
        let offset = (self.data.len() as u64).to_le_bytes();
        let number = form(ty).number.to_le_bytes();
        let extents: Vec<u8> = extents.collect();
        self.tensors.push([&text(name), &axes[..], &extents, &number, &offset].concat());
        self.data.extend(bytes);
        self.data.resize(self.data.len().next_multiple_of(ALIGNMENT), 0);
        self
    }

    /// What stands before the tensors' data.
    pub fn header(&self) -> Vec<u8> {
        let mut bytes = b"GGUF".to_vec();
        bytes.extend(3u32.to_le_bytes());
        bytes.extend((self.tensors.len() as u64).to_le_bytes());
        bytes.extend((self.keys.len() as u64).to_le_bytes());
        bytes.extend(self.keys.concat());
        bytes.extend(self.tensors.concat());
        bytes.resize(bytes.len().next_multiple_of(ALIGNMENT), 0);
        bytes
    }

    /// The file.
    pub fn bytes(&self) -> Vec<u8> {
        [self.header(), self.data.clone()].concat()
    }
}

fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat()
}

/// A type's number in files, and where the f16 of a block stand, with numbers that make values of about 0.05.
struct Form {
    ty: GgmlType,
    number: u32,
    scales: &'static [(usize, f32)],
}

const FORMS: [Form; 9] = [
    Form { ty: GgmlType::F32, number: 0, scales: &[] },
    Form { ty: GgmlType::Q4_0, number: 2, scales: &[(0, 0.01)] },
    Form { ty: GgmlType::Q4_1, number: 3, scales: &[(0, 0.01), (2, -0.075)] },
    Form { ty: GgmlType::Q5_0, number: 6, scales: &[(0, 0.005)] },
    Form { ty: GgmlType::Q5_1, number: 7, scales: &[(0, 0.005), (2, -0.078)] },
    Form { ty: GgmlType::Q8_0, number: 8, scales: &[(0, 0.0006)] },
    Form { ty: GgmlType::Q4_K, number: 12, scales: &[(0, 0.0003), (2, 0.0022)] },
    Form { ty: GgmlType::Q5_K, number: 13, scales: &[(0, 0.00015), (2, 0.0022)] },
    Form { ty: GgmlType::Q6_K, number: 14, scales: &[(208, 0.00002)] },
];

fn form(ty: GgmlType) -> &'static Form {
    FORMS.iter().find(|form| form.ty == ty).expect("a type of the table")
}

/// The bytes of so many elements: random codes below scales that make values of about 0.05 in size.
///
/// # Panics
/// If the elements are no whole blocks, or the type is none of F32 and those that products take.
pub fn random_blocks(ty: GgmlType, elements: usize, rng: &mut SampleRng) -> Vec<u8> {
    if ty == GgmlType::F32 {
        let mut number = || (rng.uniform() as f32 - 0.5) / 5.0;
        return (0..elements).flat_map(|_| number().to_le_bytes()).collect();
    }
    let count = ty.bytes(elements).expect("whole blocks");
    let mut bytes: Vec<u8> = (0..count).map(|_| rng.next_u64() as u8).collect();
    for block in bytes.chunks_exact_mut(ty.type_size()) {
        let factor = rng.uniform() as f32 + 0.5;
        for &(at, scale) in form(ty).scales {
            block[at..at + 2].copy_from_slice(&f16::from_f32(scale * factor).to_le_bytes());
        }
    }
    bytes
}

/// A model with random weights, every product of which is of one type.
#[derive(Clone, Copy, Debug)]
pub struct TinyModel {
    /// How its products are stored.
    pub ty: GgmlType,
    /// What rows of most products have.
    pub channels: usize,
    /// What rows of the last product of a feed-forward layer have.
    pub hidden: usize,
    /// Tokens of the vocabulary.
    pub vocabulary: usize,
    /// Feed-forward layers of each layer: 0 for a Llama, more for a Qwen3 with experts.
    pub experts: usize,
}

/// Its heads: of queries, and of keys and values.
const HEADS: [usize; 2] = [4, 2];

impl TinyModel {
    /// The names and shapes of its tensors: one layer, and a head of its own.
    pub fn shapes(&self) -> Vec<(String, Vec<usize>)> {
        let TinyModel { channels, hidden, vocabulary, experts, .. } = *self;
        let [queries, keys] = HEADS.map(|heads| heads * (channels / HEADS[0]));
        let mut all = Vec::new();
        let mut add = |name: &str, shape: &[usize]| {
            all.push((format!("{name}.weight"), shape.to_vec()));
        };
        add("token_embd", &[vocabulary, channels]);
        add("output", &[vocabulary, channels]);
        for norm in ["output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"] {
            add(norm, &[channels]);
        }
        add("blk.0.attn_q", &[queries, channels]);
        add("blk.0.attn_k", &[keys, channels]);
        add("blk.0.attn_v", &[keys, channels]);
        add("blk.0.attn_output", &[channels, queries]);
        for (part, m, k) in
            [("gate", hidden, channels), ("up", hidden, channels), ("down", channels, hidden)]
        {
            match experts {
                0 => add(&format!("blk.0.ffn_{part}"), &[m, k]),
                experts => add(&format!("blk.0.ffn_{part}_exps"), &[experts, m, k]),
            }
        }
        if experts > 0 {
            add("blk.0.ffn_gate_inp", &[experts, channels]);
            add("blk.0.attn_q_norm", &[channels / HEADS[0]]);
            add("blk.0.attn_k_norm", &[channels / HEADS[0]]);
        }
        all
    }

    /// A file with its settings and random tensors of these shapes; those of one axis are f32.
    pub fn file(&self, shapes: &[(String, Vec<usize>)]) -> GgufWriter {
        let mut rng = SampleRng::new(9);
        let settings = self.settings(if self.experts > 0 { "qwen3moe" } else { "llama" });
        shapes.iter().fold(settings, |file, (name, shape)| {
            let ty = if shape.len() > 1 { self.ty } else { GgmlType::F32 };
            let bytes = random_blocks(ty, shape.iter().product(), &mut rng);
            file.tensor(name, shape, ty, &bytes)
        })
    }

    fn settings(&self, architecture: &str) -> GgufWriter {
        let key = |key: &str| format!("{architecture}.{key}");
        let file = GgufWriter::default()
            .text("general.architecture", architecture)
            .count(&key("block_count"), 1)
            .count(&key("context_length"), 64)
            .count(&key("embedding_length"), self.channels)
            .count(&key("feed_forward_length"), self.hidden)
            .count(&key("attention.head_count"), HEADS[0])
            .count(&key("attention.head_count_kv"), HEADS[1])
            .float(&key("attention.layer_norm_rms_epsilon"), 1e-6)
            .float(&key("rope.freq_base"), 1e4)
            .count("tokenizer.ggml.eos_token_id", 1);
        match self.experts {
            0 => file,
            experts => file
                .count(&key("expert_count"), experts)
                .count(&key("expert_used_count"), 2)
                .count(&key("expert_feed_forward_length"), self.hidden),
        }
    }
}
