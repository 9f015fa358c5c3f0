"""Write docs/weights.md from the table of published weights: `python -m tests.weights.write_table`."""

from pathlib import Path

from vitral.weights.named.row import LICENCES, METRICS, PublishedWeights, rows

DOCS = Path(__file__).parents[2] / "docs" / "weights.md"
HEADER = """# Published weights by name

    vitral models --weights vit-s16                              # those with the word in name, dataset or licence
    vitral finetune --data photos/ --from vit-s16@augreg-in21k   # fetched once, with progress, then in the cache
    vitral predict photo.jpg --classifier vit-b16@augreg-in21k-ft-in1k

In Python, `vitral.load("vit-s16@augreg-in21k")` and `source="vit-s16@augreg-in21k"`. A model's name alone, such as
`vit-b16`, means random weights.

- **Where files go.** Those of the Hub into its client's cache (`HF_HOME`, `HF_HUB_CACHE`), others into `vitral/weights` in
  `XDG_CACHE_HOME` or `~/.cache`. With `HF_HUB_OFFLINE=1` nothing is asked of a network; a mirror (`HF_ENDPOINT`), proxies
  and `HF_TOKEN` are those of the client.
- **Without `--from`**, `vitral finetune` chooses among them by itself ([training](training.md#which-start)).
- **Broken downloads** go on where they stopped, after a kill, too; of two processes that want one file, one fetches it.
- **Hashes.** A SHA-256 that is published is compared (the Hub has one of every large file), and a file with another is
  deleted.
- **Licences** are the publishers', in the table below and said before a download where they do not simply allow products.
  The card of a classifier that was trained from such weights names theirs. This is no legal advice.

Sizes are in units of 10^6 bytes; a file whose publisher does not say has that of its parameters. A row ends with what could
not be confirmed in a source of the authors. This page is written by `python -m tests.weights.write_table`.

| figure on ImageNet | is, in percent |
|---|---|
"""
ALLOWED = {
    "yes": "yes",
    "name the source": "yes, naming the source",
    "with terms": "yes, with terms",
    "unclear": "see its card",
    "no": "**no**",
}


def page() -> str:
    """Return the page."""
    lines = [f"| {name} | {meaning} |" for name, meaning in METRICS.items()]
    lines += ["", "| licence | in products |", "|---|---|"]
    used = {row.licence for row in rows().values()}
    lines += [f"| [{name}]({one.link}) | {ALLOWED[one.products]} |" for name, one in LICENCES.items() if name in used]
    groups: dict[str, list[PublishedWeights]] = {}
    for row in rows().values():
        groups.setdefault(row.source, []).append(row)
    for source, listed in groups.items():
        lines += [
            "",
            f"From {source}:",
            "",
            "| name | trained on | licence | MB | pixels | ImageNet | file | unverified |",
        ]
        lines += ["|---|---|---|---|---|---|---|---|", *map(_line, listed)]
    return HEADER + "\n".join(lines) + "\n"


def _line(row: PublishedWeights) -> str:
    cells = [
        f"`{row.name}`",
        row.dataset,
        row.licence,
        str(row.megabytes),
        str(row.image_size),
        row.described_score(),
        f"[{row.repository or row.file.rpartition('/')[2]}]({row.link})",
        ", ".join(row.unverified),
    ]
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    DOCS.write_text(page())
