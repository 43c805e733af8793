"""The schema of hsaco/manifest.json: every value is checked before it is used.

Errors name the file, the row, the field, its value and what is allowed. Schema 3 also has the
digest of its own text, since rules cannot find every change, such as a kernel that claims to accept
more than it does. Schema 2 had neither that nor the bytes of code objects, and had the digests of
sources in every row.
"""

from __future__ import annotations

import hashlib
import json
import marshal
import math
import string
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from amdattn import user_files
from amdattn.dtypes import as_dtype
from amdattn.errors import ManifestError

SCHEMA, FORMER_SCHEMA = 3, 2
# More bytes than any code object has, for manifests that do not give the number.
MAX_CODE_OBJECT_BYTES = 16 * 2**20
DIGEST = "sha256"  # the digest of the document's text without the digest itself
_MOST = 2**40
_MOST_FINE, _WITHOUT_REFERENCES = 2**10, 2  # a version of marshal's format


class Rule(NamedTuple):
    """A condition on a value, and its description in errors."""

    holds: Callable[[Any], bool]
    allowed: str


def _integer(least: int, most: int = _MOST) -> Rule:
    return Rule(lambda x: type(x) is int and least <= x <= most, f"an integer in {least}..{most}")


def _text(holds: Callable[[str], bool], allowed: str) -> Rule:
    return Rule(lambda x: type(x) is str and holds(x), allowed)


def _list_of(rule: Rule, least: int = 1, most: int = 64) -> Rule:
    holds = rule.holds
    lengths = f"{least}" if least == most else f"{least}..{most}"
    return Rule(
        lambda x: type(x) is list and least <= len(x) <= most and all(map(holds, x)),
        f"a list of {lengths}, each {rule.allowed}",
    )


def _either(*rules: Rule) -> Rule:
    return Rule(
        lambda x: any(rule.holds(x) for rule in rules), " or ".join(rule.allowed for rule in rules)
    )


def _is_span(x: Any) -> bool:
    return type(x) is list and len(x) == 2 and all(type(i) is int for i in x) and x[0] <= x[1]


def _is_dtype(x: Any) -> bool:
    try:
        return type(x) is str and bool(as_dtype(x))
    except ValueError:
        return False


def _is_number(x: Any) -> bool:
    return type(x) in (int, float) and math.isfinite(x)


def _only(x: str, characters: frozenset[str]) -> bool:
    """Whether a text has only allowed characters; compiling patterns would take longer."""
    return characters.issuperset(x)


def _is_path(x: str) -> bool:
    """Whether a path is plain and stays in its folder."""
    return all(part[:1] not in ("", ".") and _only(part, _OF_FILES) for part in x.split("/"))


_HEX_DIGITS = frozenset("0123456789abcdef")
_OF_FILES = frozenset(f"{string.ascii_letters}{string.digits}_.-")
_TEXT = _text(lambda x: len(x) <= 10_000, "text")
_NAME = _text(
    lambda x: x.isidentifier() and x.isascii() and len(x) <= 200, "a name of letters, digits and _"
)
_BOOLEAN = Rule(lambda x: type(x) is bool, "true or false")
_DTYPE = Rule(_is_dtype, "an element type")
_COUNT, _POSITIVE = _integer(0), _integer(1)
_SPAN = Rule(_is_span, "the least and the greatest of a range")
_OR_ANY = _either(_SPAN, Rule(lambda x: x == "any", '"any"'))
_BOOLEANS, _WORDS = _list_of(_BOOLEAN, 1, 2), _list_of(_NAME)
_NUMBERS = _list_of(Rule(_is_number, "a finite number"))
_STEPPED = _list_of(_integer(1, 2**20), 3, 3)
_HEX = _text(lambda x: len(x) == 64 and _only(x, _HEX_DIGITS), "64 hexadecimal digits")

