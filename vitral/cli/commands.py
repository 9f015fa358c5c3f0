"""The list of commands: what each does, in one line, and its examples; importing it imports none of them."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Command:
    """A command as the help shows it.

    Attributes:
        line: what it does; the first line of its function's docstring says the same.
        examples: lines that can be typed, each with what it is for.
        more: what its own help says below the line.
    """

    line: str
    examples: tuple[tuple[str, str], ...]
    more: str = ""

    def help(self) -> str:
        """Return the head of the command's help."""
        return f"{self.line}\n\n{self.more}" if self.more else self.line

    def epilogue(self) -> str:
        """Return the examples as the end of the command's help."""
        return "Examples:\n" + "\n".join(f"  {command}\n      {purpose}" for command, purpose in self.examples) + "\n"


# In the order of first use, which is also the order of the list.
COMMANDS = {
    "demo": Command(
        "Run the whole pipeline on real data in minutes: pre-train, fine-tune, compare.",
        (
            ("vitral demo", "generated images, then handwritten digits; ends in a report"),
            ("vitral demo --out runs/first-demo --json", "the same elsewhere, the figures for a program"),
        ),
    ),
    "check": Command(
        "Look at every image of a dataset, or prove that a killed run resumes to the same bits.",
        (
            ("vitral check photos/", "damage, duplicates, leaks between splits"),
            ("vitral check photos/ --classifier runs/photos --report check.html", "doubtful labels too, as a page"),
            ("vitral check photos/ --strict", "status 1 if there is something to mend, for a script"),
            ("vitral check resume", "kill a run, resume it, compare every bit"),
        ),
        "With --strict it exits with status 1 if it found something to mend; 'resume' does so at any difference.",
    ),
    "finetune": Command(
        "Fine-tune a network on labelled images: classifier, scores and report in one run folder.",
        (
            ("vitral finetune --data photos/", "one sub-folder a class"),
            (
                "vitral finetune --data photos/ --from ViT-B_16.npz --plan",
                "what that would do, why, and how long it takes",
            ),
            ("vitral finetune --data photos/ --from ViT-B_16.npz --time 30m", "published weights, half an hour in all"),
            ("vitral finetune --data photos.zip --recipe scratch --set optimizer.lr=3e-4", "other settings"),
            ("vitral finetune --data photos/ --out runs/photos --resume", "go on after Ctrl-C or a crash"),
        ),
    ),
    "evaluate": Command(
        "Score a classifier on labelled images: accuracy, every class, confusion, calibration.",
        (
            ("vitral evaluate --data photos/", "the newest run, on what its training left out"),
            ("vitral evaluate --data new/ --classifier runs/photos --report scores.html", "as a page"),
        ),
        "Classes are matched by name. Of data that the classifier was trained on, only what training left out is scored.",
    ),
    "predict": Command(
        "Say what is in images, with probabilities.",
        (
            ("vitral predict holiday.jpg", "the newest run answers, and is named"),
            ("vitral predict photos/ album.zip more.csv --classifier runs/photos", "folders, archives, tables"),
            ("vitral predict photos/ --top 1 --json", "for a program"),
        ),
    ),
    "explain": Command(
        "Show where the network looked in an image.",
        (
            ("vitral explain holiday.jpg", "the newest run; draws holiday-explained.jpg"),
            ("vitral explain holiday.jpg --classifier runs/photos --out explained.png", "a certain run and file"),
        ),
        "Attention rollout, the paper's appendix D.8; Grad-CAM for networks without attention.",
    ),
    "pretrain": Command(
        "Pre-train a network from random weights, on generated images or a large labelled set.",
        (
            ("vitral pretrain --model vit-ti16 --time 8h", "on generated images, overnight"),
            ("vitral pretrain --data imagenet/ --recipe vit-b16-imagenet", "a published set-up"),
        ),
    ),
    "convert": Command(
        "Write a classifier in another library's format, or read one from it.",
        (
            ("vitral convert runs/photos for-transformers/ --format transformers", "a folder that transformers opens"),
            ("vitral convert runs/photos photos.safetensors --format timm", "and the line of Python that opens it"),
            ("vitral convert ViT-B_16.npz vit-b16/ --format vitral", "a classifier folder of a published file"),
        ),
        "The source's format and architecture are recognised by themselves.",
    ),
    "push": Command(
        "Put a classifier on the Hugging Face Hub.",
        (
            ("vitral push runs/photos my-name/my-photos", "after 'hf auth login'"),
            ("vitral push runs/photos my-name/my-photos --format transformers --private", "for transformers, private"),
        ),
        "Log in first: 'hf auth login'.",
    ),
    "models": Command(
        "List the networks: size, cost, formats of published weights.",
        (
            ("vitral models", "all of them"),
            ("vitral models deit", "those whose name or family says so"),
        ),
        (
            "Parameters and multiply-accumulates (GMACs) are at 1,000 classes; the last column says in which formats "
            "trained weights are published, which 'vitral convert' and --from read."
        ),
    ),
    "recipes": Command(
        "List the training recipes: what each is, what to expect, its command.",
        (
            ("vitral recipes", "all of them"),
            ("vitral recipes cifar", "those that mention it"),
            ("vitral recipes finetune-cifar10", "one in full, as a file to start your own from"),
        ),
    ),
}

PLUGIN = "--plugin"

EPILOGUE = """Examples:
  vitral demo                      the whole pipeline on real data, in minutes
  vitral check photos/             damage, duplicates, leaks in a folder
  vitral finetune --data photos/   a classifier from a folder of class folders
  vitral predict photo.jpg         what is in it, says the newest classifier

'vitral COMMAND --help' shows a command's flags and examples. With any command, --plugin FILE.py adds networks, methods, data
sources, augmentations or optimizers of your own (docs/plugins.md).
"""
