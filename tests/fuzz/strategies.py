"""Scenes that nobody thought of: odd files and folders, then a command on them."""

from typing import Any

from hypothesis import strategies as st

from tests.fuzz.scene import Scene, Step

# Names that people and file systems make, and some that only an attacker does.
NAMES = st.sampled_from(
    (
        *("a", "b", "c", "1", "10", "train", "val", "test", "TRAIN", "runs", "classifier", "checkpoints", "images"),
        *(
            "two words",
            "Füchse 🦊",
            "red%1b[31m",
            "b%e9b%e9",
            "line%0abreak",
            "-dash",
            "--out",
            "[bold]",
            "{0..2}",
            "%25s",
        ),
        *("200*x", ".hidden", "~", "*", "a.b.c", "con", "<b>", "'quoted'", '"', "$HOME", "hf:me", "#", "x:y", "=", ""),
    )
)
FILES = st.sampled_from(
    (
        *("0.png", "0.PNG", "x.jpg", "x.webp", "x.gif", "x.bmp", "x.tiff", "x", "notes.txt", "train.txt", "val.txt"),
        *(
            "t.csv",
            "train.csv",
            "t.tsv",
            "t.parquet",
            "p.zip",
            "p.tar",
            "p.tar.gz",
            "p.tar.xz",
            "w.npz",
            "w.pth",
            "w.bin",
        ),
        *(
            "w.safetensors",
            "classes.txt",
            "classifier.json",
            "config.json",
            "run.json",
            "recipe.toml",
            "model.safetensors",
        ),
        *("metrics.jsonl", "dataset_info.json", "model.safetensors.index.json", "1000*9.png", "200*x.png"),
    )
)
WORDS = st.sampled_from(
    (
        *(
            "",
            "0",
            "-1",
            "1",
            "1e400",
            "nan",
            "inf",
            "none",
            "true",
            "5000*9",
            "300*x",
            "[1,2]",
            "{a=1}",
            "x=y",
            "=",
            "🦊",
        ),
        *("10m", "0s", "3h2m1s", "steps=0", "steps=5000*9", "batch_size=0", "optimizer.lr=nan", "optimizer.lr=1e30"),
        *(
            "seed=-1",
            "lr=0.1",
            "image_size=7",
            "mixing.mixup=2",
            "workers=3000",
            "objective.name=x",
            "name=[]",
            "a.b.c.d=1",
        ),
    )
)
PLACES = st.lists(st.floats(0, 1), min_size=1, max_size=6)
TEXTS = st.lists(
    st.sampled_from(
        (
            *(
                "image,label\n",
                "path,labels,split\n",
                "a/0.png,a\n",
                "a/0.png a\n",
                "b/1.png\tb\n",
                "a/0.png;a\n",
                "x,y,z\n",
            ),
            *(
                "a/0.png,a|b,train\n",
                "../../etc/passwd,a\n",
                "/dev/zero,a\n",
                ",\n",
                '"',
                "%00",
                "%ff%fe",
                "100*[",
                '{"a": 1}',
            ),
            *(
                '{"format": "vitral-classifier", "version": 1}',
                "a\nb\nc\n",
                "steps = 3\n",
                "[optimizer]\nlr = 1\n",
                "5000*9",
            ),
        )
    ),
    max_size=6,
)


def paths(files: st.SearchStrategy[str] = FILES) -> st.SearchStrategy[str]:
    """Paths of up to four parts below data/."""
    return st.tuples(st.lists(NAMES.filter(bool), max_size=3), files).map(
        lambda parts: "/".join(["data", *parts[0], parts[1] or "x"])
    )


