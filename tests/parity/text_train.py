"""Small tokenizers for the tests of text, trained on the texts of text_corpus.py, and their golden ids.

    python tests/parity/text_train.py

Writes tests/fixtures/text/NAME.json.gz for a byte-level BPE in Qwen's manner and for a SentencePiece-like one in
Llama's, each with `tokenizer` (the tokenizer.json), `golden` (text, ids without and with special tokens, what they
decode to) and `drawn` (ids at random and what they decode to). Ids are those of transformers.
"""

import gzip
import json
import pathlib
import random
import sys
import tempfile

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from text_corpus import texts

OUT = pathlib.Path(__file__).parent.parent / "fixtures/text"
QWEN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def byte_level():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(QWEN), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=600, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                  show_progress=False)
    tokenizer.train_from_iterator(texts(2000, seed=1), trainer)
    tokenizer.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    tokenizer.add_tokens([AddedToken("<think>", normalized=False), AddedToken("</think>", normalized=False),
                          AddedToken("naïve café", normalized=True)])
    return tokenizer


def sentence_piece():
    special = ["<unk>", "<s>", "</s>"]
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    trainer = trainers.BpeTrainer(vocab_size=800, special_tokens=special + [f"<0x{b:02X}>" for b in range(256)],
                                  limit_alphabet=200, show_progress=False)
    tokenizer.train_from_iterator([t[:200] for t in texts(2000, seed=1)], trainer)
    # Only the first three are found in texts; bytes are what the model falls back on.
    described = json.loads(tokenizer.to_str())
    described["added_tokens"] = described["added_tokens"][:3]
    tokenizer = Tokenizer.from_str(json.dumps(described))
    tokenizer.decoder = decoders.Sequence([
        decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    tokenizer.post_processor = processors.TemplateProcessing("<s> $A", "<s> $A <s> $B", [("<s>", 1)])
    return tokenizer


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    for name, made in [("byte_level", byte_level()), ("sentence_piece", sentence_piece())]:
        with tempfile.NamedTemporaryFile(suffix=".json") as file:
            made.save(file.name)
            tokenizer = PreTrainedTokenizerFast(tokenizer_file=file.name)
        golden = []
        for text in texts(500):
            if len(text) > 2000:
                text = text[:300]
            ids, special = tokenizer.encode(text, add_special_tokens=False), tokenizer.encode(text)
            golden.append([text, ids, special, tokenizer.decode(ids), tokenizer.decode(ids, skip_special_tokens=True)])
        draw = random.Random(3)
        drawn = []
        for _ in range(300):
            # Bytes more often than not, so that characters are broken.
            ids = [draw.randrange(draw.choice([270, len(tokenizer) + 5])) for _ in range(draw.randint(1, 30))]
            drawn.append([ids, tokenizer.decode(ids), tokenizer.decode(ids, skip_special_tokens=True)])
        all_of = {"tokenizer": json.loads(made.to_str()), "golden": golden, "drawn": drawn}
        path = OUT / f"{name}.json.gz"
        with gzip.GzipFile(path, "wb", mtime=0) as out:
            out.write(json.dumps(all_of, ensure_ascii=False).encode("utf-8", "surrogatepass"))
        print(name, len(tokenizer), path.stat().st_size, "bytes")


main()
