"""Writes the skeleton of an operation: a kernel that copies rows, its plan, call, cases and tests.

    python -m build_scripts.new_operation NAME

It compiles, runs and is tested as it is: change what is copied into what is computed, part by part.
docs/contributing.md says what each part is for.
"""

from __future__ import annotations

import argparse
import keyword
import re
from pathlib import Path

from amdattn.ops import registry
from build_scripts.toolchain import ASM_SRC

ROOT = ASM_SRC.parent
_TEMPLATES = Path(__file__).parent / "skeleton"
# Template -> where it goes.
_FILES = {
    "args.h": "asm_src/args/@name@.h",
    "kernel.hip": "asm_src/kernels/@name@.hip",
    "members.py": "build_scripts/@name@_members.py",
    "problem.py": "amdattn/ops/@name@/problem.py",
    "planning.py": "amdattn/ops/@name@/planning.py",
    "call.py": "amdattn/ops/@name@/@name@.py",
    "cases.py": "amdattn/ops/@name@/cases.py",
    "test_calls.py": "tests/ops/@name@/test_@name@_calls.py",
}
_PACKAGE = "amdattn/ops/@name@/__init__.py"
# Lines that are added to files, each behind the last line that looks like it.
_LINES = {
    "amdattn/ops/registry.py": (
        (r'    "\w+": "amdattn\.ops\.\w+\.cases",', '    "@name@": "amdattn.ops.@name@.cases",'),
    ),
    "amdattn/__init__.py": (
        (
            r'    "\w+": "ops\.[\w.]+",',
            '    "@Name@Plan": "ops.@name@.@name@",\n'
            '    "@name@": "ops.@name@.@name@",\n'
            '    "plan_@name@": "ops.@name@.@name@",',
        ),
        (
            r"        \w+ as \w+,\n    \)",
            "    from amdattn.ops.@name@.@name@ import (\n"
            "        @Name@Plan as @Name@Plan,\n"
            "        @name@ as @name@,\n"
            "        plan_@name@ as plan_@name@,\n"
            "    )",
        ),
    ),
}


def write(name: str, root: Path = ROOT) -> list[Path]:
    """Write every file of a new operation, and the lines that name it; the paths.

    Raises
    ------
    ValueError
        It is no name, or one that is taken.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
        raise ValueError(f"{name=} must be a Python name of small letters, digits and _")
    texts = {
        root / filled(path, name): filled(_template(one), name) for one, path in _FILES.items()
    }
    texts[root / filled(_PACKAGE, name)] = '"""Copies rows."""\n'
    taken = [path for path in texts if path.exists()]
    if name in registry.names() or taken:
        raise ValueError(f"{name=} is taken: {', '.join(map(str, taken)) or 'an operation'}")
    for file, lines in _LINES.items():
        text = (root / file).read_text(encoding="utf-8")
        for pattern, line in lines:
            end = [found.end() for found in re.finditer(pattern, text)][-1]
            text = f"{text[:end]}\n{filled(line, name)}{text[end:]}"
        texts[root / file] = text
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return list(texts)


def filled(template: str, name: str) -> str:
    """A template of an operation of this name."""
    camel = "".join(part.capitalize() for part in name.split("_"))
    for mark, text in (("@name@", name), ("@Name@", camel), ("@NAME@", name.upper())):
        template = template.replace(mark, text)
    return template


def _template(name: str) -> str:
    return (_TEMPLATES / f"{name}.in").read_text(encoding="utf-8")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", metavar="NAME", help="such as row_sum")
    name = parser.parse_args().name
    try:
        written = write(name)
    except ValueError as error:
        parser.error(str(error))
    for path in written:
        print(path.relative_to(ROOT))
    print(
        f"""
ruff check --fix amdattn build_scripts && ruff format amdattn build_scripts
python -m build_scripts.build --only {name}
python -m build_scripts.generated
amdattn check {name} --schedules 16
python -m pytest tests/ops/{name} tests/ops/test_registry.py"""
    )


if __name__ == "__main__":
    main()
