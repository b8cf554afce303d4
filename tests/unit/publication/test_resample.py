"""Responses are drawn again, whichever of the study's end tokens ended them."""

import pytest

from stapo.evaluation.engines import Prompter, Request, hf_engine, sample_seed
from stapo.models.tiny import build_model, build_tokenizer
from stapo.publication.resample import CLOSE, distances
from stapo.records.responses import AnsweredProblem
from stapo.study.schema import Decoding, Evaluation
from stapo.study.sources import TinyModel

pytestmark = pytest.mark.rounding


def test_a_response_may_have_ended_in_any_end_token(tmp_path):
    """Random weights end soon: of 21 symbols five end a response here."""
    ends = [";", ".", "=", "}"]
    model = build_model(TinyModel(builder="tiny-arithmetic", supervised_steps=1))
    model.save_pretrained(tmp_path)
    build_tokenizer().save_pretrained(tmp_path)
    prompter, decoding = Prompter(tmp_path, ends), Decoding(temperature=1.0, top_p=1.0)
    sampling = prompter.sampling(decoding, Evaluation(batch_size=1, max_response_tokens=40))
    question, ids = "chain:1+1", prompter.prompt_ids("chain:1+1")
    requests = [Request(0, n, sample_seed(7, question, "2", n), ids) for n in range(64)]
    answers = [answer for _, answer in hf_engine(str(tmp_path), sampling)(requests)]
    problem = AnsweredProblem(
        0,
        question,
        "2",
        responses=[one.text for one in answers],
        num_tokens=[one.num_tokens for one in answers],
        truncated=[one.truncated for one in answers],
        engines=["e"],
    )
    assert sum(problem.truncated) < 32
    assert max(distances(model.eval(), [problem], decoding, 7, ends)) <= CLOSE
    assert max(distances(model.eval(), [problem], decoding, 7)) > CLOSE
    assert max(distances(model.eval(), [problem], decoding, 8, ends)) > CLOSE
