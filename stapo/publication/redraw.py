"""Check that tables, figures and report follow from scores and metrics."""

import io
import re
from collections.abc import Iterator

import numpy as np

from stapo import paths
from stapo.analysis.against_paper import compare
from stapo.analysis.artefacts import Artefacts
from stapo.analysis.citations import references
from stapo.analysis.comparison import main_table
from stapo.analysis.draw import image
from stapo.analysis.evidence_tables import evidence_texts
from stapo.analysis.exhibits import CHARTS
from stapo.analysis.main_tables import render
from stapo.analysis.report import render_report
from stapo.analysis.values import SCHEMA as VALUES
from stapo.analysis.values import values_csv, values_table
from stapo.publication import untrusted
from stapo.publication.folder import FILE_BYTES, Results

NUMBER = re.compile(r"-?\d+\.?\d*(?:e-?\d+)?")
COORDINATES = re.compile(
    r'(?<=\s)(?:d|x|y|width|height)="[^"]*"|translate\([^()]*\)'
    r"|(?<=\s)(?:-?[\d.]{1,24} ){2,6}(?:m|l|c|v|y|re|Td)(?=\s)|(?<=\s)(?:-?[\d.]{1,24} ){2}cm(?=\s)"
)
"""Places of an SVG, and of a PDF, whose numbers are coordinates; not colours, opacities, scales or text."""
POINTS = 0.5
"""Tolerance of coordinates, for the rounding of another machine."""
LEVELS, PIXELS = 48, 1e-4
"""Tolerance of a pixel, of 255 levels, and share of the pixels that may exceed it."""
PNG_BYTES = 2**24


def drawn_errors(results: Results) -> Iterator[str]:
    """Yield a line for each table, figure or report that does not follow from the results."""
    study, root = results.study, results.root
    artefacts = Artefacts(study, root)
    yield from _table_errors(artefacts)
    yield from _value_errors(artefacts)
    yield from _figure_errors(artefacts)
    path = paths.REPORT.format(study=study.name)
    if untrusted.read_text(root / path, FILE_BYTES) != render_report(study, root):
        yield f"{path}: does not follow from scores, responses and figures"


def _table_errors(artefacts: Artefacts) -> Iterator[str]:
    study, root = artefacts.study, artefacts.root
    for decoding in study.run.decodings:
        table = main_table(study, decoding, artefacts.scores(decoding))
        compared = compare(study, table)
        for suffix in paths.SUFFIXES:
            path = paths.MAIN_TABLE.format(study=study.name, decoding=decoding, suffix=suffix)
            if untrusted.read_text(root / path, FILE_BYTES) != render(table, suffix, compared):
                yield f"{path}: does not follow from the scores"
    for name in paths.table_names(study):
        for suffix, text in evidence_texts(artefacts, name).items():
            path = paths.TABLE.format(study=study.name, table=name, suffix=suffix)
            if untrusted.read_text(root / path, FILE_BYTES) != text:
                yield f"{path}: does not follow from what was recorded"


def _value_errors(artefacts: Artefacts) -> Iterator[str]:
    study, root = artefacts.study, artefacts.root
    expected = values_table(artefacts)
    texts, binary = (root / path for path in paths.value_paths(study))
    if untrusted.read_text(texts, FILE_BYTES) != values_csv(expected):
        yield f"{texts.relative_to(root)}: does not follow from the scores"
    rows = expected.num_rows
    # By content: other versions of the library write other bytes.
    found = untrusted.read_parquet(binary, VALUES, rows, FILE_BYTES, FILE_BYTES)
    if not found.equals(expected):
        yield f"{binary.relative_to(root)}: does not follow from the scores"
    path = paths.REFERENCES.format(study=study.name)
    if untrusted.read_text(root / path, FILE_BYTES) != references(study):
        yield f"{path}: not the references of the study"


def _figure_errors(artefacts: Artefacts) -> Iterator[str]:
    study = artefacts.study
    for name in paths.figure_names(study):
        for suffix, expected in image(CHARTS[name](artefacts)).items():
            path = paths.FIGURE.format(study=study.name, figure=name, suffix=suffix)
            with untrusted.open_regular(artefacts.root / path, PNG_BYTES) as stream:
                found = stream.read(PNG_BYTES)
            same = same_png if suffix == "png" else same_drawing
            if found != expected and not same(found, expected):
                yield f"{path}: does not follow from what was recorded"


def same_drawing(one: bytes, other: bytes) -> bool:
    """Return whether two SVG or uncompressed PDF figures differ only by the rounding of their coordinates."""
    texts = one.decode("latin-1"), other.decode("latin-1")
    if abs(len(texts[0]) - len(texts[1])) > len(texts[1]) / 10:
        return False
    shapes = [COORDINATES.sub(lambda at: NUMBER.sub("0", at[0]), text) for text in texts]
    places = [" ".join(COORDINATES.findall(text)) for text in texts]
    numbers = [[float(number) for number in NUMBER.findall(text)] for text in places]
    return shapes[0] == shapes[1] and all(
        abs(a - b) <= POINTS for a, b in zip(*numbers, strict=True)
    )


def same_png(one: bytes, other: bytes) -> bool:
    """Return whether two pictures are equal, except for few pixels such as edges of lines."""
    from PIL import Image

    # The file starts with the size; a picture with another size is not decompressed.
    if one[:33] != other[:33]:
        return False
    try:
        with Image.open(io.BytesIO(one), formats=["PNG"]) as a, Image.open(io.BytesIO(other)) as b:
            pixels = [np.asarray(picture.convert("RGB"), dtype=np.int16) for picture in (a, b)]
    except (OSError, ValueError, SyntaxError):
        return False
    off = (np.abs(pixels[0] - pixels[1]) > LEVELS).any(axis=2)
    return bool(off.mean() <= PIXELS)
