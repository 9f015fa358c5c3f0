"""Augmentation policies: every operation, and its frequency, as in the source."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, ImageFilter
from torchvision.transforms import ColorJitter, v2
from torchvision.transforms import functional as torchvision_functional
from torchvision.transforms.autoaugment import AutoAugment, _apply_op

from tests.cases import every_case
from tests.images.sources import MEAN, Pixels, augment, big_vision_operation, photo, timm_operation
from vitral import plugins
from vitral.errors import PluginError, RecipeError
from vitral.images import pillow_operations
from vitral.images.augment import Augmentation
from vitral.images.pillow_operations import Colour
from vitral.images.policies import GREY, POLICIES, Policy, apply_policy, check_policy, jitter
from vitral.training.settings.headers import list_recipes
from vitral.training.settings.recipe import load_recipe

PLAIN = ("AutoContrast", "Equalize", "Invert", "Posterize", "Solarize", "SolarizeAdd")
ENHANCING = ("Color", "Contrast", "Brightness", "Sharpness")
MOVING = ("Rotate", "ShearX", "ShearY", "TranslateX", "TranslateY")
BILINEAR, BICUBIC = Image.Resampling.BILINEAR, Image.Resampling.BICUBIC
DRAWS = 3000  # of which an operation of one in thirty is seen a hundred times


def published() -> list[Augmentation]:
    """Return what differs in the policies of the recipes that come with Vitral."""
    found = (load_recipe(name).augmentation for name in list_recipes())
    names = ("policy", "operations", "magnitude", "magnitude_std", "interpolation")
    kinds = {tuple(getattr(how, name) for name in names) for how in found if how and how.policy != "none"}
    return [Augmentation(**dict(zip(names, kind, strict=True))) for kind in sorted(kinds)]


PUBLISHED = published()
BIG_VISION = sorted({how.magnitude for how in PUBLISHED if how.policy == "big-vision-randaugment"})
TIMM = sorted({how.magnitude for how in PUBLISHED if how.policy == "timm-randaugment"})


def views(image: Pixels, settings: Augmentation, draws: int = DRAWS, fill: Colour = GREY) -> Iterator[Pixels]:
    rng = np.random.default_rng(5)
    return (apply_policy(image, settings, rng, fill)[0] for _ in range(draws))


def close(one: Pixels, other: Pixels) -> bool:
    """Tell whether two images are the same up to the rounding of sums, or of a position between two pixels."""
    gaps = np.abs(one.astype(int) - other)
    return bool((gaps > 0).mean() < 0.03 or ((gaps > 0).mean() < 0.1 and gaps.max() < 6))


def shares(
    drawn: Iterator[Pixels], expected: list[tuple[str, Pixels]], same: Callable[[Any, Any], bool] = np.array_equal
) -> Counter[str]:
    """Return how often each of the expected images occurred, by name; every image must be one of them."""
    by_content: dict[bytes, str] = {}
    for name, image in reversed(expected):
        by_content[image.tobytes()] = name
    counts: Counter[str] = Counter()
    for image in drawn:
        content = image.tobytes()
        if content not in by_content:
            by_content[content] = next((name for name, other in expected if same(image, other)), "unknown")
        counts[by_content[content]] += 1
    return counts


def held(counts: Counter[str], probabilities: dict[str, float], expected: list[tuple[str, Pixels]]) -> None:
    """Check that what was drawn is what should be, each as often as it should, within five standard deviations.

    Names that give the same image count as one; those of one operation that no other shares, also all together.
    """
    groups: dict[bytes, list[str]] = {}
    for name, image in expected:
        groups.setdefault(image.tobytes(), []).append(name)
    total = sum(counts.values())
    assert sum(probabilities.values()) == pytest.approx(1.0)
    assert set(counts) <= {names[0] for names in groups.values()}, counts["unknown"]
    together: dict[str, list[list[str]]] = {}
    for names in groups.values():
        operations = {name.split()[0] for name in names}
        together.setdefault(operations.pop() if len(operations) == 1 else names[0], []).append(names)
    for parts in ([names] for names in groups.values()), together.values():
        for part in parts:
            share = sum(probabilities[name] for names in part for name in names)
            count = sum(counts[names[0]] for names in part)
            assert abs(count - total * share) <= 5 * (total * share * (1 - share)) ** 0.5 + 1, part[0]


def test_the_recipes_name_every_randaugment_magnitude_of_their_papers() -> None:
    assert {0, 5, 10, 15, 20} <= set(BIG_VISION)
    assert (9, 0.5) in {(how.magnitude, how.magnitude_std) for how in PUBLISHED if how.policy == "timm-randaugment"}


@pytest.mark.long
@every_case("magnitude", sorted({*TIMM, 0.0, 3.0, 10.0}))
@every_case("interpolation", ["bilinear", "bicubic", "random"])
def test_timms_randaugment_draws_each_operation_of_its_source_as_often(magnitude: float, interpolation: str) -> None:
    image = photo()
    kernels = {"bilinear": (BILINEAR,), "bicubic": (BICUBIC,), "random": (BILINEAR, BICUBIC)}[interpolation]
    expected, probabilities = [("nothing", image)], {"nothing": 0.5}
    for name in (*PLAIN, *ENHANCING, *MOVING):
        for sign in (1, -1) if name not in PLAIN else (1,):
            for kernel in kernels if name in MOVING else (BILINEAR,):
                key = f"{name} {sign} {kernel}"
                expected.append((key, timm_operation(name, magnitude, sign, kernel)(image)))
                one = 0.5 / 15 / (1 if name in PLAIN else 2)
                probabilities[key] = one / (len(kernels) if name in MOVING else 1)
    assert len({image.tobytes() for _, image in expected}) > (20 if magnitude else 3)
    settings = Augmentation(
        policy="timm-randaugment",
        operations=1,
        magnitude=magnitude,
        interpolation=interpolation,  # type: ignore[arg-type]
    )
    held(shares(views(image, settings, fill=MEAN), expected), probabilities, expected)


@every_case("magnitude", sorted({*BIG_VISION, 12.0, 27.0}))
@every_case("shape", [(24, 22), (5, 230)])
def test_big_visions_randaugment_draws_each_operation_of_its_source_as_often(
    magnitude: float, shape: tuple[int, int]
) -> None:
    image = photo(*shape)
    expected, probabilities = [], {}
    for name in (*PLAIN, *ENHANCING, *MOVING):
        for sign in (1, -1) if name in MOVING else (1,):
            expected.append((f"{name} {sign}", big_vision_operation(name, magnitude, sign)(image)))
            probabilities[f"{name} {sign}"] = 1 / 16 / (2 if name in MOVING else 1)
    half = int(magnitude * 4)
    for row, column in np.ndindex(*shape):
        cut = image.copy()
        cut[max(row - half, 0) : row + half, max(column - half, 0) : column + half] = 128
        expected.append((f"Cutout {row} {column}", cut))
        probabilities[f"Cutout {row} {column}"] = 1 / 16 / (shape[0] * shape[1])
    settings = Augmentation(policy="big-vision-randaugment", operations=1, magnitude=magnitude)
    held(shares(views(image, settings), expected, close), probabilities, expected)


def test_what_big_visions_operations_do_at_published_magnitudes() -> None:
    image = photo()
    values = {
        name: [big_vision_operation(name, magnitude, 1)(image) for magnitude in (0, 5, 10, 15, 20)]
        for name in ("Posterize", "Solarize", "Brightness")
    }
    left = [len(np.unique(view & 0xFF)) for view in values["Posterize"]]
    assert left == sorted(left)  # more is left of the image, the larger the magnitude
    assert len(np.unique(values["Posterize"][0])) == 2
    assert np.array_equal(values["Posterize"][4], image)
    assert [np.array_equal(view, 255 - image) for view in values["Solarize"]] == [True, False, True, False, True]
    assert values["Brightness"][4].mean() > values["Brightness"][3].mean() > image.mean()


def test_a_randaugment_takes_as_many_operations_as_it_is_told_and_any_of_them_twice() -> None:
    image = photo(8, 8)
    names = {name: big_vision_operation(name, 20.0, 1) for name in ("Invert", "Equalize", "AutoContrast", "Brightness")}
    twice = {
        tuple(pair): names[pair[1]](names[pair[0]](image)).tobytes()
        for pair in np.array(np.meshgrid(*[list(names)] * 2)).T.reshape(-1, 2)
    }
    settings = Augmentation(policy="big-vision-randaugment", operations=2, magnitude=20.0)
    drawn = Counter(view.tobytes() for view in views(image, settings))
    assert set(twice.values()) <= set(drawn)
    three = Augmentation(policy="timm-randaugment", operations=3, magnitude=10.0)
    untouched = sum(np.array_equal(view, image) for view in views(image, three))
    assert abs(untouched / DRAWS - 0.125) < 0.04  # and a little, where two operations cancel


def test_timms_magnitude_varies_from_operation_to_operation_and_is_cut_off_at_ten() -> None:
    image = np.full(
        (4, 4, 3), 60, dtype=np.uint8
    )  # of which only brightness, inversion and addition leave something else
    settings = Augmentation(policy="timm-randaugment", operations=1, magnitude=9.0, magnitude_std=0.5)
    added = Counter(
        int(view[0, 0, 0]) - 60 for view in views(image, settings, 30_000, (60, 60, 60)) if 60 < view[0, 0, 0] <= 170
    )
    added = Counter({value: count for value, count in added.items() if value > 60})  # brightness goes no higher
    most = added[110]
    assert max(added) == 110
    strengths = np.random.default_rng(0).normal(9, 0.5, 100_000).clip(0, 10)
    expected = (strengths * 11).astype(int)
    total = sum(added.values())
    assert abs(total - 1000) < 160
    assert abs(most / total - (expected == 110).mean()) < 0.03
    assert abs(sum(value * count for value, count in added.items()) / total - expected.mean()) < 1.0


@every_case("how", PUBLISHED, ids=lambda how: f"{how.policy}-{how.magnitude:g}-{how.interpolation}")
def test_two_thousand_draws_of_every_published_policy(how: Augmentation) -> None:
    rng = np.random.default_rng(0)
    image = photo(20, 18)
    for _ in range(2000):  # each pair of operations several times
        view, _ = apply_policy(image, how, rng)
        assert view.shape == image.shape
        assert view.dtype == np.uint8
    full = augment(image, how, size=(16, 16), rng=rng).pixels
    assert full.shape == (3, 16, 16)


def test_autoaugment_draws_torchvisions_policy_for_imagenet_as_often() -> None:
    image = photo()
    source = AutoAugment()
    space = source._augmentation_space(10, image.shape[:2])
    expected: list[tuple[str, Pixels]] = []
    probabilities: dict[str, float] = {}

    def follow(view: Image.Image, steps: list[Any], share: float, name: str) -> None:
        if not steps:
            probabilities[name] = share
            expected.append((name, np.asarray(view)))
            return
        (operation, probability, number), *rest = steps
        if probability < 1:
            follow(view, rest, share * (1 - probability), f"{name}-")
        magnitudes, signed = space[operation]
        strength = float(magnitudes[number]) if magnitudes.ndim else 0.0
        for sign in (1, -1) if signed else (1,):
            done = _apply_op(
                view, operation, sign * strength, torchvision_functional.InterpolationMode.BILINEAR, [128] * 3
            )
            if probability:
                follow(done, rest, share * probability / (2 if signed else 1), f"{name}{operation}{sign}")

    for number, steps in enumerate(source.policies):
        follow(Image.fromarray(image), list(steps), 1 / 25, f"{number}:")
    held(shares(views(image, Augmentation(policy="autoaugment")), expected), probabilities, expected)


def test_three_augment_turns_grey_solarises_or_blurs_like_deit_iii() -> None:
    image = photo(32, 32)
    grey = np.asarray(Image.fromarray(image).convert("L").convert("RGB"))
    solarised = np.where(image < 128, image, 255 - image)
    counts, spreads = Counter[str](), []
    for view in views(image, Augmentation(policy="three-augment")):
        kind = "grey" if np.array_equal(view, grey) else "solarised" if np.array_equal(view, solarised) else "blurred"
        counts[kind] += 1
        if kind == "blurred":
            spreads.append(view.std())
    assert all(abs(count - DRAWS / 3) < 5 * (DRAWS * 2 / 9) ** 0.5 for count in counts.values()), counts
    radii = np.linspace(0.1, 2.0, 400)
    source = [
        np.asarray(Image.fromarray(image).filter(ImageFilter.GaussianBlur(float(radius)))).std() for radius in radii
    ]
    assert kolmogorov(spreads, source) < 0.06


def test_multi_view_is_torchvisions_chain() -> None:
    image = photo(16, 16)
    torch.manual_seed(0)
    source = v2.Compose(
        [
            v2.RandomApply([v2.ColorJitter(0.8, 0.8, 0.8, 0.2)], p=0.8),
            v2.RandomGrayscale(p=0.2),
            v2.RandomApply([v2.GaussianBlur(kernel_size=7, sigma=(0.1, 2.0))]),
            v2.RandomApply([v2.RandomSolarize(threshold=128)], p=0.2),
        ]
    )
    theirs = [np.asarray(source(Image.fromarray(image))) for _ in range(DRAWS)]
    ours = list(views(image, Augmentation(policy="multi-view")))
    measures: list[Callable[[Pixels], Any]] = [
        *(np.mean, np.std, np.max),
        lambda view: np.ptp(view, axis=-1).mean(),
        lambda view: np.abs(np.diff(view.astype(int), axis=0)).mean(),  # how sharp it is
        lambda view: float(view[..., 0].mean()) - float(view[..., 2].mean()),
    ]
    for measure in measures:
        assert kolmogorov([measure(view) for view in ours], [measure(view) for view in theirs]) < 2.5 / len(ours) ** 0.5
    grey = [np.mean([np.ptp(view, axis=-1).max() == 0 for view in sample]) for sample in (ours, theirs)]
    assert grey[0] == pytest.approx(0.2, abs=5 * (0.16 / len(ours)) ** 0.5)


@every_case("shift", [-0.5, -0.2, -0.003, 0.0, 0.1, 0.37, 0.5])
def test_hues_are_torchvisions(shift: float) -> None:
    image = Image.fromarray(photo(16, 16))
    found, source = pillow_operations.hue(image, shift), torchvision_functional.adjust_hue(image, shift)
    assert np.array_equal(np.asarray(found), np.asarray(source))


@every_case("sigma", [0.1, 0.5, 1.0, 2.0])
def test_a_gaussian_blur_is_torchvisions_to_one_value(sigma: float) -> None:
    image = photo(16, 16)
    found = np.asarray(pillow_operations.gaussian_blur(Image.fromarray(image), sigma)).astype(int)
    source = np.asarray(torchvision_functional.gaussian_blur(Image.fromarray(image), [7, 7], [sigma, sigma])).astype(
        int
    )
    assert np.abs(found - source).max() <= 1
    assert (found != source).mean() < 0.002


@every_case("strength", [0.3, 0.8])
def test_jitter_is_torchvisions(strength: float) -> None:
    image = photo(8, 8)
    rng = np.random.default_rng(0)
    ours = [jitter(image, strength, rng) for _ in range(3000)]
    torch.manual_seed(0)
    source = ColorJitter(strength, strength, strength)
    theirs = [np.asarray(source(Image.fromarray(image))) for _ in range(3000)]
    for measure in (np.mean, np.std, np.min, np.max, lambda view: np.ptp(view, axis=-1).mean()):
        assert kolmogorov([measure(view) for view in ours], [measure(view) for view in theirs]) < 0.06


def kolmogorov(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Return the largest difference of two samples' distribution functions."""
    places = np.sort(np.concatenate([ours, theirs]))
    one, other = (np.searchsorted(np.sort(sample), places, side="right") / len(sample) for sample in (ours, theirs))
    return float(np.abs(one - other).max())


