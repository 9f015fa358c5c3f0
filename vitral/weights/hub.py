"""Weights on the Hugging Face Hub, through its own client."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from huggingface_hub import HfApi, hf_hub_download, snapshot_download

# HTTPError is from the client's HTTP library, whichever it is: a failed connection, not an answer.
from huggingface_hub.errors import HTTPError  # type: ignore[attr-defined]  # isort: skip
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OfflineModeIsEnabled
from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

from vitral.errors import WeightsError, one_line
from vitral.paths import CLASSIFIER_FILES, DESCRIPTION
from vitral.transfers import NO_ANSWER, bound_requests
from vitral.weights.named.table import switched_off
from vitral.weights.recognize import CONFIG, OPEN_CLIP, PREPROCESSOR, PROCESSORS, WEIGHT_FILES

PATIENCE_SECONDS = 10.0  # for the Hub's first answer
SINGLE_FILES = (".npz", ".safetensors", ".pth")


def download(name: str) -> Path:
    """Download a repository's weights into the client's cache and return their folder, or the single file.

    A classifier folder is downloaded whole; of another library's repository the weights (safetensors before .bin) and
    their JSON files.

    Args:
        name: "owner/name" or "hf:owner/name".

    Raises:
        WeightsError: there is no such repository, it cannot be reached, or it has no weights.
    """
    repository = name.removeprefix("hf:")
    with _hub_errors(repository, "fetched from"):
        try:
            # One request without retries, so that an unreachable Hub is known at once.
            info = HfApi().model_info(repository, timeout=PATIENCE_SECONDS)
        except (HTTPError, OfflineModeIsEnabled) as error:
            return _cached(repository, error)
        files = [sibling.rfilename for sibling in info.siblings or ()]
        if DESCRIPTION in files:
            return Path(snapshot_download(repository, allow_patterns=list(CLASSIFIER_FILES)))
        if weights := next((file for file in WEIGHT_FILES if file in files), None):
            parts = weights.removesuffix(".index.json")
            stem, suffix = parts.rsplit(".", 1)
            shards = [f"{stem}-*-of-*.{suffix}"] if parts != weights else []
            described = (CONFIG, PREPROCESSOR, PROCESSORS)
            return Path(snapshot_download(repository, allow_patterns=[weights, *shards, *described]))
        single = [file for file in files if file.endswith(SINGLE_FILES)]
        if len(single) == 1:
            if OPEN_CLIP in files:
                hf_hub_download(repository, OPEN_CLIP)
            return Path(hf_hub_download(repository, single[0]))
    raise WeightsError(f"'{repository}' on the Hub holds no {DESCRIPTION} and no single weights file.")


def _cached(repository: str, error: Exception) -> Path:
    """Return what was downloaded earlier if the Hub cannot be reached; an error that the Hub answered is raised again."""
    if isinstance(error, HfHubHTTPError):
        raise error
    try:
        return Path(snapshot_download(repository, local_files_only=True))
    except LocalEntryNotFoundError:
        if isinstance(error, OfflineModeIsEnabled):
            raise WeightsError(f"'{repository}' is not on this machine, and {switched_off()}.") from None
        raise error from None


def check_name(name: str) -> None:
    """Refuse a name that no repository can have, before anything is made under it, by a WeightsError."""
    repository = name.removeprefix("hf:")
    with _hub_errors(repository, "written to"):
        validate_repo_id(repository)


def upload(folder: Path, name: str, *, private: bool = False, kind: Literal["model", "space"] = "model") -> str:
    """Upload a folder's files to the Hub as one commit and return the repository's address.

    Args:
        folder: a classifier folder, a transformers one, or that of a Space.
        name: "owner/name" or "hf:owner/name"; created if it does not exist.
        private: whether a new repository is private.
        kind: what kind of repository it is.

    Raises:
        WeightsError: it cannot be reached, or this user may not write there.
    """
    repository = name.removeprefix("hf:")
    with _hub_errors(repository, "written to"):
        api = HfApi()
        sdk = "docker" if kind == "space" else None
        address = api.create_repo(repository, repo_type=kind, space_sdk=sdk, private=private, exist_ok=True)
        message = "Upload the classifier"
        api.upload_folder(repo_id=repository, repo_type=kind, folder_path=folder, commit_message=message)
    return str(address)


@contextmanager
def _hub_errors(repository: str, action: str) -> Iterator[None]:
    bound_requests()
    try:
        yield
    except (HTTPError, HFValidationError, OfflineModeIsEnabled, OSError) as error:
        raise WeightsError(f"'{repository}' cannot be {action} the Hub: {one_line(error)}") from error
    except NO_ANSWER as error:
        what = f"it answers what no Hub does ({one_line(error)})"
        raise WeightsError(f"'{repository}' cannot be {action} the Hub: {what}.") from error
