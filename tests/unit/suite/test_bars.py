"""Harmless warnings of Transformers are not shown, and all others are."""

import logging
from types import SimpleNamespace

from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast
from transformers.trainer_utils import align_special_tokens

from stapo.suite.bars import HARMLESS, only_ours


def test_harmless_warnings_are_filtered_by_their_words(monkeypatch):
    seen = []
    handler = logging.Handler()
    handler.emit = lambda record: seen.append(record.getMessage())
    for name in HARMLESS:
        monkeypatch.setattr(logging.getLogger(name), "handlers", [handler])
        monkeypatch.setattr(logging.getLogger(name), "filters", [])

    def warn():
        ids = SimpleNamespace(eos_token_id=5, bos_token_id=5, pad_token_id=5)
        align_special_tokens(SimpleNamespace(config=ids, generation_config=None), tokenizer)
        tokenizer.decode([0], clean_up_tokenization_spaces=True)
        for name in HARMLESS:
            logging.getLogger(name).warning("another")

    model = Tokenizer(models.BPE({"a": 0, "<e>": 1}, []))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=model, eos_token="<e>")
    warn()
    assert len(seen) == 4
    seen.clear()
    # Transformers says some things once.
    logging.getLogger("transformers.tokenization_utils_tokenizers").warning_once.cache_clear()
    only_ours()
    only_ours()
    warn()
    assert seen == ["another", "another"]
