#!/usr/bin/env bash
# transformers 5.24.0. An empty second text makes a pair in a batch, and none alone: the same two
# texts have another number of [SEP], so other logits, by one call or the other.
# Output seen: alone [CLS] a [SEP], in a list [CLS] a [SEP] [SEP]
set -euo pipefail
folder=$(mktemp -d) && trap 'rm -rf "$folder"' EXIT && cd "$folder"
python3 -m venv env
env/bin/pip install --quiet transformers==5.24.0 tokenizers==0.23.3
env/bin/python - <<'END'
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

words = {word: i for i, word in enumerate(["[UNK]", "[CLS]", "[SEP]", "a"])}
rust = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
rust.pre_tokenizer = pre_tokenizers.Whitespace()
rust.post_processor = processors.TemplateProcessing(
    single="[CLS] $A [SEP]",
    pair="[CLS] $A [SEP] $B:1 [SEP]:1",
    special_tokens=[("[CLS]", 1), ("[SEP]", 2)],
)
tokenizer = PreTrainedTokenizerFast(tokenizer_object=rust)
alone = " ".join(tokenizer.convert_ids_to_tokens(tokenizer("a", "")["input_ids"]))
listed = " ".join(tokenizer.convert_ids_to_tokens(tokenizer(["a"], [""])["input_ids"][0]))
print(f"alone {alone}, in a list {listed}")
assert alone == "[CLS] a [SEP]" and listed == "[CLS] a [SEP] [SEP]"
END
