"""Coverage of `make test` by package, to compare two commits.

    make coverage     # writes coverage.json
    python -m benchmarks.package_coverage coverage.json --write packages.json
    python -m benchmarks.package_coverage coverage.json --compare packages.json

`results/coverage-027efce2-quick-flows-faults.json` has the coverage of test-quick, test-flows and
test-faults at revision 027efce2; compare it with the same three groups.

With `--compare` the command ends with 1 if the coverage of a package falls by more than one
percentage point. Packages that exchanged modules count as one package, see MERGED.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console
from rich.table import Table

MERGED = {
    **dict.fromkeys(("artifacts", "code", "runs", "store", "tracking"), "experiment"),
    **dict.fromkeys(("inspection", "play", "pipeline"), "reports"),
    **dict.fromkeys(("endpoints", "templates"), "inference"),
    **dict.fromkeys(("agents", "environments", "recipes", "rewards", "tools"), "datasets"),
    "formats": "system",
}
"""Packages that have exchanged modules with another package. The value is the common name."""
ALLOWED = 1.0

Lines = Mapping[str, tuple[int, int]]
"""The numbers of covered statements and of all statements, by package: `{"rl": (512, 530)}`."""


def main() -> int:
    """Print, store or compare the coverage by package."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("report", type=Path, help="the file that `coverage json` wrote")
    parser.add_argument("--write", type=Path, metavar="FILE", help="store the packages in a file")
    parser.add_argument("--compare", type=Path, metavar="FILE", help="the packages of a commit")
    options = parser.parse_args()
    lines = by_package(json.loads(options.report.read_text()))
    if options.write:
        options.write.write_text(json.dumps(lines, indent=1, sort_keys=True) + "\n")
    before = json.loads(options.compare.read_text()) if options.compare else lines
    return compare(shares(before), shares(lines))


def by_package(report: Mapping[str, Mapping[str, Mapping[str, Mapping[str, int]]]]) -> Lines:
    """Count covered statements and all statements of each package in a coverage report."""
    covered, statements = Counter[str](), Counter[str]()
    for path, file in report["files"].items():
        parts = Path(path).parts
        package = parts[1] if parts[0] == "agentfly_core" and len(parts) > 2 else parts[0]
        covered[package] += file["summary"]["covered_lines"]
        statements[package] += file["summary"]["num_statements"]
    return {package: (covered[package], statements[package]) for package in statements}


def shares(lines: Lines) -> dict[str, float]:
    """Return the percentage of covered statements by package: `{"rl": 96.6}`.

    Packages with the same name in MERGED are one package.
    """
    covered, statements = Counter[str](), Counter[str]()
    for package, (some, every) in lines.items():
        covered[MERGED.get(package, package)] += some
        statements[MERGED.get(package, package)] += every
    return {name: 100 * covered[name] / statements[name] for name in statements if statements[name]}


def compare(before: Mapping[str, float], after: Mapping[str, float]) -> int:
    """Print both coverages of each package.

    Return 1 if the coverage of a package falls by more than a percentage point, else 0.
    """
    table = Table("package", "before", "now", "")
    fallen = {name for name in after if before.get(name, 0.0) - after[name] > ALLOWED}
    for name in sorted(after):
        earlier = f"{before[name]:.1f} %" if name in before else ""
        table.add_row(name, earlier, f"{after[name]:.1f} %", "fell" if name in fallen else "")
    Console().print(table)
    return int(bool(fallen))


if __name__ == "__main__":
    sys.exit(main())
