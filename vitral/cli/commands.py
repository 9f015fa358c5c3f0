"""The list of commands: what each does, in one line, and its examples; importing this imports none of them."""


class Command:
    """A command as the help shows it.

    Args:
        line: What it does; the first line of its function's docstring is the same.
        examples: Commands to type, each with its purpose after a #.
        more: Text below the line in its own help.
        group: The heading under which the list of commands shows it, one of GROUPS.
        also: Other names, by which other libraries call it.
        first: The flag that says the same as the first name without one, if a second such name may follow it.
        alone: Whether it does not share its work out, so that several processes would compute and write the same.
    """

    def __init__(
        self,
        line: str,
        *examples: str,
        group: str,
        more: str = "",
        also: tuple[str, ...] = (),
        first: str = "",
        alone: bool = False,
    ) -> None:
        self.line, self.more, self.group, self.also, self.first, self.alone = line, more, group, also, first, alone
        self.examples = [tuple(example.split("  # ")) for example in examples]

    def help(self) -> str:
        """Return the beginning of the command's help."""
        return f"{self.line}\n\n{self.more}" if self.more else self.line

    def epilogue(self) -> str:
        """Return the examples as the end of the command's help."""
        return "Examples:\n" + "\n".join(f"  {command}\n      {purpose}" for command, purpose in self.examples) + "\n"


GROUPS = ("Data", "Train", "Judge", "Use", "Ship", "Paper")

# What a program reads from a command's end.
EXIT_STATUSES = {
    0: "done",
    1: "not done: bad input, or --strict found something; the last line of standard error says what and why",
    2: "not begun: the command line cannot be read",
    75: "not done by the machine's fault: too little memory, a process of the job lost, a GPU that failed; try again, a "
    "training with --resume",
    129: "its terminal is gone (SIGHUP)",
    130: "stopped by Ctrl-C (SIGINT); a training continues with --resume",
    138: "stopped by SIGUSR1, as a scheduler warns; a training continues with --resume",
    141: "whoever read its output is gone (SIGPIPE)",
    143: "terminated (SIGTERM); a training continues with --resume",
}

