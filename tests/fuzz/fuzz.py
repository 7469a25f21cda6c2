"""Fuzzes one target with atheris, a coverage-guided fuzzer: `python tests/fuzz/fuzz.py csv --seconds 60`.

It writes failing inputs to out/fuzz. Add them to the target's corpus with the fix: test_corpus.py repeats them.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import atheris

_FINDINGS = Path("out/fuzz")
_INSTRUMENTED = ("components", "pipeline", "yaml", "ast")


def main() -> None:
    """Run until the time is over or an input fails; return a non-zero exit code after a failure."""
    sys.path.insert(0, str(Path(__file__).parents[2]))
    with atheris.instrument_imports(include=list(_INSTRUMENTED)):
        from tests.support.runs import fuzz_targets as targets
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", choices=targets.TARGETS)
    parser.add_argument("--seconds", type=int, default=60)
    options = parser.parse_args()
    target = targets.TARGETS[options.target]
    # The first call imports the tested modules.
    with atheris.instrument_imports(include=list(_INSTRUMENTED)):
        target(b"")
    findings = _FINDINGS / options.target
    findings.mkdir(parents=True, exist_ok=True)
    arguments = [
        f"-max_total_time={options.seconds}",
        f"-artifact_prefix={findings}/",
        "-timeout=10",
        "-rss_limit_mb=4096",
    ]
    atheris.Setup([sys.argv[0], *arguments, str(findings), str(targets.CORPUS / options.target)], target)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
