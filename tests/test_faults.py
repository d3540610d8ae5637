"""Every fault of tests/support/faults.py, briefly, with a scripted recogniser."""

from pathlib import Path

import pytest

from tests.support import faults
from tests.support.fakes import ScriptedEngine
from tests.support.faults import FAULTS, inflict, stage, stopped_in_mid_word


@pytest.fixture(autouse=True)
def _briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faults, "MALFORMED", 150)


@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault != "none"])
async def test_the_others_hear_what_they_would_have_heard(fault: str, tmp_path: Path) -> None:
    async with stage(ScriptedEngine, tmp_path) as running:
        wanted = await running.talk()
        facts = await inflict(running, fault, wanted)
        assert facts["neighbours_unchanged"] == faults.NEIGHBOURS
        assert await running.talk() == wanted
        assert running.daemon.status == "ok"


async def test_a_stop_in_mid_word_delivers_every_final(tmp_path: Path) -> None:
    async with stage(ScriptedEngine, tmp_path) as running:
        facts = await stopped_in_mid_word(running)
    assert facts["finals_delivered"] == facts["finals_promised"] > 0
