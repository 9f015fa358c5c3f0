"""What `--time` asks for and what a command takes, from the start of its process to its end.

python benchmarks/time_budget.py photos/ digits --times 30 60 180 --runs 1 [--more --from vit-mu16 --image-size 32]
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from product import TOLERANCE_SECONDS, TOLERANCE_SHARE, late


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="+", help="what --data takes")
    parser.add_argument("--times", nargs="+", type=float, default=[30.0, 60.0, 180.0], help="seconds")
    parser.add_argument("--runs", type=int, default=1, help="of each")
    parser.add_argument("--more", nargs=argparse.REMAINDER, default=[], help="further flags of vitral finetune; last")
    arguments = parser.parse_args()
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    print(f"{os.cpu_count()} cores; load average before: {load}")
    print(
        f"{'data':24}{'asked':>8}{'taken':>9}{'off by':>9}  {'kept':5}{'steps':>7}{'score':>8}  last rate, of its peak"
    )
    kept = 0
    rows = [(data, seconds) for data in arguments.data for seconds in arguments.times for _ in range(arguments.runs)]
    for data, seconds in rows:
        row = measure(data, seconds, arguments.more)
        kept += row["kept"]
        print(
            f"{Path(data).name:24}{seconds:7.0f}s{row['taken']:8.1f}s{row['taken'] - seconds:+8.1f}s  "
            f"{'yes' if row['kept'] else 'NO':5}{row['steps']:7}{row['score']:>8}  {row['rate']}",
            flush=True,
        )
    print(f"{kept} of {len(rows)} within {TOLERANCE_SHARE:.0%} or {TOLERANCE_SECONDS:.0f} s, or finished before")


def measure(data: str, seconds: float, more: list[str]) -> dict[str, Any]:
    """Run one command and say what it took."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        line = [
            sys.executable,
            "-m",
            "vitral",
            "finetune",
            "--data",
            data,
            "--time",
            f"{seconds:g}s",
            "--out",
            str(out),
        ]
        started = time.monotonic()
        done = subprocess.run([*line, *more], capture_output=True, text=True, check=False)
        taken = time.monotonic() - started
        if done.returncode:
            return {"taken": taken, "kept": False, "steps": "-", "score": "-", "rate": done.stderr.splitlines()[-1]}
        history = [json.loads(text) for text in (out / "metrics.jsonl").read_text().splitlines()]
        scores = json.loads((out / "evaluation.json").read_text())
    rates = [row["learning_rate"] for row in history if "learning_rate" in row]
    steps = history[-1]["step"]
    off = taken - seconds
    early = -off > max(TOLERANCE_SECONDS, TOLERANCE_SHARE * seconds) and "as much training as" in done.stderr
    rate = f"{rates[-1] / max(max(rates), 1e-30):.4f}"
    return {
        "taken": taken,
        "kept": not late(taken, seconds) and not early,
        "steps": steps,
        "score": f"{scores['top1']:.1%}",
        "rate": rate,
    }


if __name__ == "__main__":
    main()