_KERNARG: Mapping[str, Rule] = {
    "header": _text(
        lambda x: x.endswith(".h") and "/" not in x and _is_path(x),
        "the name of a header, without a folder",
    ),
    "size": _integer(1, 2**12),
    "fields": _list_of(Rule(lambda x: type(x) is list and len(x) == 4, "a list of 4"), 1, 512),
}
_C_TYPES = frozenset(
    ("float", "double", *(f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)))
)
_KERNARG_FIELD = (
    ("name", _NAME),
    ("offset", _integer(0, 2**12)),
    ("bytes", _integer(1, 8)),
    ("type", _text(_C_TYPES.__contains__, "a C type of fixed width")),
)
# The values that kernels are compiled for and accept, by name, for all operations.
_PARAMS: Mapping[str, Rule] = {
    **dict.fromkeys(("kv_dtype", "weight_dtype"), _DTYPE),
    **dict.fromkeys(("packed", "norm"), _BOOLEAN),
    **dict.fromkeys(
        (
            *("head_dim", "head_dim_v", "columns", "rows", "mfma", "step", "waves_k"),
            *("steps_in_flight", "row_lanes", "row_steps", "steps", "chunk", "chunk_bytes"),
        ),
        _integer(1, 2**24),
    ),
}
_ACCEPTS: Mapping[str, Rule] = {
    **dict.fromkeys(("head_dims", "head_dims_v"), _STEPPED),
    **dict.fromkeys(
        (
            *("causal", "return_lse", "sinks", "varlen", "top_left", "residual"),
            "deterministic",
        ),
        _BOOLEANS,
    ),
    **dict.fromkeys(("gqa", "in_place", "norms_rows"), _BOOLEAN),
    **dict.fromkeys(("window_size", "layouts"), _TEXT),
    "layout": _NAME,
    "dropout_p": _NUMBERS,
    "softcaps": Rule(
        lambda x: _NUMBERS.holds(x) and len(x) == 2 and 0 <= x[0] <= x[1],
        "the least and the greatest of a range of numbers",
    ),
    "round_mode": _WORDS,
    **dict.fromkeys(("out_dtype", "b_dtype"), _list_of(_DTYPE)),
    **dict.fromkeys(
        ("activation", "scales"), _list_of(_either(Rule(lambda x: x is None, "null"), _NAME))
    ),
    "to": _WORDS,
    "tile_rows": _list_of(_POSITIVE),
    **dict.fromkeys(
        (
            *("kv_stride_seq", "q_stride_seq", "dq_stride_seq", "columns", "rows", "num_parts"),
            *("columns_of_row", "strides"),
        ),
        _SPAN,
    ),
    "row_stride": _OR_ANY,
    **dict.fromkeys(
        (
            *("pointer_align_bytes", "stride_multiple", "stride_bytes", "page_size_multiple"),
            *("m_multiple", "n_multiple", "k_multiple"),
        ),
        _integer(1, 2**20),
    ),
}
_TILE: Mapping[str, Rule] = {
    **dict.fromkeys(("q", "kv", "rows", "keys", "m", "n"), _integer(1, 2**12)),
    **dict.fromkeys(("columns", "chunks", "lanes"), _integer(1, 2**20)),
}
_SOURCE = Rule(
    lambda x: type(x) is list and len(x) == 2 and _TEXT.holds(x[0]) and _HEX.holds(x[1]),
    "a path and its sha256",
)


Group = tuple[Mapping[str, Rule], Rule | None, str]


def _rule_of(name: str, group: Group) -> Rule | None:
    """The rule for a value of a group, by its name or by the beginning of its name."""
    known, other, prefix = group
    return known.get(name) or (other if name.startswith(prefix) else None)


