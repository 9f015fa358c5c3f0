"""A real Chromium, told by its DevTools protocol over two pipes: pages opened, scripts run, files chosen, screenshots taken."""

import base64
import importlib.util
import json
import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
BROWSER = next(filter(None, map(shutil.which, BROWSERS)), None)
AXE = importlib.util.find_spec("axe_core_python")  # brings the accessibility rules of axe-core in one file
SECONDS = 120.0  # for a page to do what is waited for


class Chromium:
    """A browser with one page.

    Args:
        profile: The folder of its profile.
        flags: Further flags of the command line.
    """

    def __init__(self, profile: Path, *flags: str) -> None:
        assert BROWSER is not None
        ours, theirs = os.pipe(), os.pipe()
        command = [
            *(
                BROWSER,
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--hide-scrollbars",
                f"--user-data-dir={profile}",
            ),
            *(
                "--remote-debugging-pipe",
                "--use-fake-device-for-media-stream",
                "--use-fake-ui-for-media-stream",
                *flags,
            ),
        ]
        shell = ["bash", "-c", f'exec "$@" 3<&{ours[0]} 4>&{theirs[1]}', "bash", *command, "about:blank"]
        self.process = subprocess.Popen(
            shell, pass_fds=(ours[0], theirs[1]), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(ours[0])
        os.close(theirs[1])
        self._out, self._in, self._rest = ours[1], theirs[0], b""
        self._id, self._session = 0, ""
        page = next(each for each in self.call("Target.getTargets")["targetInfos"] if each["type"] == "page")
        self._session = self.call("Target.attachToTarget", targetId=page["targetId"], flatten=True)["sessionId"]
        self.call("Page.enable")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._out)
        os.close(self._in)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:  # noqa: ANN401  # whatever the method takes
        """Call a method of the protocol, and return its result."""
        self._id += 1
        message: dict[str, Any] = {"id": self._id, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        rest = json.dumps(message).encode() + b"\0"
        while rest:
            rest = rest[os.write(self._out, rest) :]
        while True:
            answer = self._read()
            if answer.get("id") == self._id:
                assert "error" not in answer, (method, answer["error"])
                return dict(answer["result"])

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            part = os.read(self._in, 1 << 20)
            assert part, "the browser has ended"
            self._rest += part
        one, _, self._rest = self._rest.partition(b"\0")
        return dict(json.loads(one))

    def open(self, address: str, ready: str = "document.body?.dataset.ready") -> None:
        """Open a page, and wait until it is ready."""
        self.call("Page.navigate", url=address)
        self.wait(f"document.readyState === 'complete' && location.href !== 'about:blank' && ({ready})")

    def run(self, script: str) -> Any:  # noqa: ANN401  # any JSON value
        """Return the value of an expression, of a promise what it comes to."""
        found = self.call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True, userGesture=True
        )
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def wait(self, condition: str) -> None:
        """Wait until an expression holds."""
        until = time.monotonic() + SECONDS
        while not self.run(f"(async () => Boolean(await ({condition})))()"):
            assert time.monotonic() < until, f"{condition} does not hold: {self.run('document.body.innerText')}"
            time.sleep(0.05)

    def choose(self, selector: str, files: Sequence[Path]) -> None:
        """Choose files in an input."""
        root = self.call("DOM.getDocument")["root"]["nodeId"]
        node = self.call("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        self.call("DOM.setFileInputFiles", nodeId=node, files=[str(file.absolute()) for file in files])

    def give(self, event: str, files: Sequence[Path]) -> None:
        """Drop or paste files."""
        contents = [(file.name, base64.b64encode(file.read_bytes()).decode()) for file in files]
        kind, field = {"drop": ("DragEvent", "dataTransfer"), "paste": ("ClipboardEvent", "clipboardData")}[event]
        self.run(
            "(() => { const given = new DataTransfer();"
            f"for (const [name, text] of {json.dumps(contents)}) "
            "given.items.add(new File([Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0))], name));"
            f"document.dispatchEvent(new {kind}('{event}', {{ {field}: given, bubbles: true, cancelable: true }})); }})()"
        )

    def press(self, key: str) -> None:
        """Press a key."""
        text = {"text": "\r" if key == "Enter" else key} if len(key) == 1 or key == "Enter" else {}
        code = {"Tab": 9, "Enter": 13, "ArrowLeft": 37}.get(key, ord(key[0]))
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, **text)

    def be(self, width: int, height: int, *, dark: bool = False, scale: float = 1.0) -> None:
        """Have a window of so many pixels, and a preference for light or dark."""
        size = {"width": width, "height": height, "deviceScaleFactor": scale, "mobile": width < 480}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        preference = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[preference])

    def screenshot(self, *, whole: bool = True) -> bytes:
        """Return a screenshot of the page as a PNG: the whole of it, or what a window shows."""
        return base64.b64decode(self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"])

    def violations(self) -> list[str]:
        """Return what axe finds wrong; nothing where it is not installed."""
        if AXE is None or AXE.origin is None:
            return []
        self.run((Path(AXE.origin).parent / "axe.min.js").read_text(encoding="utf-8") + "; 0")
        found: list[str] = self.run(
            "axe.run().then(({ violations }) => "
            "violations.map((it) => `${it.id}: ${it.nodes.map((node) => node.html).join(' ')}`))"
        )
        return found

    def overhang(self) -> int:
        """Return how many pixels the page is wider than its window."""
        return int(self.run("document.documentElement.scrollWidth - document.documentElement.clientWidth"))
