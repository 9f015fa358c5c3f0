"""The demo: what `finetune` makes of a folder of photos, on photos that are shipped with the package."""

import zipfile
from importlib import resources
from pathlib import Path

from vitral.files import new_folder
from vitral.outputs import check_folder
from vitral.paths import REPORT_FILE
from vitral.training.records.run_folder import stored_request
from vitral.training.request import Request

PHOTOS = "demo_photos.zip"  # 340 photos of clothes in ten classes, CC0; its README names the source
TIME = "100s"


def demo_request(out: Path) -> Request:
    """Return the request of the demo's run; its photos lie in the folder OUT-photos, where they are unpacked.

    An interrupted demo continues, a finished one begins anew.

    Raises:
        StorageError: The folder holds something else than a demo, or cannot be written.
    """
    photos = out.with_name(f"{out.name}-photos")
    before = stored_request(out)
    ours = before is not None and before.data == str(photos)
    if not ours:
        check_folder(out, own=())
    if not photos.is_dir():
        with (resources.files(__package__) / PHOTOS).open("rb") as file, new_folder(photos) as partial:
            zipfile.ZipFile(file).extractall(partial)
    finished = (out / REPORT_FILE).is_file()
    return Request(
        "fine-tune", str(photos), time=TIME, out=out, resume=ours and not finished, overwrite=ours and finished
    )
