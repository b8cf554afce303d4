"""What a token selection of one's own would drop, among the recorded tokens of a study, before any training.

The records are a sample of each mini-batch in which rare tokens are frequent: a threshold that the function
computes, such as a quantile, is one of these tokens. Counts are weighted, and stand for all tokens.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from rich.console import Console
from rich.text import Text

from stapo.core.methods import METHODS, Method
from stapo.core.update import select
from stapo.suite.analysis.artefacts import Artefacts
from stapo.suite.analysis.tables.cases import context_of
from stapo.suite.operations.status import table_of
from stapo.suite.study import Study, StudyError
from stapo.suite.study.files import sha256_of
from stapo.suite.study.functions import module_path, named, selection_arguments
from stapo.suite.text import visible
from stapo.suite.training.selections import with_selection

EXAMPLES = 10
GROUPS = ("A > 0, rare", "A > 0, other", "A < 0, rare", "A < 0, other")
"""Rare is a probability below the paper's tau_p."""
HEADINGS = ("tokens", "recorded", "dropped", "in the mini-batches, about")
NOTE = "; thresholds that the function computes are those of the sample, not of the mini-batch."


def preview(reference: str, study: Study, console: Console) -> None:
    """Print how many recorded tokens a selection drops, by sign of A and probability, and ten examples.

    The module of `FILE.py:function` is executed; the trainings of the study are finished.
    """
    if ":" not in reference:
        raise StudyError([f"{reference}: expected FILE.py:function"])
    method = replace(
        METHODS["justrl"],
        title=named(reference),
        selection=reference,
        selection_sha256=sha256_of(module_path(reference)),
        selection_args=selection_arguments(reference, {}),
    )
    artefacts, frames = Artefacts(study), []
    tau_p = float(METHODS["stapo"].args["tau_p"])
    for run in study.runs():
        for step, frame in artefacts.tokens(run).groupby("step"):
            gone = ~_kept(method, frame, int(str(step)))
            sign = np.where(frame["advantage"] > 0, "A > 0", "A < 0")
            kind = np.where(frame["probability"] < tau_p, ", rare", ", other")
            frames.append(frame.assign(gone=gone, group=np.char.add(sign, kind)))
    if not frames:
        raise StudyError([f"{study.name}: no recorded tokens; see training.token_records_mb"])
    tokens = pd.concat(frames, ignore_index=True)
    table = table_of(f"{method.title}, on the recorded tokens of {study.name}", *HEADINGS)
    for name in GROUPS:
        group = tokens[(tokens["group"] == name) & (tokens["advantage"] != 0)]
        gone, whole = group["weight"][group["gone"]].sum(), group["weight"].sum()
        share = f"{100 * gone / whole if whole else 0:.3g} %"
        table.add_row(name, str(len(group)), share, f"{gone:.0f} of {whole:.0f}")
    console.print(table)
    dropped = tokens[tokens["gone"]]
    for record in dropped.sample(min(EXAMPLES, len(dropped)), random_state=0).to_dict("records"):
        console.print(Text(_line(record)))
    console.print(Text(f"{len(dropped)} recorded tokens are dropped{NOTE}"))


def _kept(method: Method, frame: Any, step: int) -> Any:
    """Return which tokens of a step a selection keeps, (n,) bool, from the table of the recorded ones."""
    responses = frame.groupby(["prompt", "response"])
    rows, columns = responses.ngroup().to_numpy(copy=True), responses.cumcount().to_numpy(copy=True)
    shape = rows.max() + 1, columns.max() + 1
    mask = torch.zeros(shape, dtype=torch.bool)
    mask[rows, columns] = True
    logps, entropies = torch.zeros(shape), torch.zeros(shape)
    values = np.log(np.maximum(frame["probability"], np.finfo(np.float32).tiny)), frame["entropy"]
    for table, given in zip((logps, entropies), values, strict=True):
        table[rows, columns] = torch.tensor(given.to_numpy(), dtype=torch.float32)
    advantages = torch.zeros(shape[0])
    advantages[rows] = torch.tensor(frame["advantage"].to_numpy(), dtype=torch.float32)
    try:
        keep = select(with_selection(method), logps, entropies, advantages, mask, step, step)
    except TypeError as error:
        raise StudyError([str(error)]) from error
    return keep[rows, columns].numpy()


def _line(record: Any) -> str:
    numbers = f"p {record['probability']:.4f}, entropy {record['entropy']:.3f}, A {record['advantage']:+.2f}"
    return f"{numbers}: {visible(context_of(record['before'], record['token'], record['after']))}"