def _facts(group: Group) -> Rule:
    """Check an object of names and values of a group."""
    known = group[0]
    fine: set[bytes] = set()  # objects that were checked: many rows have equal ones

    def holds(x: Any) -> bool:
        if type(x) is not dict:
            return False
        try:
            text = marshal.dumps(x, _WITHOUT_REFERENCES)
        except ValueError:  # it nests too deeply
            return False
        if text in fine:
            return True
        for name, value in x.items():
            rule = known.get(name) or _rule_of(name, group)
            if rule is None or not rule.holds(value):
                return False
        if len(fine) < _MOST_FINE:
            fine.add(text)
        return True

    return Rule(holds, "an object")


_GROUPS: Mapping[str, Group] = {
    "params": (_PARAMS, None, ""),
    "tile": (_TILE, None, ""),
    "accepts": (_ACCEPTS, _COUNT, "max_"),
}
_ROW: Mapping[str, Rule] = {
    **dict.fromkeys(("name", "symbol", "op", "grid", "kernarg"), _NAME),
    "file": _text(
        lambda x: x.endswith(".hsaco") and _is_path(x), "the path of a .hsaco file in this folder"
    ),
    "arch": _text(
        lambda x: x[:3] == "gfx" and 6 <= len(x) <= 8 and _only(x[3:], _HEX_DIGITS),
        "the name of a target: gfx and hexadecimal digits",
    ),
    "dtype": _DTYPE,
    **{name: _facts(group) for name, group in _GROUPS.items()},
    "sha256": _HEX,
    **dict.fromkeys(("source", "toolchain", "toolchain_reason", "target"), _TEXT),
    "code_object_version": _integer(4, 6),
    "workgroup": Rule(
        lambda x: (
            type(x) is list
            and len(x) == 3
            and all(type(lanes) is int and 1 <= lanes <= 1024 for lanes in x)
            and math.prod(x) <= 1024
        ),
        "a list of 3 integers of 1 and more, of 1024 lanes at most",
    ),
    "vgpr": _integer(1, 512),
    "agpr": _integer(0, 512),
    "sgpr": _integer(0, 512),
    "lds_bytes": _integer(0, 2**20),
    "scratch_bytes": _integer(0, 2**30),
    **dict.fromkeys(("vgpr_spills", "sgpr_spills"), _integer(0, 2**20)),
}
_OF_SCHEMA: Mapping[int, Mapping[str, Rule]] = {
    FORMER_SCHEMA: {**_ROW, "source_sha256": Rule(lambda x: type(x) is dict, "an object")},
    SCHEMA: {
        **_ROW,
        "bytes": _integer(1, MAX_CODE_OBJECT_BYTES),
        "sources": Rule(lambda x: type(x) is list, "a list of places in the document's sources"),
    },
}


def read(file: Path) -> dict[str, Any]:
    """The document in a file, after every check.

    Raises
    ------
    ManifestError
    """
    try:
        raw = user_files.read_bytes(file, user_files.MAX_BYTES)
        document = user_files.parse(file, raw.decode("utf-8"), json.loads)
    except UnicodeDecodeError as error:
        raise ManifestError(f"cannot read {file}: {error}") from None
    except (OSError, ValueError) as error:
        raise ManifestError(f"cannot read {file}: {error}") from None
    check(file, document)
    if document["schema"] == SCHEMA and document[DIGEST] != digest_of(raw, document[DIGEST]):
        raise ManifestError(
            f"{file} was changed since it was built: {DIGEST}={document[DIGEST]!r} must be that of "
            "its text; `python -m build_scripts.build` writes it, `pip install` another one"
        )
    return dict(document)


def digest_of(raw: bytes, recorded: str) -> str:
    """SHA-256 of a document's text without the digest that is recorded in it."""
    return hashlib.sha256(raw.replace(recorded.encode(), b"", 1)).hexdigest()


