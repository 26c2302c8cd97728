"""Video files: whole or not there."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType

import numpy as np
import numpy.typing as npt

from rlcli.core.errors import ConfigError, RlcliError

ENDING = ".mp4"


def check_video(path: Path) -> None:
    """Refuse what could not be written, before anything is made.

    Raises:
        ConfigError: Another ending than .mp4, no such folder, or ffmpeg is missing.
    """
    if path.suffix != ENDING:
        raise ConfigError(f"--video: {path.name!r} is not allowed, must end with {ENDING}")
    if not path.parent.is_dir():
        raise ConfigError(f"--video: there is no folder {path.parent}")
    if importlib.util.find_spec("imageio_ffmpeg") is None:
        raise ConfigError("--video: needs imageio-ffmpeg: pip install 'rlcli[video]'")


class VideoFile:
    """A video that is written beside its name and renamed at the end; after an exception nothing is left of it.

    Args:
        path: Ends with .mp4; what is there is replaced.
        fps: Pictures per second.
    """

    def __init__(self, path: Path, fps: float) -> None:
        self._path, self._fps = path, fps
        self._temporary = path.with_name(f".{path.stem}.{os.getpid()}.tmp{ENDING}")
        self._ffmpeg: subprocess.Popen[bytes] | None = None
        self._files = contextlib.ExitStack()

    def show(self, picture: npt.NDArray[np.uint8]) -> bool:
        """Add a picture [H, W, 3], all of one size with even sides; True: go on.

        Raises:
            RlcliError: The file cannot be written.
        """
        if self._ffmpeg is None:
            self._ffmpeg = self._start(picture.shape[1], picture.shape[0])
        assert self._ffmpeg.stdin is not None
        try:
            self._ffmpeg.stdin.write(np.ascontiguousarray(picture).data)
        except OSError:
            self._refuse()
        return True

    def __enter__(self) -> VideoFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._end()
            if error is None and self._ffmpeg is not None:
                if self._ffmpeg.returncode:
                    self._refuse()
                self._temporary.replace(self._path)
        finally:
            self._files.close()
            self._temporary.unlink(missing_ok=True)

    def _start(self, width: int, height: int) -> subprocess.Popen[bytes]:
        from imageio_ffmpeg import get_ffmpeg_exe

        self._complaints = self._files.enter_context(tempfile.TemporaryFile())  # noqa: SIM115  # the stack closes it
        source = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", f"{self._fps:g}", "-i", "-"]
        # yuv420p: what every player shows; faststart: plays while it loads
        target = ["-c:v", "libx264", "-crf", "18", "-pix_fmt", "yuv420p", "-movflags", "+faststart"]
        return subprocess.Popen(
            [get_ffmpeg_exe(), "-loglevel", "error", "-y", *source, *target, str(self._temporary)],
            stdin=subprocess.PIPE,
            stderr=self._complaints,
            start_new_session=True,  # Ctrl-C is for this process to deal with
        )

    def _end(self) -> None:
        if self._ffmpeg is None:
            return
        assert self._ffmpeg.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # its exit code tells
            self._ffmpeg.stdin.close()
        self._ffmpeg.wait()

    def _refuse(self) -> None:
        self._end()
        self._complaints.seek(0)
        lines = self._complaints.read().decode(errors="replace").strip().splitlines()
        raise RlcliError(f"{self._path}: not written: {lines[-1] if lines else 'ffmpeg ended early'}")
