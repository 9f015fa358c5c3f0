"""Classifiers on the Hugging Face Hub, through its own client."""

from pathlib import Path

from huggingface_hub import HfApi, hf_hub_download, snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, OfflineModeIsEnabled

from vitral.errors import WeightsError

CLASSIFIER_FILES = ("classifier.json", "weights.safetensors", "README.md")


def download(name: str) -> Path:
    """Fetch a repository's classifier folder, or its single .npz file, into the client's cache and return where it is.

    Args:
        name: "owner/name" or "hf:owner/name".

    Raises:
        WeightsError: there is no such repository, it cannot be reached, or it holds neither.
    """
    repository = name.removeprefix("hf:")
    try:
        files = HfApi().list_repo_files(repository)
        if CLASSIFIER_FILES[0] in files:
            return Path(snapshot_download(repository, allow_patterns=list(CLASSIFIER_FILES)))
        weights = [file for file in files if file.endswith(".npz")]
        if len(weights) == 1:
            return Path(hf_hub_download(repository, weights[0]))
    except (HfHubHTTPError, HFValidationError, OfflineModeIsEnabled, OSError) as error:
        reason = " ".join(str(error).split())[:160]
        raise WeightsError(f"'{repository}' cannot be fetched from the Hub: {reason}") from error
    raise WeightsError(f"'{repository}' on the Hub holds no {CLASSIFIER_FILES[0]} and no single .npz file.")
