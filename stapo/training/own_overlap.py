"""Problems of a study's own benchmarks that are also its training prompts, found before anything runs."""

from pathlib import Path

from stapo.study import Study, StudyError
from stapo.study.sources import FileData, HubData
from stapo.training.prompts import overlap, prompt_records


def check_own_overlap(study: Study) -> None:
    """Check that no problem in a file of the study's own is one of its training prompts.

    Prompts from the Hub are not at hand before the run, which counts those that are problems.

    Raises:
        StudyError: one line for each such problem, with its line in the file.
    """
    own = {name: file for name in study.evaluated() if (file := study.rows_file(name))}
    if not own or isinstance(study.data, HubData):
        return
    if isinstance(study.data, FileData):
        about = f"is also a training prompt, in {Path(study.data.file).name}; remove it from one of the files"
    else:
        about = (
            f"is also a training prompt that {study.data.builder} makes; remove it from this file"
        )
    records, _ = prompt_records(study.data, study.prompts_file())
    prompts = [record["question"] for record in records]
    errors = []
    for name, file in own.items():
        questions = {place: row["question"] for place, row in file.placed().items()}
        shared = set(overlap(prompts, questions.values()))
        errors += [
            f"benchmarks.{name}.file: {file.path.name}, {place}: {question[:60]!r} {about}"
            for place, question in questions.items()
            if question in shared
        ]
    if errors:
        raise StudyError(errors)