@every_case("policy", ["timm-randaugment", "big-vision-randaugment", "autoaugment", "three-augment", "multi-view"])
def test_a_policy_is_a_function_of_its_generator_and_leaves_everyone_elses_alone(policy: Policy) -> None:
    image = photo(40, 40)
    how = Augmentation(crop="none", policy=policy, jitter=0.3, magnitude=9.0)
    torch.manual_seed(1)
    states = torch.get_rng_state(), np.random.get_state()[1].tolist()  # type: ignore[index]
    drawn = [
        augment(image, how, size=(40, 40), rng=np.random.default_rng(seed)).pixels for seed in (0, 0, *range(1, 12))
    ]
    assert torch.equal(torch.get_rng_state(), states[0])
    assert np.random.get_state()[1].tolist() == states[1]  # type: ignore[index]
    assert torch.equal(drawn[0], drawn[1])
    assert len({view.numpy().tobytes() for view in drawn}) > 10


@every_case(
    ("made", "says"),
    [
        (lambda image: image.astype(np.float32), r"float32 \(8, 9, 3\)"),
        (lambda image: image[:, ::2], r"uint8 \(8, 5, 3\)"),
        (lambda image: (image[:4], ()), r"uint8 \(4, 9, 3\)"),
        (lambda image: image.tolist(), "a list"),
        (lambda image: None, "a NoneType"),
    ],
)
def test_a_plugins_augmentation_must_return_an_image_like_its_input(
    monkeypatch: pytest.MonkeyPatch, made: Callable[[Pixels], object], says: str
) -> None:
    monkeypatch.setattr(plugins, "registered", lambda kind: {"own": lambda image, rng: made(image)})
    with pytest.raises(PluginError, match=rf"'own' returns {says}; it must return an array of uint8 \(8, 9, 3\)"):
        apply_policy(photo(8, 9), Augmentation(policy="own"), np.random.default_rng(0))


