"""What `stapo clean` removes: step checkpoints of finished trainings alone."""

from rich.console import Console

from stapo.core.files import write_json
from stapo.suite.jobs import jobs_of
from stapo.suite.jobs.train import trained
from stapo.suite.locks import work_directory
from stapo.suite.operations.clean import clean
from stapo.suite.study import parse_study


def test_only_checkpoints_of_finished_trainings_go_and_only_if_asked(
    raw_study, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    study = parse_study(raw_study)
    finished, running, unfinished, absent = jobs_of(study).all("train")
    for job in (finished, running, unfinished):
        checkpoint = trained(job).parent / "checkpoint-96"
        checkpoint.mkdir(parents=True)
        (checkpoint / "model.safetensors").write_bytes(b"w" * 3_000_000)
        if job is not unfinished:
            write_json(trained(job) / "provenance.json", {"fingerprint": job.fingerprint})
    with work_directory(trained(running).parent, running.config):
        for remove, left in ((False, 3), (True, 2)):
            clean(study, Console(), remove)
            said = capsys.readouterr().out
            assert f"0.003 GB  {trained(finished).parent}/checkpoint-96" in said
            assert said.count("checkpoint-96") == 1
            assert len([*tmp_path.glob("work/train/*/checkpoint-96")]) == left
    assert not trained(absent).parent.exists()
    assert (trained(finished) / "provenance.json").exists()
