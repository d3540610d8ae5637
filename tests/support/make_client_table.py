"""Runs the clients of other projects, and writes what came of it to docs/clients.json and docs/protocols.md.

python -m tests.support.make_client_table
"""

import json
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from pathlib import Path

from tests.support.foreign_clients import CLIENTS
from tests.support.make_protocol_tables import PAGE

RESULTS = PAGE.parent / "clients.json"
BEGIN, END = "<!-- results of clients -->\n", "<!-- end of results -->"
EACH = "tests/test_real_clients.py"
FURTHER = "tests/test_real_clients_rest.py"
# What a test shows, by its name.
CHECKS = {
    "test_twenty_recordings_say_the_same": "20 recordings",
    "test_the_sample_says_the_same": "half a minute",
    "test_two_at_once_say_their_own": "two at once",
    "test_a_flush_ends_what_is_spoken": "flush",
    "test_a_keep_alive_keeps_the_session": "keep-alive",
    "test_a_wrong_key_is_told": "wrong key",
    "test_a_wrong_option_is_told": "wrong option",
    "test_a_sudden_end_costs_nobody_else": "killed",
}
FURTHER_CHECKS = {
    "test_wyoming_over_a_unix_socket": "`wyoming` over a Unix socket: `describe`, then two utterances, streamed",
    "test_openais_python_client[a.flac-16000-1-PCM_16]": "`openai`, FLAC: every form, events, models, errors",
    "test_openais_python_client[a.wav-48000-2-PCM_16]": "the same, 48 kHz stereo",
    "test_openais_python_client[telephone.wav-8000-1-ULAW]": "the same, μ-law by telephone",
    "test_openais_node_client": "`openai` of npm: forms, events, models, errors",
    "test_curl": "`curl -F`, large: it asks before it sends",
    "test_deepgrams_python_client": "`deepgram-sdk`: utterances, account, errors",
    "test_many_at_once_get_their_own": "three `openai` at once, each its own recording",
}
Results = dict[str, dict[str, str]]


def outcomes() -> Results:
    """By client: check → "yes", "no", or why it was skipped. Under "further" by test."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", f"--junitxml={report}", EACH, FURTHER]
        subprocess.run(command, check=False, cwd=PAGE.parent.parent)
        cases = list(ET.parse(report).iter("testcase"))
    found: Results = {name: {} for name in [*(client.name for client in CLIENTS), "further"]}
    for case in cases:
        name = case.attrib["name"]
        test, _, client = name.partition("[")
        if test in CHECKS:
            found[client.rstrip("]")][CHECKS[test]] = _outcome(case)
        else:
            found["further"][FURTHER_CHECKS[name]] = _outcome(case)
    return found


def _outcome(case: ET.Element) -> str:
    skipped = case.find("skipped")
    if case.find("failure") is not None or case.find("error") is not None:
        return "no"
    return "yes" if skipped is None else skipped.attrib["message"]


def renewed(text: str, results: Results) -> str:
    """The page with the tables of `results`."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    assert begin, f"{PAGE.name} has no place for the results of clients"
    assert end, f"{PAGE.name} has no end of the results of clients"
    checks = list(CHECKS.values())
    lines = [f"| client | {' | '.join(checks)} |", "|---" * (len(checks) + 1) + "|"]
    for client in CLIENTS:
        cells = (results[client.name].get(check, "-") for check in checks)
        lines.append(f"| {client.title} | {' | '.join(cells)} |")
    lines += ["", "| further | |", "|---|---|"]
    lines += [f"| {name} | {what} |" for name, what in results["further"].items()]
    table = "\n".join(lines)
    return f"{before}{begin}\n{table}\n\n{end}{after}"


if __name__ == "__main__":
    made = outcomes()
    RESULTS.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(renewed(PAGE.read_text(encoding="utf-8"), made), encoding="utf-8")