def test_what_is_beyond_the_edge_has_the_mean_colour() -> None:
    image = np.zeros((32, 32, 3), dtype=np.uint8)
    how = Augmentation(crop="none", flip=False, policy="timm-randaugment", operations=1, magnitude=10.0)
    drawn = [
        augment(image, how, size=(32, 32), rng=np.random.default_rng(seed), fill=(10, 20, 30)).pixels
        for seed in range(60)
    ]
    assert any((view == torch.tensor([10, 20, 30]).view(3, 1, 1)).all(0).any() for view in drawn)


@every_case(
    ("override", "says"),
    [
        (("augmentation.policy=timm-randaugment", "augmentation.magnitude=11"), "from 0 to 10, not 11"),
        (("augmentation.policy=big-vision-randaugment", "augmentation.magnitude=31"), "from 0 to 30, not 31"),
        (("augmentation.policy=big-vision-randaugment", "augmentation.magnitude_std=0.5"), "magnitude_std"),
        (("augmentation.policy=randaugment",), "timm-randaugment"),
        (("augmentation.magnitude=-1",), "augmentation.magnitude"),
    ],
)
def test_a_magnitude_that_the_source_does_not_define_is_refused_in_one_line(
    override: tuple[str, ...], says: str
) -> None:
    with pytest.raises(RecipeError) as refused:
        load_recipe("scratch").changed(override)
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 300


def test_a_policy_that_there_is_not_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(ValueError, match=f"^there is no policy 'autoaugmnt'; there are {', '.join(POLICIES)}$"):
        check_policy("autoaugmnt", 9.0, 0.0)