def check(file: Path, document: Any) -> None:
    """Raise ManifestError for the first value of a document that breaks its rule."""
    if type(document) is not dict:
        raise ManifestError(f"{file} is malformed: it must be an object")
    schema = document.get("schema")
    if schema not in (SCHEMA, FORMER_SCHEMA) or type(schema) is not int:
        raise ManifestError(
            f"{file} has schema {_short(schema)}; this amdattn reads schema {FORMER_SCHEMA} and "
            f"{SCHEMA}"
        )
    rules: dict[str, Rule] = {
        "schema": _POSITIVE,
        "kernargs": Rule(lambda x: type(x) is dict and bool(x), "an object with members"),
        "kernels": Rule(lambda x: type(x) is list and bool(x), "a list with elements"),
    }
    if schema == SCHEMA:
        rules |= {DIGEST: _HEX, "sources": _list_of(_SOURCE, 1, 2**12)}
    _check(file, "the document", document, rules)
    for struct, layout in document["kernargs"].items():
        _check_kernarg(file, struct, layout)
    seen: set[str] = set()
    for number, row in enumerate(document["kernels"]):
        _check_row(file, number, row, _OF_SCHEMA[schema], document["kernargs"], seen)


def _check_row(
    file: Path,
    number: int,
    row: Any,
    rules: Mapping[str, Rule],
    kernargs: Mapping[str, Any],
    seen: set[str],
) -> None:
    name = row.get("name") if type(row) is dict else None
    where = f"kernels[{number}]" + (f" ({name})" if _NAME.holds(name) else "")
    _check(file, where, row, rules)
    symbol, arch = row["symbol"], row["arch"]
    target = f"amdgcn-amd-amdhsa--{arch}"
    if row["target"] != target:
        raise _refusal(file, where, "target", row["target"], f"{target!r}, as arch says")
    if row["kernarg"] not in kernargs:
        raise _refusal(file, where, "kernarg", row["kernarg"], f"one of {', '.join(kernargs)}")
    if symbol in seen:
        raise _refusal(file, where, "symbol", symbol, "of no row before")
    seen.add(symbol)


def _check_kernarg(file: Path, struct: str, layout: Any) -> None:
    where = f"kernargs[{_short(struct)}]"
    if not _NAME.holds(struct):
        raise _refusal(file, "the document", "kernargs", struct, _NAME.allowed)
    _check(file, where, layout, _KERNARG)
    for i, field in enumerate(layout["fields"]):
        for (name, rule), value in zip(_KERNARG_FIELD, field, strict=True):
            if not rule.holds(value):
                raise _refusal(file, where, f"fields[{i}] {name}", value, rule.allowed)
        if field[1] + field[2] > layout["size"]:
            raise _refusal(file, where, f"fields[{i}]", field, f"in {layout['size']} bytes")


def _check(file: Path, where: str, found: Any, rules: Mapping[str, Rule]) -> None:
    """Check the members of an object by their rules: all of them, and no others."""
    if type(found) is not dict:
        raise _refusal(file, where, "all of it", found, "an object")
    if found.keys() != rules.keys():
        for name in rules.keys() - found.keys():
            raise ManifestError(f"{file} is malformed: {where} has no {name!r}")
        for name in found.keys() - rules.keys():
            raise ManifestError(f"{file} is malformed: {where} has {name!r}, which means nothing")
    for name, (holds, allowed) in rules.items():
        if not holds(found[name]):
            _refuse_member(file, where, name, found[name])
            raise _refusal(file, where, name, found[name], allowed)


def _refuse_member(file: Path, where: str, matter: str, members: Any) -> None:
    """Name what is wrong in an object of facts."""
    group = _GROUPS.get(matter)
    if group is None or type(members) is not dict:
        return
    for name, value in members.items():
        rule = _rule_of(name, group)
        if rule is None:
            names = [*group[0], *([f"{group[2]}*"] if group[1] else [])]
            raise _refusal(file, where, matter, name, f"one of {', '.join(names)}")
        if not rule.holds(value):
            raise _refusal(file, where, f"{matter}.{name}", value, rule.allowed)


def _refusal(file: Path, where: str, field: str, value: object, allowed: str) -> ManifestError:
    return ManifestError(f"{file} is malformed: {where}: {field}={_short(value)} must be {allowed}")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:100]}..."
