"""Runs the clients of other projects, and writes what came of it to docs/clients.json and docs/protocols.md.

python -m tests.support.make_client_table
"""

import json
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from pathlib import Path

from tests.support.make_protocol_tables import PAGE

RESULTS = PAGE.parent / "clients.json"
BEGIN, END = "<!-- results of clients -->\n", "<!-- end of results -->"
LIVE = "tests/test_real_clients.py"
RECORDED = "tests/test_real_clients_rest.py"
# What a test shows, by the beginning of its name.
CHECKS = {
    "test_the_sample_says_the_same": "half a minute, flushed",
    "test_twenty_recordings_say_the_same": "20 recordings",
    "test_two_at_once_say_their_own": "two at once",
    "test_a_wrong_key_is_told": "wrong key",
    "test_a_wrong_option_is_told": "wrong option",
    "test_a_sudden_end_costs_nobody_else": "killed",
}
Results = dict[str, dict[str, str]]


def outcomes() -> Results:
    """By client, or by test where it is of recordings: check → "yes", "no", or why it was skipped."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", f"--junitxml={report}", LIVE, RECORDED]
        subprocess.run(command, check=False, cwd=PAGE.parent.parent)
        cases = list(ET.parse(report).iter("testcase"))
    found: Results = {}
    for case in cases:
        test, _, about = case.attrib["name"].partition("[")
        skipped = case.find("skipped")
        failed = case.find("failure") is not None or case.find("error") is not None
        what = "no" if failed else "yes" if skipped is None else skipped.attrib["message"]
        if test in CHECKS:
            found.setdefault(about.rstrip("]"), {})[CHECKS[test]] = what
        else:
            name = test.removeprefix("test_").replace("_", " ") + (f" ({about}" if about else "")
            found.setdefault("recordings", {})[name.replace("]", ")")] = what
    return found


def renewed(text: str, results: Results) -> str:
    """The page with the tables of `results`."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    assert begin, f"{PAGE.name} has no place for the results of clients"
    assert end, f"{PAGE.name} has no end of the results of clients"
    checks = list(CHECKS.values())
    lines = [f"| live | {' | '.join(checks)} |", "|---" * (len(checks) + 1) + "|"]
    for client, found in results.items():
        if client != "recordings":
            cells = (found.get(check, "not possible") for check in checks)
            lines.append(f"| {client} | {' | '.join(cells)} |")
    lines += ["", "| recordings | the same text |", "|---|---|"]
    lines += [f"| {name} | {what} |" for name, what in results["recordings"].items()]
    table = "\n".join(lines)
    return f"{before}{begin}\n{table}\n\n{end}{after}"


if __name__ == "__main__":
    made = outcomes()
    RESULTS.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(renewed(PAGE.read_text(encoding="utf-8"), made), encoding="utf-8")
