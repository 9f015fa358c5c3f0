"""Scenes that nobody thought of: odd files and folders, then a command on them."""

from typing import Any

from hypothesis import strategies as st

from tests.fuzz.scene import Scene, Step
from tests.weights.hostile_server import HUBS

QUICK = ("--set", "steps=2", "--set", "batch_size=4", "--set", "workers=0")
MADE: tuple[dict[str, Any], ...] = (
    {"kind": "classifier", "path": "net"},
    {"kind": "text", "path": "net/notes.txt", "text": ["mine"]},
    {"kind": "photos", "path": "data/train", "count": 8},
    {"kind": "photos", "path": "data/val", "count": 8},
    {"kind": "vtab", "path": "vtab"},
)
ZERO = {"kind": "link", "path": "mine.py", "target": "/dev/zero"}
HUB_DATA = ("check", "hf:me/x")

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


# The commands that write, in their quickest forms, and what of the user's they may change.
WRITERS: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (("calibrate", "--data", "data", "--classifier", "net", "--write"), ("net",)),
    (("quantize", "--data", "data", "--classifier", "net", "--write"), ("net",)),
    (("convert", "net", "out", "--format", "vitral"), ()),
    (("push", "net", "me/x"), ()),
    (("predict", "data", "--classifier", "net", "--engine", "torch", "--out", "rows.csv"), ("rows.csv.parts",)),
    (("distill", "net", "--data", "data", *QUICK, "--out", "out"), ()),
    (("finetune", "--data", "data", "--from", "net", *QUICK, "--out", "out"), ()),
    (("vtab", "net", "--data", "vtab", "--tasks", "svhn", "--test-images", "20", "--out", "out"), ()),
)
# Those that take a minute or more are drawn seldom; a whole study takes longer, and is stopped at its beginning.
SLOW_WRITERS: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (("tune", "net", "--data", "data", "--latency", "1s", "--write"), ("net",)),
    (("export", "net", "--out", "out"), ()),
)
STUDY = ("study", "data-size", "--data", "data", "--out", "out")
KINDS_OF_ACCIDENT = ("ENOSPC", "SIGINT", "SIGTERM", "SIGHUP")
VARIABLES = ("WORLD_SIZE", "RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "OMP_NUM_THREADS")
MORE_VARIABLES = ("TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS", "COLUMNS", "LINES")
SETTINGS = st.sampled_from(("", "0", "1", "2", "-1", "x", "2.5", "0x2", "٣", "5000*9", " 1 ", "²", "true"))
PLUGIN_LINES = ("raise SystemExit(0)\n", "raise GeneratorExit\n", "import sys; sys.exit(3)\n", "x = \n", "1/0\n", "")
FURTHER_PLUGIN_LINES = ("raise MemoryError\n", "import vitral\n", "%00", "raise BaseException('%1b[31m')\n")
FLAGS = (
    "--image-size",
    "--seed",
    "--top",
    "--merge",
    "--accuracy",
    "--loss",
    "--runs",
    "--layer",
    "--images",
    "--rounds",
)
SPELLED = (
    "32.9",
    "2.5",
    "0x20",
    "٣",
    "３",
    "1_0",
    "1,5",
    "inf",
    "nan",
    "none",
    "null",
    "-0",
    "+3",
    "1e3",
    "5000*9",
    "²",
)


@st.composite
def accidents(draw: st.DrawFn) -> Scene:
    """A full disk or a signal before one of a command's writes; then the same command again."""
    if draw(st.integers(0, 9)) == 0:
        signal = {"kind": draw(st.sampled_from(KINDS_OF_ACCIDENT[1:])), "call": draw(st.integers(1, 12))}
        return Scene((Step(STUDY, MADE, accident=signal), Step((*STUDY, "--plan"), writes=("out",))))
    command, writes = draw(st.sampled_from(SLOW_WRITERS if draw(st.integers(0, 19)) == 0 else WRITERS))
    befalls = {"kind": draw(st.sampled_from(KINDS_OF_ACCIDENT)), "call": draw(st.integers(1, 40))}
    hub = "sound" if command[0] == "push" else ""
    again = (*command, "--resume") if command[0] in ("finetune", "distill") else command
    first = Step(command, MADE, writes=writes, accident=befalls, hub=hub)
    return Scene((first, Step(again, writes=(*writes, "out"), hub=hub)))


@st.composite
def surroundings(draw: st.DrawFn) -> Scene:
    """A command in little memory, in a strange environment, with a strange plugin, number or Hub."""
    command, writes = draw(st.sampled_from(WRITERS))
    kind = draw(st.sampled_from(("memory", "memory", "environment", "plugin", "number", "hub")))
    if kind == "memory":
        return Scene((Step(command, MADE, writes=writes, memory=draw(st.integers(1, 600)), hub="sound"),))
    if kind == "environment":
        names = draw(st.lists(st.sampled_from((*VARIABLES, *MORE_VARIABLES)), min_size=1, max_size=3, unique=True))
        return Scene((Step(command, MADE, writes=writes, environment={name: draw(SETTINGS) for name in names}),))
    if kind == "plugin":
        lines = draw(st.lists(st.sampled_from((*PLUGIN_LINES, *FURTHER_PLUGIN_LINES)), max_size=3))
        text: dict[str, Any] = {"kind": "text", "path": "mine.py", "text": lines}
        made: dict[str, Any] = draw(st.sampled_from((text, {"kind": "pipe", "path": "mine.py"}, ZERO)))
        return Scene((Step((*command, "--plugin", "mine.py"), (*MADE, made), writes=writes),))
    if kind == "number":
        given = (draw(st.sampled_from(FLAGS)), draw(st.sampled_from(SPELLED)))
        return Scene((Step((*command, *given), MADE, writes=writes),))
    asked = draw(st.sampled_from((("predict", "data", "--classifier", "hf:me/x"), ("push", "net", "me/x"), HUB_DATA)))
    return Scene((Step(asked, MADE, hub=draw(st.sampled_from(tuple(HUBS)))),))


@st.composite
def odd_folders(draw: st.DrawFn) -> Scene:
    """A folder of odd things and one command on it."""
    made = [{"kind": "classifier", "path": "net"}]
    if draw(st.integers(0, 3)):
        made.append({"kind": "photos", "path": "data"})
    made += draw(st.lists(THINGS, max_size=5))
    if draw(st.integers(0, 3)) == 0:
        made.append(draw(SPOILED))
    return Scene((Step(draw(commands()), tuple(made)),))


@st.composite
def scenes(draw: st.DrawFn) -> Scene:
    """A folder of odd things and one command on it; or an accident, or strange surroundings."""
    which = draw(st.integers(0, 3))
    return draw((accidents(), surroundings(), odd_folders(), odd_folders())[which])