# In the order of the help: group by group, and in each of first use.
COMMANDS = {
    "check": Command(
        "Check every image of a dataset, or prove that a killed run resumes to the same bits.",
        "vitral check photos/  # damage, duplicates, leaks between splits",
        "vitral check photos/ --classifier runs/photos --report check.html  # doubtful labels too, as a page",
        "vitral check photos/ --strict  # exit status 1 if there is something to fix, for scripts",
        "vitral check resume  # kill a run, resume it, compare every bit",
        more="With --strict it exits with status 1 if it finds something to fix; 'resume' does so at any difference.",
        group="Data",
    ),
    "fix": Command(
        "Find labels that are probably wrong, and correct them by a click or in a table.",
        "vitral fix photos/  # fix.html and corrections.csv, by the newest run",
        "vitral fix photos/ --apply corrections.csv  # moves the files into the right folders",
        "vitral fix photos/ --undo  # puts everything back",
        "vitral fix photos/ --apply corrections.csv --table photos.csv  # moves nothing",
        more="Doubtful labels first, then the surest mistakes on validation images; nothing changes before --apply.",
        group="Data",
        alone=True,
    ),
    "select": Command(
        "Choose the images to label next, and say how many more one point of accuracy takes.",
        "vitral select unlabelled/ --classifier runs/photos --out next.csv  # 50 images, to fill in",
        "vitral select unlabelled/ --count 10 --json  # by the newest run, for programs",
        more="Images of which the classifier is unsure, each unlike those that are labelled or chosen already.",
        alone=True,
        group="Data",
    ),
    "demo": Command(
        "Try 'finetune' on 340 photos of clothes that come with the package, in under two minutes.",
        "vitral demo  # ends in a report, runs/demo/report.html, and a classifier",
        "vitral demo --out runs/first-demo --json  # in another folder, the figures as JSON",
        group="Train",
        alone=True,
    ),
    "finetune": Command(
        "Fine-tune a model on labelled images: classifier, scores and report in one run folder.",
        "vitral finetune photos/  # one sub-folder per class",
        "vitral finetune photos/ --from vit-s14@dinov2 --time 30m  # published weights, half an hour in total",
        "vitral finetune photos/ --recipe scratch --runs 3 --out runs/three  # three seeds: mean ± standard deviation",
        "vitral finetune photos.zip --recipe scratch --set optimizer.lr=0.01  # other settings",
        "vitral finetune photos/ --out runs/photos --resume  # continue after Ctrl-C or a crash",
        also=("train", "fit"),
        group="Train",
    ),
    "plan": Command(
        "Say what a fine-tuning would do, why, how long it takes and where the time goes; nothing is written.",
        "vitral plan photos/ --time 10m  # the network, its settings and the schedule",
        "vitral plan photos/ --from ViT-B_16.npz --json  # for programs",
        group="Train",
    ),
    "starts": Command(
        "Compare starts by linear probes on the data, which is best for these images; nothing is trained.",
        "vitral starts photos/  # those that are here or worth a download",
        "vitral starts photos/ --from vit-s14@dinov2,vit-s16@dino --out runs/starts  # these two, the table in a folder",
        alone=True,
        first="--data",
        group="Train",
    ),
    "sweep": Command(
        "Try the paper's learning rates on the validation split, and train with the best on all but the test split.",
        "vitral sweep photos/ --from ViT-B_16.npz  # a run for each rate, and one with the best",
        "vitral sweep photos/ --out runs/photos --resume  # continue after Ctrl-C or a crash",
        group="Train",
    ),
    "pretrain": Command(
        "Pre-train a model from random weights, on generated images or a large labelled dataset.",
        "vitral pretrain --model vit-ti16 --time 8h  # on generated images, overnight",
        "vitral pretrain imagenet/ --recipe vit-b16-imagenet  # a published recipe",
        group="Train",
    ),
    "distill": Command(
        "Train a small network to answer as a large classifier does, on images that need no labels.",
        "vitral distill runs/photos more-photos/  # into a ViT-Ti/16, and both side by side",
        "vitral distill ViT-B_16.npz photos/ --student vit-s32 --time 8h  # a file's network, overnight",
        more="Ends in a table of accuracy, latency and size beside the teacher; of images without labels, how often both "
        "agree.",
        group="Train",
    ),
    "runs": Command(
        "List the runs: data, scores, when, and whether each is done, running or stopped.",
        "vitral runs  # those in runs/",
        "vitral runs experiments/ --json  # those in another folder, for programs",
        group="Train",
    ),
    "status": Command(
        "Say how far a run is, how long it still takes, its best score so far and how to continue it.",
        "vitral status  # the newest run in runs/",
        "vitral status runs/photos --json  # for programs",
        group="Train",
    ),
    "recipes": Command(
        "List the training recipes: what each does, what to expect, its command.",
        "vitral recipes  # all of them",
        "vitral recipes cifar  # those that mention it",
        "vitral recipes finetune-cifar10  # one in full, to start your own from",
        group="Train",
    ),
    "models": Command(
        "List the models: size, cost, formats of published weights.",
        "vitral models  # all of them",
        "vitral models deit  # those with the word in their name or family",
        "vitral models --weights vit-s16  # published weights by name, for --from and --classifier",
        more="Parameters and multiply-accumulates (GMACs) are for 1,000 classes; the last column lists the formats in which "
        "trained weights are published, which 'vitral convert' and --from can read; --weights lists those weights by "
        "name.",
        group="Train",
    ),
    "evaluate": Command(
        "Score a classifier on labelled images: accuracy, every class, confusion, calibration.",
        "vitral evaluate photos/  # the newest run, on the images that its training left out",
        "vitral evaluate runs/photos new/ --report scores.html  # as a page",
        "vitral evaluate photos.csv --by camera  # where is it weak? the worst first",
        "vitral evaluate vit-s14@dinov2 photos/ --frozen few-shot  # without its head",
        more="Classes are matched by name. Of the classifier's training data, only the images that training left out are "
        "scored, as long as the data are the same; of changed data without a test split all are, also those that "
        "it was trained on.",
        also=("val", "test"),
        first="--classifier",
        group="Judge",
    ),
    "compare": Command(
        "Decide between two classifiers on the same images: better, worse or not decided.",
        "vitral compare runs/photos-2 runs/photos photos/  # is the new one better?",
        "vitral compare runs/a runs/b new/ --json  # for programs, class by class",
        more="By McNemar's exact test on the images that only one of them gets right; classes are matched by name.",
        group="Judge",
    ),
    "explain": Command(
        "Show where the model looked in a photo, or how its network sees.",
        "vitral explain holiday.jpg  # by the newest run; draws holiday-explained.jpg",
        "vitral explain holiday.jpg --classifier runs/photos --out explained.png  # a given run and file",
        "vitral explain holiday.jpg --label tabby  # what speaks for a class that is not the answer",
        "vitral explain holiday.jpg --layer 12 --head 3  # where one head looks",
        "vitral explain holiday.jpg --data photos/  # and the training images most like it",
        "vitral explain photos/ --worst-first --report worst.html  # a page of the worst",
        "vitral explain --network --data photos/ --out inside  # the network: the paper's figure 7",
        more="auto: relevance for Vision Transformers, weight times input for a linear model, Grad-CAM for others. --faithful: "
        "deletion and insertion (0 to 1) say how faithful the map is; low deletion and high insertion are best.",
        alone=True,
        group="Judge",
    ),
    "robustness": Command(
        "Score a classifier on images with noise, blur, weather and compression.",
        "vitral robustness photos/  # 15 corruptions at 5 severities, the worst first",
        "vitral robustness photos/ --split validation --images 100  # fewer, sooner",
        more="The corruptions of ImageNet-C, written anew: compare its figures with each other, not with published ones.",
        first="--classifier",
        group="Judge",
    ),
    "aspects": Command(
        "Compare squashing, cropping, padding and the native aspect ratio on validation images.",
        "vitral aspects photos/  # how should photos be brought to the network?",
        "vitral aspects runs/photos photos/ --json  # for programs",
        more="Each is compared with the classifier's own by McNemar's exact test; nothing is changed.",
        first="--classifier",
        group="Judge",
    ),
    "predict": Command(
        "Say what is in images, with probabilities.",
        "vitral predict holiday.jpg  # by the newest run, which is named",
        "vitral predict photos/ album.zip more.csv --classifier runs/photos  # folders, archives, tables",
        "vitral predict photos/ --top 1 --json  # for programs",
        "vitral predict photos/ --sort-into sorted/  # copies, a folder per class; unsure ones apart",
        "vitral predict photos/ --out predictions.parquet  # any number of images; or .csv, .jsonl",
        "vitral predict photos/ --out exact.csv --precision fp32  # exactly, if slower",
        more="With --out it computes as fast as it can, in bf16 where that is faster, and says so; otherwise in fp32.",
        group="Use",
    ),
    "info": Command(
        "Say what something is: a classifier, a run, an exported file, a model, published weights or a recipe.",
        "vitral info runs/photos  # classes, scores, preprocessing, how it was made",
        "vitral info photos-onnx/model.onnx  # the same of what 'vitral export' wrote",
        "vitral info vit-s14@dinov2  # size, data, licence, where it is from",
        group="Use",
    ),
    "schema": Command(
        "Print the JSON schema of what a command prints with --json.",
        "vitral schema  # the commands that have one, and the exit statuses",
        "vitral schema evaluate  # of 'vitral evaluate --json'",
        group="Use",
    ),
    "add": Command(
        "Add classes to a classifier without training, and say what that costs the others.",
        "vitral add newclass-photos/ --classifier runs/photos  # a sub-folder per class; writes runs/photos-extended",
        "vitral add more-photos/ --classifier runs/photos --out better --json  # further examples of its classes, too",
        more="Its network stays; its head is fitted anew, on the features that its folder keeps and those of the new images.",
        alone=True,
        group="Use",
    ),
    "calibrate": Command(
        "Fit a classifier's probabilities on validation images, and from where on it is sure.",
        "vitral calibrate photos/  # what a temperature would change; nothing is written",
        "vitral calibrate photos/ --accuracy 0.95 --write  # 'predict' says what is not sure",
        more="Fitted on validation images only; test images, where there are any, show the effect.",
        first="--classifier",
        group="Use",
    ),
    "quantize": Command(
        "Find how a classifier computes in 8-bit integers on a CPU, losing no more accuracy than it may.",
        "vitral quantize photos/  # what int8 costs and gains; nothing is written",
        "vitral quantize photos/ --loss 0.01 --write  # 'predict --precision int8' computes so",
        more="Ranges from training images, layers chosen on validation images; refused where int8 would be slower.",
        alone=True,
        first="--classifier",
        group="Ship",
    ),
    "tune": Command(
        "Find the most accurate setting of a classifier that answers within a time on this machine.",
        "vitral tune photos/ --latency 10ms --plot curve.svg  # only the curve; nothing is written",
        "vitral tune runs/photos photos/ --latency 10ms --write  # 'predict' computes so",
        more="Over image size, precision, merged tokens and runtime; timed one image at once, scored on validation images.",
        alone=True,
        first="--classifier",
        group="Ship",
    ),
    "bench": Command(
        "Measure how fast a classifier's network computes here, by every runtime that is installed.",
        "vitral bench runs/photos  # images/s, latency, memory, share of the machine's limit",
        "vitral bench runs/photos --batch-sizes 1,8,32 --plot speeds.svg  # and a drawing of them",
        "vitral bench vit-b16 --compile  # torch.compile's kernels too, in minutes",
        more="All take turns in one run. The limit is that of large products in the same precision, measured in the same "
        "run.",
        alone=True,
        group="Ship",
    ),
    "convert": Command(
        "Write a classifier in another library's format, or read one from it.",
        "vitral convert runs/photos for-transformers/ --format transformers  # a folder that transformers can open",
        "vitral convert runs/photos photos.safetensors --format timm  # and the Python line that opens it",
        "vitral convert ViT-B_16.npz vit-b16/ --format vitral  # a classifier folder from a published file",
        more="The source's format and architecture are recognised automatically.",
        alone=True,
        first="--classifier",
        group="Ship",
    ),
    "export": Command(
        "Write a classifier as one file that takes decoded images, and check its answers.",
        "vitral export runs/photos  # photos-onnx/model.onnx, with a README that shows its use",
        "vitral export runs/photos photos/ --layers  # checked on your images, layer by layer",
        "vitral export runs/photos --page web/  # a page that classifies photos in the browser",
        "vitral export runs/photos --format openvino --out served/photos  # for OpenVINO, in that folder",
        more="The file does it all: resize, crop, normalise, network, probabilities. If its answers differ, the exit status "
        "is 1.",
        alone=True,
        first="--classifier",
        group="Ship",
    ),
    "serve": Command(
        "Answer over HTTP, and on a page for people, what is in images, with probabilities.",
        "vitral serve runs/photos  # at http://127.0.0.1:8000, from this machine alone",
        "vitral serve runs/photos --host 0.0.0.0 --token SECRET  # from other machines, too",
        "vitral serve runs/photos runs/defects --port 8080 --deadline 5s  # two classifiers",
        "vitral serve models/  # all that are in a folder, by their names",
        "vitral serve runs/photos --collect collected/  # photos to name at /review, for training",
        more="Images of many clients are computed together. It speaks the forms of Hugging Face's InferenceClient, of the Open "
        "Inference Protocol (v2) and of TorchServe, too; /openapi.json describes it all.",
        alone=True,
        first="--classifier",
        group="Ship",
    ),
    "push": Command(
        "Upload a classifier to the Hugging Face Hub.",
        "vitral push runs/photos my-name/my-photos  # after 'hf auth login'",
        "vitral push runs/photos my-name/my-photos --format transformers --private  # for transformers, private",
        "vitral push runs/photos my-name/my-photos --space  # a page and a server for everybody, on the Hub",
        more="Log in first: 'hf auth login'.",
        alone=True,
        first="--classifier",
        group="Ship",
    ),
    "study": Command(
        "Repeat an experiment of the paper on your data; the paper's figure and yours on one page.",
        "vitral study  # the experiments, and what each asks",
        "vitral study position photos/ --plan  # its arms, and what it costs here and on a GPU",
        "vitral study data-size cifar10/ --time 40m  # where a ViT overtakes a ResNet",
        "vitral study shapes photos/ --transfer pets:pets/  # scored as in the paper: five images a class",
        more="Every arm has several seeds; a study that was interrupted continues, and several processes may share its folder.",
        group="Paper",
    ),
    "table": Command(
        "Print the scores of finished runs as the paper's Table 2: mean ± deviation over seeds.",
        "vitral table runs/b16-0 runs/b16-1 runs/b16-2  # three seeds of one recipe",
        "vitral table runs/* --format latex  # for a paper; or markdown, html",
        more="Where model and dataset are the paper's, its published figures stand beside ours.",
        group="Paper",
    ),
    "vtab": Command(
        "Score a network on VTAB-1k's 19 tasks, beside the paper's numbers.",
        "vitral vtab vit-b16@augreg-in21k tensorflow_datasets/  # linear probes, minutes on a CPU",
        "vitral vtab ViT-L_16.npz vtab-1k/ --tasks pets,clevr-count  # two of them",
        "vitral vtab ViT-L_16.npz tensorflow_datasets/ --protocol paper --runs 3  # as Table 9, for a GPU",
        more="TensorFlow is not needed; tasks whose datasets are missing are named, and what was interrupted continues.",
        first="--classifier",
        group="Paper",
    ),
}

PLUGIN = "--plugin"
MAX_PIXELS = "--max-pixels"

EPILOGUE = """Examples:
  vitral demo                      a classifier from photos that come with it
  vitral check photos/             damage, duplicates, leaks in a folder
  vitral finetune photos/          a classifier from a folder of class folders
  vitral predict photo.jpg         what is in it, by the newest classifier

'vitral COMMAND --help' shows a command's flags and examples. With any command, --plugin FILE.py adds networks, methods, data
sources, augmentations or optimizers of your own (docs/plugins.md), and --max-pixels N reads images of up to N pixels (50
million; a JPEG of up to four times as many is read at half its height and width).
"""


def command_named(name: str) -> str:
    """Return the command of a name, which may be one of its other names; empty where there is none."""
    return next((command for command, described in COMMANDS.items() if name in (command, *described.also)), "")
