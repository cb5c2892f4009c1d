"""The README.md of a folder for Hugging Face: the hub's front matter, and how to ask."""

# The kinds of heads → the hub's name for the task, and transformers' class for it.
TASKS = {
    "": ("feature-extraction", "AutoModel"),
    "classification": ("text-classification", "AutoModelForSequenceClassification"),
    "token_classification": ("token-classification", "AutoModelForTokenClassification"),
    "question_answering": ("question-answering", "AutoModelForQuestionAnswering"),
    "multiple_choice": (None, "AutoModelForMultipleChoice"),
    "token": ("fill-mask", "AutoModelForMaskedLM"),
    "causal_lm": ("text-generation", "AutoModelForCausalLM"),
    "seq2seq_lm": (None, "AutoModelForSeq2SeqLM"),
}


def card(config, kinds, parameters, max_sequence_length, is_sentence_transformer=False):
    """Return the text of a card, in Markdown.

    Args:
        config: dict, the folder's `config.json`.
        kinds: str, the kinds of heads, see `keras_lm.converters.Converter`.
        parameters: int, their number.
        max_sequence_length: int or None.
        is_sentence_transformer: bool.
    """
    # (Transformers has the classes of pretraining for several heads.)
    tag, cls = TASKS.get(kinds, (None, config["architectures"][0]))
    library = "transformers"
    if is_sentence_transformer:
        tag, library = "sentence-similarity", "sentence-transformers"
    front = [f"library_name: {library}", *([f"pipeline_tag: {tag}"] if tag else [])]
    front += ["tags:", "- keras_lm"]
    labels = config.get("id2label", {}).values()
    facts = [
        ("Architecture", f"`{config['architectures'][0]}`"),
        ("Parameters", f"{parameters:,}"),
        ("Longest text", max_sequence_length and f"{max_sequence_length} tokens"),
        ("Labels", ", ".join(f"`{label}`" for label in labels)),
    ]
    rows = "\n".join(f"| {name} | {value} |" for name, value in facts if value)
    if is_sentence_transformer:
        code = (
            "from sentence_transformers import SentenceTransformer\n\n"
            'SentenceTransformer("FOLDER").encode(["a text"])'
        )
    else:
        code = f'from transformers import {cls}\n\n{cls}.from_pretrained("FOLDER")'
    front = "\n".join(front)
    return f"""---
{front}
---

# A model made with keras_lm

| | |
|---|---|
{rows}

## How to ask it

```python
{code}
```

## Limits

What it was trained on, and how well it does, is not in its files: add that here, with the licence
of the data and of the model that it began with, before others use it.
"""