def thing(kind: str, path: st.SearchStrategy[str], **more: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Something that is made."""
    return st.fixed_dictionaries({"kind": st.just(kind), "path": path, **more})


FOLDERS = paths(NAMES)
THINGS = st.one_of(
    thing("photos", st.just("data"), classes=st.lists(NAMES.filter(bool), min_size=1, max_size=4, unique=True)),
    thing("images", FOLDERS, count=st.integers(0, 5)),
    thing(
        "image", paths(), seed=st.integers(0, 5), format=st.sampled_from(("PNG", "JPEG", "GIF", "BMP", "WEBP", "TIFF"))
    ),
    thing("text", paths(), text=TEXTS),
    thing("folder", FOLDERS),
    thing("pipe", paths()),
    thing(
        "link",
        paths(),
        target=st.sampled_from((".", "..", "/dev/zero", "nowhere", "../..", "0.png", "/etc/passwd", "a")),
    ),
    thing(
        "archive",
        paths(st.sampled_from(("p.zip", "p.tar"))),
        members=st.lists(st.tuples(NAMES, FILES).map("/".join), min_size=1, max_size=6),
    ),
    thing("parquet", paths(st.just("t.parquet")), labels=st.sampled_from(("plain", "list", "large_list", "fixed"))),
    thing("torch", paths(st.just("w.pth")), tensor=st.sampled_from(("plain", "strided", "sparse", "meta"))),
    thing(
        "npz", paths(st.just("w.npz")), packing=st.sampled_from(("ZIP_STORED", "ZIP_DEFLATED", "ZIP_BZIP2", "ZIP_LZMA"))
    ),
    thing("backward-tar", paths(st.just("p.tar"))),
)
SPOILED = st.one_of(
    thing("flip", st.just("net/weights.safetensors"), places=PLACES, mask=st.integers(1, 255)),
    thing("flip", st.just("net/classifier.json"), places=PLACES, mask=st.integers(1, 255)),
    thing("cut", st.sampled_from(("net/weights.safetensors", "net/classifier.json")), share=st.floats(0, 1)),
    thing(
        "entry",
        st.just("net/classifier.json"),
        at=st.sampled_from(
            (
                *(["architecture"], ["architecture", "dim"], ["architecture", "depth"], ["architecture", "image_size"]),
                *(["preprocessing"], ["preprocessing", "std"], ["preprocessing", "interpolation"], ["class_names"]),
                *(
                    ["class_names", 1],
                    ["provenance"],
                    ["provenance", "notes"],
                    ["task"],
                    ["multi_label"],
                    ["version"],
                    ["format"],
                ),
            )
        ),
        value=st.sampled_from(
            ("null", "-1", "0", "1e308", "1e30", '"x"', "[]", "{}", "[[1]]", '"\\ud800"', "true", '["a"]')
        ),
    ),
)
TARGETS = st.one_of(
    st.just("data"), paths(), FOLDERS, WORDS, st.sampled_from(("digits", ".", "/dev/null", "s3://x/y.tar"))
)
OUTS = st.sampled_from(("out", "out/deep/er", "data/out", "out.png", "out.html", "300*x"))


@st.composite
def commands(draw: st.DrawFn) -> tuple[str, ...]:
    """A command line: mostly of quick commands, seldom a training run."""
    target = draw(TARGETS)
    net = draw(st.one_of(*[st.just("net")] * 6, paths(), WORDS))
    skip = draw(st.sampled_from(((), ("--skip-bad-images",))))
    json = draw(st.sampled_from(((), ("--json",))))
    reading = draw(st.sampled_from((*((),) * 8, ("--classes", "leaf"), ("--classes", "path"), ("--classes", "x"))))
    report = draw(st.sampled_from(((), ("--report", "out.html"), ("--report", "data/0.png"))))
    kind = draw(
        st.sampled_from(("check", "check", "predict", "predict", "evaluate", "explain", "convert", "finetune", "odd"))
    )
    if kind == "check":
        return "check", target, *reading, *report, *json
    if kind == "predict":
        return "predict", target, "--classifier", net, *skip, *json
    if kind == "evaluate":
        return "evaluate", "--data", target, "--classifier", net, *reading, *skip, *report, *json
    if kind == "explain":
        return "explain", target, "--classifier", net, "--out", draw(OUTS)
    if kind == "convert":
        forms = st.sampled_from(("vitral", "original", "timm", "transformers", "big_vision", "x"))
        return "convert", net, draw(OUTS), "--format", draw(forms)
    if kind == "finetune":
        changes = [part for word in draw(st.lists(WORDS, max_size=2)) for part in ("--set", word)]
        quick = ("--set", "steps=2", "--set", "batch_size=4", "--set", "workers=0", *changes)
        return "finetune", "--data", target, "--from", net, *quick, *reading, *skip, "--out", draw(OUTS)
    names = st.sampled_from(("evaluate", "check", "predict", "recipes", "models", "push", "demo2", "--help"))
    flags = st.sampled_from(
        ("--data", "--from", "--recipe", "--out", "--seed", "--top", "--image-size", "--split", "--resume")
    )
    return draw(names), *draw(st.lists(st.one_of(flags, WORDS, st.just("data")), max_size=5))


@st.composite
def scenes(draw: st.DrawFn) -> Scene:
    """A folder of odd things and one command on it."""
    made = [{"kind": "classifier", "path": "net"}]
    if draw(st.integers(0, 3)):
        made.append({"kind": "photos", "path": "data"})
    made += draw(st.lists(THINGS, max_size=5))
    if draw(st.integers(0, 3)) == 0:
        made.append(draw(SPOILED))
    return Scene((Step(draw(commands()), tuple(made)),))
