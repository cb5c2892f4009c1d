"""`parse_special`: which special tokens text may spell."""

from keras_lm.tokenizers.tokenizer import strings_of


def checked(parse_special, task):
    """Return the argument of a task as a bool, None or a list of str.

    Raises:
        ValueError: if it is nothing of these, or asks for what the task cannot do.
    """
    if parse_special and not task.parses_special:
        raise ValueError(
            f"parse_special={parse_special}: {type(task).__name__} finds places in texts, in which "
            "special tokens have none: leave it out."
        )
    if isinstance(parse_special, (bool, type(None))):
        return parse_special
    return strings_of("parse_special", parse_special)


def check_known(parse_special, tokenizer):
    """Raise a ValueError if a list names what is no special token of a tokenizer."""
    for token in parse_special if isinstance(parse_special, list) else ():
        if token not in tokenizer.all_special_tokens:
            raise ValueError(
                f"parse_special names {token!r}, which is no special token of the "
                f"{type(tokenizer).__name__}: see tokenizer.with_special_tokens."
            )
