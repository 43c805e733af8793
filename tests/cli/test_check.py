"""amdattn check, as a user types it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from amdattn import cli
from amdattn.ops import registry
from tests.support.gpu import compiled

ARGS = "in in int32[4, 256] low=0 high=1000; out out int32[4]"
GEOMETRY = ("--grid", 4, "--workgroup", "256,1", "--args", ARGS)
KERNEL = "amdattn_attn_fwd_bf16_d128_q128_rtne_gfx942"


class Command:
    """Runs `amdattn check` in this process: binding a device takes a second."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._patch, self._capsys = monkeypatch, capsys
        monkeypatch.setenv("COLUMNS", "200")

    def __call__(self, *args: object) -> tuple[int, str, str]:
        """Exit code, stdout and stderr."""
        self._patch.setattr(sys, "argv", ["amdattn", "check", *map(str, args)])
        with pytest.raises(SystemExit) as caught:
            cli.main()
        out, errors = self._capsys.readouterr()
        return int(caught.value.code or 0), out, errors

    def json(self, *args: object) -> tuple[int, dict[str, Any]]:
        """Exit code and document."""
        status, out, errors = self(*args, "--json")
        assert not errors
        return status, json.loads(out)


@pytest.fixture
def check(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(monkeypatch, capsys)


@pytest.fixture(scope="module")
def code_objects(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A right and a wrong kernel."""
    folder = tmp_path_factory.mktemp("code-objects")
    right, wrong = folder / "right.hsaco", folder / "wrong.hsaco"
    right.write_bytes(compiled("lds_reduce"))
    wrong.write_bytes(compiled("lds_reduce", "MISSING_BARRIER"))
    return right, wrong


def test_as_a_process() -> None:
    command = [sys.executable, "-m", "amdattn.cli", "check", "attention", "-sq", "5", "--json"]
    child = subprocess.run(command, capture_output=True, text=True, check=False)
    assert child.returncode == 0, child.stderr
    assert json.loads(child.stdout)["launches"][0]["kernel"] == KERNEL


def test_attention(check: Command) -> None:
    status, out, errors = check(
        "attention",
        "-b",
        1,
        "-sq",
        65,
        "-skv",
        33,
        "--heads-q",
        2,
        "--heads-kv",
        1,
        "--schedules",
        3,
    )
    assert status == 0, out + errors
    assert "no findings in 3 launches of 3 runs" in out and "measured on this CPU" in out


def test_json(check: Command) -> None:
    status, facts = check.json("attention", "-sq", 5, "--layout", "bhsd", "--no-lse")
    assert status == 0, facts["findings"]
    assert facts["subjects"] == ["attention bfloat16 b1 sq5 skv5 h2/2 d128 bhsd"]
    assert facts["launches"][0]["kernel"] == KERNEL and facts["launches"][0]["times"] == 1
    assert {f["severity"] for f in facts["findings"]} <= {"advice", "counted"}


def test_advice_is_shown_on_request(check: Command) -> None:
    status, out, _ = check("attention", "-sq", 65)
    assert status == 0 and "over_wait" not in out and "advice (--advice shows them)" in out
    status, out, _ = check("attention", "-sq", 65, "--advice")
    assert status == 0 and "over_wait" in out and "s_waitcnt" in out


def test_options_of_attention(check: Command) -> None:
    """Every one reaches the plan: the title says so, and two kernels run."""
    sizes = ("-sq", 40, "-skv", 150, "--heads-q", 4, "--heads-kv", 2, "--head-dim", 64)
    masks = ("--window-size", 30, 5, "--top-left", "--sinks", "--num-splits", 3)
    status, facts = check.json("attention", *sizes, *masks, "--dtype", "float16")
    assert status == 0 and all(found["severity"] != "error" for found in facts["findings"])
    (title,) = facts["subjects"]
    for option in ("float16", "window_size=(30, 5)", "top_left=True", "sinks=True"):
        assert option in title
    assert [launch["kernel"] for launch in facts["launches"]] == [
        "amdattn_attn_fwd_fp16_d64_q256_rtne_gfx942",
        "amdattn_attn_merge_fp16_d64_q256_rtne_gfx942",
    ]
    assert facts["launches"][0]["grid"] == [4 * 3, 1, 1]


def test_sequences_of_several_lengths(check: Command) -> None:
    lengths = ("--lengths", "30:70,0:9,66:0", "--causal", "--round-mode", "rtz")
    status, facts = check.json("attention", *lengths, "--schedules", 2)
    assert status == 0 and all(found["severity"] != "error" for found in facts["findings"])
    assert "lengths ((30, 70), (0, 9), (66, 0))" in facts["subjects"][0]


def test_a_wrong_kernel(check: Command, code_objects: tuple[Path, Path]) -> None:
    right, wrong = code_objects
    status, out, errors = check(right, *GEOMETRY, "--schedules", 4)
    assert status == 0, out + errors
    status, out, errors = check(wrong, *GEOMETRY, "--schedules", 4)
    assert status == 1, out + errors
    for words in ("lds_race", "kernel lds_reduce at 0x", "ds_write_b32", "wave ", "producer 0x"):
        assert words in out
    assert "elements of out depend on the schedule" in out
    status, facts = check.json(wrong, *GEOMETRY)
    assert status == 1 and {f["kind"] for f in facts["findings"]} == {"lds_race"}
    first = facts["findings"][0]
    assert first["where"].startswith("lds 0x") and first["producer_pc"] > first["offset"] > 0


def test_annotate(check: Command, code_objects: tuple[Path, Path]) -> None:
    status, out, _ = check(code_objects[1], *GEOMETRY, "--annotate")
    assert status == 1
    lines = out.splitlines()
    at = next(i for i, line in enumerate(lines) if "^ lds_race" in line)
    assert "ds_" in lines[at - 1] and "workgroup" in lines[at + 1]
    status, facts = check.json(code_objects[1], *GEOMETRY, "--annotate")
    assert any("^ lds_race" in line for line in facts["listings"]["lds_reduce"])
    assert facts["listings"]["lds_reduce"][0].split()[1] == "+0x0"


def test_suppressions(check: Command, code_objects: tuple[Path, Path], tmp_path: Path) -> None:
    _, facts = check.json(code_objects[1], *GEOMETRY)
    rows = [
        {"kernel": f["kernel"], "pc": f["offset"], "kind": f["kind"], "reason": "a known defect"}
        for f in facts["findings"]
    ]
    rows.append({"kernel": "lds_reduce", "pc": 4, "kind": "trap", "reason": "was repaired"})
    file = tmp_path / "known.json"
    file.write_text(json.dumps({"suppression": rows}))
    status, out, _ = check(code_objects[1], *GEOMETRY, "--suppressions", file)
    assert status == 0, out
    assert "a known defect" in out and "suppressed" in out
    assert "unused suppression (no such finding): trap of lds_reduce at +0x4: was repaired" in out
    file.write_text(json.dumps({"suppression": [{**rows[0], "reason": ""}]}))
    status, _, errors = check(code_objects[1], *GEOMETRY, "--suppressions", file)
    assert status == 2 and "known.json: suppression 1: reason=''" in " ".join(errors.split())


def test_inputs_from_a_file(
    check: Command, code_objects: tuple[Path, Path], tmp_path: Path
) -> None:
    np.save(tmp_path / "in.npy", np.ones((4, 256), np.int32))
    description = tmp_path / "args.txt"
    description.write_text(f"in in int32[4, 256] file={tmp_path / 'in.npy'}\nout out int32[4]\n")
    args = ("--grid", 4, "--workgroup", 256, "--args", f"@{description}")
    status, out, errors = check(code_objects[0], *args)
    assert status == 0, out + errors
    np.save(tmp_path / "in.npy", np.ones(3, np.int32))
    status, _, errors = check(code_objects[0], *args)
    assert status == 2 and "holds int32[3], not int32[4, 256]" in " ".join(errors.split())


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((), "Missing argument"),
        (("attention", "--schedules", -3), "--schedules"),
        (("attention", "--schedules", "many"), "--schedules"),
        (("attention", "--max-errors", -1), "--max-errors"),
        (("attention", "--residency", -1), "--residency"),
        (("attention", "--typo"), "No such option"),
        (("attention", "--lengths", "30:70,"), "must be Q:K,Q:K"),
        (("attention", "--head-dim", 8200), "head_dim=8200 is not built"),
        (("all", "--causal"), "--causal cannot be combined with all"),
        (("all", "--window-size", 3, 4), "--window-size cannot be combined with all"),
        (("all", "--lengths", "3:4"), "--lengths cannot be combined with all"),
        (("attention", "-sq", 0), "seqlen_q=0"),
        (("attention", "--heads-q", 3, "--heads-kv", 2), "num_heads_kv"),
        (("attention", "--layout", "sbhd"), "layout='sbhd'"),
        (("attention", "--grid", 4), "--grid cannot be combined with attention"),
        (("all", "--kernel", "k"), "--kernel cannot be combined with all"),
        (("attention", "--suppressions", "nowhere.toml"), "nowhere.toml"),
        (
            ("atention",),
            f"'atention' is neither one of {', '.join(registry.names())}, all nor a code object",
        ),
        ((__file__, "--grid", 1), "is not an ELF code object"),
    ],
)
def test_bad_input(check: Command, args: tuple[object, ...], message: str) -> None:
    status, out, errors = check(*args)
    assert status == 2, out + errors
    assert message in errors and "Traceback" not in errors


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--workgroup", 256, "--args", ARGS), "is a code object file, which needs --grid"),
        (("--grid", "4,0", "--workgroup", 256), "--grid='4,0' must be X, X,Y or X,Y,Z"),
        (("--grid", "1,2,3,4", "--workgroup", 256), "--grid='1,2,3,4' must be"),
        (("--grid", "four"), "--grid='four' must be"),
        (("--grid", 4, "--args", ARGS), "kernel lds_reduce does not say its workgroup"),
        (("--grid", 4, "--workgroup", 512, "--args", ARGS), "lds_reduce takes 256"),
        ((*GEOMETRY, "--kernel", "reduce"), "kernel 'reduce' is not in"),
        (("--grid", 4, "--workgroup", 256), "it takes (argument 0: buffer"),
        (("--grid", 4, "--workgroup", 256, "--args", "x"), "neither NAME ROLE DTYPE"),
        (("--grid", 4, "--workgroup", 256, "--args", "@nowhere.txt"), "nowhere.txt"),
        ((*GEOMETRY, "--dynamic-lds", -1), "--dynamic-lds"),
        ((*GEOMETRY, "--dynamic-lds", 1 << 20), "hipModuleLaunchKernel failed"),
    ],
)
def test_bad_launches(
    check: Command, code_objects: tuple[Path, Path], args: tuple[object, ...], message: str
) -> None:
    status, out, errors = check(code_objects[0], *args)
    assert status == 2, out + errors
    assert message in errors and "Traceback" not in errors


def test_a_broken_code_object(
    check: Command, code_objects: tuple[Path, Path], tmp_path: Path
) -> None:
    image = code_objects[0].read_bytes()
    broken = tmp_path / "broken.hsaco"
    for cut in (4, 60, 200, len(image) // 2):
        broken.write_bytes(image[:cut])
        status, out, errors = check(broken, *GEOMETRY)
        assert status == 2, out + errors
        assert "Traceback" not in errors and "Error: " in errors


def test_help_names_every_option(check: Command) -> None:
    status, out, _ = check("--help")
    assert status == 0
    for option in ("--schedules", "--annotate", "--suppressions", "--residency"):
        assert option in out


@pytest.mark.slow
def test_everything_is_clean(check: Command) -> None:
    status, out, errors = check("all", "--schedules", 16)
    assert status == 0, out + errors
