"""What a candidate library answers, and which one is taken: without processes of their own."""

from __future__ import annotations

import ctypes.util
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from amdattn.device import binding, runtime, virtual_library
from amdattn.device.binding import Choice, Probe
from amdattn.errors import BindingError

HERE = Path(virtual_library.library_path())


@pytest.fixture
def no_child(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every library is asked in this process."""
    monkeypatch.setattr(binding, "_can_start_again", lambda: False)


def test_a_file_that_is_no_library(tmp_path: Path, no_child: None) -> None:
    file = tmp_path / "libamdhip64.so"
    file.write_bytes(b"not an ELF file")
    found = binding._probe(str(file))
    assert (found.path, found.num_devices, found.is_virtual) == (str(file), 0, False)
    assert found.failure.startswith("cannot be loaded (") and str(file) in found.failure


def test_a_library_that_is_no_hip_runtime(no_child: None) -> None:
    name = ctypes.util.find_library("m")
    assert name is not None
    path = next(
        line.split()[-1]
        for line in Path("/proc/self/maps").read_text().splitlines()
        if "/libm.so" in line or "/libm-" in line
    )
    assert binding._probe(path) == Probe(path, 0, False, "has no hipGetDeviceCount")


def test_the_virtual_device_is_no_gpu(no_child: None) -> None:
    found = binding._probe(str(HERE))
    assert found == Probe(str(HERE), 1, True, "")
    assert binding._probe(str(HERE) + ".none") == Probe(
        str(HERE) + ".none", 0, False, "does not exist"
    )


@pytest.mark.parametrize(
    ("status", "devices", "failure"),
    [
        (0, 1, ""),
        (0, 2, ""),
        (0, 0, "sees no GPU (hipGetDeviceCount: error 0)"),
        (100, 0, "sees no GPU (hipGetDeviceCount: error 100)"),
        (3, 1, "sees no GPU (hipGetDeviceCount: error 3)"),
    ],
)
@pytest.mark.parametrize("initialises", [True, False])
def test_answers_of_a_library(
    monkeypatch: pytest.MonkeyPatch, status: int, devices: int, failure: str, initialises: bool
) -> None:
    class Library:
        def hipGetDeviceCount(self, count: object) -> int:
            count._obj.value = devices  # type: ignore[attr-defined]
            return status

        if initialises:

            def hipInit(self, flags: int) -> int:
                assert flags == 0
                return 0

    monkeypatch.setattr(binding.ctypes, "CDLL", lambda _: Library())
    monkeypatch.setattr(binding, "mapped_runtimes", lambda: ["/rocm/libamdhip64.so"])
    wanted = devices if not failure else 0
    assert binding._probe_in_process("/a/b.so") == Probe("/a/b.so", wanted, False, failure)
    # One that was named without a path is the one that is loaded now.
    assert binding._probe_in_process("b.so").path == "/rocm/libamdhip64.so"
    monkeypatch.setattr(binding, "mapped_runtimes", list)
    assert binding._probe_in_process("b.so").path == "b.so"


@pytest.mark.parametrize(
    ("executable", "home", "ignored", "can"),
    [
        ("/usr/bin/python3", None, False, True),
        ("/usr/bin/python3.12", "/opt", True, True),
        ("/usr/bin/python3", "/opt", False, False),
        ("/usr/bin/blender", None, False, False),
        ("/usr/bin/blender", "/opt", True, False),
        ("", None, False, False),
        (None, None, False, False),
    ],
)
def test_when_a_child_can_be_started(
    monkeypatch: pytest.MonkeyPatch,
    executable: str | None,
    home: str | None,
    ignored: bool,
    can: bool,
) -> None:
    monkeypatch.setattr(sys, "executable", executable)
    monkeypatch.delenv("PYTHONHOME", raising=False)
    if home is not None:
        monkeypatch.setenv("PYTHONHOME", home)
    monkeypatch.setattr(binding.sys, "flags", SimpleNamespace(ignore_environment=ignored))
    assert binding._can_start_again() is can


def play(monkeypatch: pytest.MonkeyPatch, loaded: list[str], answers: dict[str, Probe]) -> None:
    monkeypatch.setattr(binding, "mapped_runtimes", lambda: loaded)
    monkeypatch.setattr(binding, "_probe", answers.__getitem__)
    monkeypatch.setattr(binding, "_candidates", lambda default: [*loaded, default])


def test_the_first_that_sees_a_gpu_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    play(
        monkeypatch,
        ["/a.so", "/b.so"],
        {
            "/a.so": Probe("/a.so", 3, True, ""),
            "/b.so": Probe("/b.so", 0, False, "is broken"),
            "c.so": Probe("/c.so", 1, False, ""),
        },
    )
    rejected = ("/a.so: is the virtual device", "/b.so: is broken")
    assert binding.choose("gpu", "c.so") == Choice("gpu", "/c.so", "/c.so sees 1 GPU", rejected)
    play(monkeypatch, ["/a.so"], {"/a.so": Probe("/a.so", 2, False, "")})
    why = "/a.so, which this process had loaded, sees 2 GPUs"
    assert binding.choose("auto", "c.so") == Choice("gpu", "/a.so", why, ())


def test_none_sees_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(binding.LIBRARY_VARIABLE, raising=False)
    play(monkeypatch, [], {"c.so": Probe("c.so", 0, False, "is broken")})
    why = "no HIP library here sees a GPU"
    virtual = Choice("virtual", str(HERE), why, ("c.so: is broken",))
    assert binding.choose("auto", "c.so") == virtual
    asked = Choice("virtual", str(HERE), "virtual:gfx942 was asked for", plays="MI300X")
    assert binding.choose("virtual:gfx942", "c.so") == asked
    assert binding.choose("virtual:gfx950", "c.so").plays == "MI355X"
    with pytest.raises(BindingError, match=r"^no GPU can be used: c\.so: is broken$"):
        binding.choose("gpu", "c.so")
    monkeypatch.setenv(binding.LIBRARY_VARIABLE, "/named.so")
    named = r"^AMDATTN_HIP_LIBRARY='/named\.so': no GPU can be used: c\.so: is broken$"
    with pytest.raises(BindingError, match=named):
        binding.choose("auto", "c.so")


def test_whose_runtime_the_virtual_device_is_seen_through(tmp_path: Path) -> None:
    (tmp_path / "libamdhip64.so.7").write_bytes(b"")
    folder = f"amd:{tmp_path}"
    choice = binding.choose("virtual:gfx942", "c.so", folder)
    assert choice.library == str(tmp_path / "libamdhip64.so.7")
    assert (choice.kind, choice.runtime) == ("virtual", folder)
    assert choice.device_library == str(HERE)
    assert choice.why == f"virtual:gfx942 was asked for, through {choice.library}"
    choice = binding.choose("virtual:gfx942", "c.so", "amd")
    assert (choice.library, choice.runtime) == ("libamdhip64.so.7", "amd")
    own = binding.choose("virtual:gfx942", "c.so")
    assert (own.runtime, own.device_library) == ("amdattn", str(HERE))
    message = r"^runtime 'nvidia' must be amdattn, amd or amd:FOLDER$"
    with pytest.raises(ValueError, match=message):
        binding.choose("virtual:gfx942", "c.so", "nvidia")
    with pytest.raises(ValueError, match=message):
        runtime.use_device("auto", runtime="nvidia")
    with pytest.raises(
        BindingError, match=r"^runtime 'amd:/none': /none has no libamdhip64\.so\.7$"
    ):
        binding.choose("virtual:gfx942", "c.so", "amd:/none")


def test_candidates_are_named_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (binding.LIBRARY_VARIABLE, "ROCM_PATH", "ROCM_HOME"):
        monkeypatch.delenv(name, raising=False)
    library = tmp_path / "lib" / "libamdhip64.so"
    library.parent.mkdir()
    library.write_bytes(b"")
    link = tmp_path / "link.so"
    link.symlink_to(library)
    monkeypatch.setattr(binding, "mapped_runtimes", lambda: ["/x.so", str(link)])
    monkeypatch.setenv("ROCM_HOME", str(tmp_path))
    assert binding._candidates("libamdhip64.so") == ["/x.so", str(link), "libamdhip64.so"]
    monkeypatch.setattr(binding, "mapped_runtimes", list)
    assert binding._candidates("libamdhip64.so") == ["libamdhip64.so", str(library)]
    monkeypatch.setenv("ROCM_PATH", str(tmp_path / "none"))
    assert binding._candidates("libamdhip64.so") == ["libamdhip64.so"]
    monkeypatch.setenv(binding.LIBRARY_VARIABLE, "/named.so")
    assert binding._candidates("libamdhip64.so") == ["/named.so"]


def test_a_second_runtime_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binding, "mapped_runtimes", lambda: ["/a.so"])
    assert binding.other_runtimes("/a.so") == ""
    monkeypatch.setattr(binding, "mapped_runtimes", lambda: ["/a.so", "/b.so", "/c.so"])
    begin = "This process also has /a.so and /c.so, beside /b.so, which amdattn has bound: "
    assert binding.other_runtimes("/b.so").startswith(begin)


@pytest.mark.device
def test_a_child_that_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    code = "import os; os._exit(7)"
    monkeypatch.setattr(binding.sys, "executable", str(sys.executable))
    original = binding.subprocess.run

    def run(command: list[str], **options: object) -> object:
        assert command[1:4] == ["-I", "-S", "-c"] and options["timeout"] == 120
        return original([*command[:4], code], **options)  # type: ignore[call-overload]

    monkeypatch.setattr(binding.subprocess, "run", run)
    assert binding._probe("b.so") == Probe("b.so", 0, False, "probing it ended with status 7")

    def late(*_: object, **__: object) -> object:
        raise binding.subprocess.TimeoutExpired("python", 120)

    monkeypatch.setattr(binding.subprocess, "run", late)
    found = binding._probe("b.so")
    assert (found.num_devices, found.is_virtual) == (0, False)
    assert found.failure.startswith("probing it failed: ") and "120 seconds" in found.failure


def test_a_child_s_answer_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    for probe in (Probe("/a.so", 2, True, ""), Probe("b.so", 0, False, "a\nb")):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(binding, "_probe_in_process", lambda _, probe=probe: probe)
            binding.probe_main("x")
    assert capsys.readouterr().out == (
        "amdattn-probe\t/a.so\t2\t1\t\namdattn-probe\tb.so\t0\t0\ta b\n"
    )


@pytest.mark.parametrize(
    ("kind", "arch", "refused"),
    [("virtual", "gfx90a", True), ("virtual", "gfx942", False), ("gpu", "gfx90a", False)],
)
def test_a_virtual_device_is_of_a_known_architecture(
    monkeypatch: pytest.MonkeyPatch, kind: str, arch: str, refused: bool
) -> None:
    """A GPU of another one is told at the first launch, with what there are kernels for."""
    bound = SimpleNamespace(props=SimpleNamespace(arch=arch))
    restored = []
    fake = SimpleNamespace(
        default_library=lambda: "c.so", pin=lambda library: lambda: restored.append(library)
    )
    monkeypatch.setattr(runtime, "import_hip_python", lambda: fake)
    monkeypatch.setattr(runtime, "Runtime", lambda hip_python, choice: bound)
    monkeypatch.setattr(binding, "choose", lambda *_: Choice(kind, "/c.so", ""))
    if refused:
        with pytest.raises(BindingError, match=r"^/c\.so presents gfx90a, not "):
            runtime._bind()
    else:
        assert runtime._bind() is bound
    assert restored == ["/c.so"]


def test_environment_names_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "_requested", None)
    monkeypatch.setenv(binding.ENVIRONMENT_VARIABLE, "gpu:1")
    with pytest.raises(BindingError, match="AMDATTN_DEVICE='gpu:1' must be one of auto, gpu, "):
        runtime._bind()
    assert os.environ[binding.ENVIRONMENT_VARIABLE] == "gpu:1"
