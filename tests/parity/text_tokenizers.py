"""Golden ids of published vocabularies, by transformers: FOLDER/NAME/tokenizer.json gets FOLDER/NAME/golden.jsonl.gz.

    python tests/parity/text_tokenizers.py FOLDER [COUNT]
    GENESIS_TEST_TOKENIZERS=FOLDER cargo test -p tests --test it text::published -- --nocapture

Vocabularies are large and not ours, so they are not in the repository. A folder that holds a GGUF file in the
place of tokenizer.json is read by transformers from that, and its vocabulary is written beside it as JSON. Each
line of the golden file: a text, its ids with and without special tokens, and the text that they decode to with
special tokens skipped or not; at the end ids drawn at random, which are broken text, and what they decode to.
"""

import gzip
import json
import pathlib
import random
import sys

from tokenizers import pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from text_corpus import texts


def gguf_vocabulary(path):
    """What the file says under tokenizer.ggml, in the names of text::Vocabulary."""
    from gguf import GGUFReader

    fields = GGUFReader(path).fields

    def value(key, default):
        field = fields.get("tokenizer.ggml." + key)
        return default if field is None else field.contents()

    return {
        "model": value("model", ""), "pre": value("pre", ""), "tokens": value("tokens", []),
        "merges": value("merges", []), "scores": value("scores", []), "token_types": value("token_type", []),
        "bos": value("bos_token_id", None), "eos": value("eos_token_id", None),
        "unk": value("unknown_token_id", None), "pad": value("padding_token_id", None),
        "add_bos": value("add_bos_token", False), "add_eos": value("add_eos_token", False),
        "add_space_prefix": value("add_space_prefix", True),
    }


def load(folder):
    """The tokenizer of a folder, with two corrections towards what the model was trained with.

    transformers 5 gives folders of class LlamaTokenizer another rule for spaces at the start than their
    tokenizer.json has; and of a GGUF file it forgets that SmolLM cuts
    numbers into digits, and that it has no token for what is unknown.
    """
    files = list(folder.glob("*.gguf"))
    if not files:
        config = json.loads((folder / "tokenizer_config.json").read_text())
        is_llama = config.get("tokenizer_class") == "LlamaTokenizer"
        return (PreTrainedTokenizerFast if is_llama else AutoTokenizer).from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=files[0].name)
    vocabulary = gguf_vocabulary(files[0])
    if vocabulary["pre"] == "smollm":
        tokenizer.backend_tokenizer.model.unk_token = None
        tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    (folder / "vocabulary.json").write_text(json.dumps(vocabulary))
    return tokenizer


def main():
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 3000
    for folder in sorted(path for path in pathlib.Path(sys.argv[1]).iterdir() if path.is_dir()):
        tokenizer = load(folder)
        draw = random.Random(7)
        with gzip.open(folder / "golden.jsonl.gz", "wt") as out:
            for text in texts(count):
                special = tokenizer.encode(text)
                ids = tokenizer.encode(text, add_special_tokens=False)
                out.write(json.dumps({"text": text, "special": special, "ids": ids,
                                      "decoded": tokenizer.decode(ids),
                                      "skipped": tokenizer.decode(special, skip_special_tokens=True)}) + "\n")
            for _ in range(count // 10):
                ids = [draw.randrange(len(tokenizer) + 9) for _ in range(draw.randint(1, 40))]
                out.write(json.dumps({"ids": ids, "decoded": tokenizer.decode(ids),
                                      "skipped": tokenizer.decode(ids, skip_special_tokens=True)}) + "\n")
        print(folder.name, type(tokenizer).__name__, len(tokenizer))


main()
