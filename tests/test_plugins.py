"""A user's own network, data source, augmentation and optimizer take part in everything, and nothing loads them by itself."""

import hashlib
import json
import subprocess
import time
from pathlib import Path

import pytest

from tests.forks import Fork, command, script, type_command
from vitral import load_plugin
from vitral.errors import VitralError

EXAMPLES = Path(__file__).parent.parent / "docs" / "plugins"
ALL = [
    part
    for name in ("network", "data", "augmentation", "optimizer", "method")
    for part in ("--plugin", f"{EXAMPLES}/{name}.py")
]
STEPS = 100
TRAIN = [
    *("finetune", "--data", "shapes:32", "--from", "tiny-conv", "--no-baselines", "--set", f"steps={STEPS}"),
    *("--set", "batch_size=16", "--set", "optimizer.name=lion", "--set", "augmentation.policy=channel-shuffle"),
    *("--set", "augmentation.crop=none", "--set", "method.name=focal", "--set", "method.gamma=0.5"),
    *("--set", "optimizer.lr=1e-3", "--set", "checkpoint.every_steps=5", "--set", "workers=1"),
]


def vitral(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own: what a plugin registers stays for as long as a process lives."""
    return type_command(cwd, *arguments)


def refused_plugin(path: str) -> int:
    """Load a plugin, and print what is said against it."""
    try:
        load_plugin(path)
    except VitralError as error:
        print(error)
    return 0


def line(done: subprocess.CompletedProcess[str]) -> str:
    """Return the one line of an error."""
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    return done.stderr.strip().splitlines()[-1]


def weights(run: Path) -> str:
    return hashlib.sha256((run / "classifier" / "weights.safetensors").read_bytes()).hexdigest()


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of which everything that can be is of a plugin."""
    folder = tmp_path_factory.mktemp("plugins")
    done = vitral(*ALL, *TRAIN, "--out", "run", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder


def test_the_whole_way_with_plugins(trained: Path) -> None:
    scores = json.loads((trained / "run" / "evaluation.json").read_text())
    assert scores["top1"] > 0.9  # discs and rings are easy, and chance is a half
    assert "tiny-conv" in (trained / "run" / "report.html").read_text()
    recipe = (trained / "run" / "recipe.toml").read_text()
    assert 'name = "lion"' in recipe
    assert 'name = "focal"' in recipe
    assert 'policy = "channel-shuffle"' in recipe
    done = vitral(*ALL, "evaluate", "--data", "shapes:32", "--classifier", "run", "--json", cwd=trained)
    assert json.loads(done.stdout)["top1"] == scores["top1"]


def test_a_killed_run_resumes_to_the_same_bits(trained: Path) -> None:
    process = Fork(command, (*ALL, *TRAIN, "--out", "killed"), folder=trained)
    checkpoints = trained / "killed" / "checkpoints"
    while process.poll() is None and len(list(checkpoints.glob("step-*"))) < 2:
        time.sleep(0.01)
    process.kill()
    refused = line(vitral("finetune", "--out", "killed", "--resume", cwd=trained))
    assert "began with the plugin" in refused
    done = vitral(*ALL, *TRAIN, "--out", "killed", "--resume", cwd=trained)
    assert done.returncode == 0, done.stderr
    assert weights(trained / "killed") == weights(trained / "run")


def test_a_classifier_names_the_plugin_that_it_needs_and_is_refused_without(trained: Path) -> None:
    refused = line(vitral("evaluate", "--data", "digits", "--classifier", "run", cwd=trained))
    assert "needs the plugin 'network.py' for its network 'tiny-conv'" in refused
    assert "--plugin" in refused


def test_the_networks_list_has_it(trained: Path) -> None:
    assert "tiny-conv" in vitral("--plugin", f"{EXAMPLES}/network.py", "models", "tiny", cwd=trained).stdout
    assert "tiny-conv" not in vitral("models", "vit", cwd=trained).stdout


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1/0", "fails: ZeroDivisionError: division by zero (line 1)"),
        ("x = (", "fails: SyntaxError"),
        ("x = 1", "registers nothing"),
        ("import vitral\nvitral.register('colour', 'red', 1)", "'colour' cannot be registered"),
        ("import vitral\nvitral.register('data', 'a b', print)", "cannot be called 'a b'"),
        ("import vitral\nfor _ in 'ab': vitral.register('data', 'x', print)", "registered as 'x' already"),
        ("import vitral\nvitral.register('network', 'x', print)", "a Model class and a ModelConfig"),
    ],
)
def test_a_plugin_that_cannot_be_used_is_refused_in_one_line(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(text)
    done = Fork(refused_plugin, "mine.py", folder=tmp_path).ended()
    assert done.returncode == 0, done.stderr
    assert said in done.stdout
    assert "\n" not in done.stdout.strip()
    assert [path.name for path in tmp_path.iterdir()] == ["mine.py"]


def test_what_a_plugin_gives_is_checked(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import vitral\nvitral.register('augmentation', 'half', lambda image, rng: image[::2])\n"
        "vitral.register('data', 'none', lambda text: None)\nvitral.register('optimizer', 'no', lambda groups, settings: 3)"
    )
    start = ("--plugin", "mine.py", "finetune", "--from", "vit-mu16", "--image-size", "16", "--no-baselines")
    for more, said in (
        (("--data", "digits", "--set", "augmentation.policy=half"), "The augmentation 'half' returns uint8"),
        (("--data", "none"), "The data source 'none' returns a NoneType"),
        (("--data", "digits", "--set", "optimizer.name=no"), "The optimizer 'no' returns a int"),
    ):
        assert said in line(vitral(*start, *more, "--set", "steps=2", cwd=tmp_path))
    assert "--plugin needs a file" in vitral("models", "--plugin", cwd=tmp_path).stderr
    assert "cannot be read" in line(vitral("models", "--plugin", "nothing.py", cwd=tmp_path))
    assert "there is no optimizer 'lion'" in line(
        vitral("finetune", "--data", "digits", "--set", "optimizer.name=lion", cwd=tmp_path)
    )


def test_a_worker_that_is_spawned_loads_the_plugins_itself(tmp_path: Path) -> None:
    """As on systems that do not fork: there a worker gets its dataset pickled."""
    write = (
        "import pickle, sys, vitral; from vitral.data.loader import _Guarded; from vitral.data.open import open_data\n"
        f"vitral.load_plugin({str(EXAMPLES / 'data.py')!r})\n"
        "pickle.dump(_Guarded(open_data('shapes:16').splits['train'].image), open('dataset', 'wb'))"
    )
    read = "import pickle; print(pickle.load(open('dataset', 'rb'))[3].shape)"
    for code in (write, read):
        done = Fork(script, code, folder=tmp_path).ended()
        assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "(16, 16, 3)"
