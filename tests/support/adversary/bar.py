"""When is a result right: beside float64 and the plain pipeline, by row and by column of V.

The bar: error <= 2 max(plain's, sqrt(sum r^2 v^2) / sum p) + half a ULP of the result (one if
rounded toward zero), as root mean square and as maximum, over every row, and over every column of V
that has 64 rows or more. r is what rounding p to the type loses at worst: p times the unit roundoff
of the type; of a denormal number half its spacing, or all of p. (A float16 of 37.03 times 2^-24
rounds to 37 by luck, and to 36.73 by another, equally good reference: u p is 0.02 spacings there,
rounding 0.5.) What is not finite is where plain has it;
where plain overflows and float64 does not, either will do, and plain's error is what it would be
without an end of its range.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tests.support.adversary.plain import Array, Result, Rules, exact, plain, seen_of

FACTOR = 2.0
LEAST_ROWS = 64  # of a column that is judged


@dataclass(frozen=True)
class Verdict:
    """Of one head: the worst error beside what is allowed, by kind; above 1 it is wrong."""

    ratios: dict[str, float]
    where: dict[str, tuple[int, ...]]

    @property
    def worst(self) -> float:
        return max(self.ratios.values())

    @property
    def holds(self) -> bool:
        return self.worst <= 1

    @property
    def kind(self) -> str:
        """What is worst."""
        return max(self.ratios, key=lambda kind: self.ratios[kind])

    @property
    def complaint(self) -> str:
        """What is worst, how far, and where."""
        return f"{self.kind} {self.worst:.3g} times what is allowed, at {self.where[self.kind]}"

    def __str__(self) -> str:
        kinds = (f"{kind} {ratio:.3g} at {self.where[kind]}" for kind, ratio in self.ratios.items())
        return f"{'holds' if self.holds else 'FAILS'} {', '.join(kinds)}"


@dataclass(frozen=True)
class Truth:
    """What results are held against."""

    q: Array
    k: Array
    v: Array
    rules: Rules
    best: Result
    usual: Result
    endless: Array  # as `usual.out`, of a type without a greatest number
    loose: Array  # (heads, rows): see _may_overflow
    either: Array  # see _either


def truth(q: Array, k: Array, v: Array, sinks: Array | None, rules: Rules) -> Truth:
    """Of (heads, rows or keys, columns) float32 arrays, of as many heads each."""
    best = exact(q, k, v, sinks, rules)
    usual = plain(q, k, v, sinks, rules)
    endless = usual.out.astype(np.float64)
    with np.errstate(all="ignore"):
        overflows = ~np.isfinite(usual.out) & np.isfinite(best.out)
        if overflows.any():  # and not beside a V as small as it is there
            _, exponents = np.frexp(np.abs(_finite(v)).max(1, keepdims=True, initial=0))
            small = np.ldexp(v, -exponents).astype(np.float32)
            again = plain(q, k, small, sinks, rules).out.astype(np.float64)
            endless = np.where(overflows, np.ldexp(again, exponents), endless)
        loose = _may_overflow(q, k, rules)
        either = _either(v, best, usual, seen_of(q, k, rules), rules) | loose[..., None]
    return Truth(q, k, v, rules, best, usual, endless, loose, either)


def judge(out: Array, lse: Array, by: Truth) -> list[Verdict]:
    """Verdict on every head of out (heads, rows, columns) and lse (heads, rows)."""
    actual = out.astype(np.float64)
    with np.errstate(all="ignore"):
        misplaced = ~by.either & ~_same_kind(actual, by.best.out, by.usual.out)
        ratios, where = _errors(actual, by)
        ratios["lse"], where["lse"] = _lse(lse.astype(np.float64), by)
    verdicts = []
    for h in range(len(out)):
        kinds = {name: float(x[h]) for name, x in ratios.items()}
        places = {name: x[h] for name, x in where.items()}
        wrong = np.argwhere(misplaced[h])
        kinds["not finite"] = np.inf if len(wrong) else 0.0
        places["not finite"] = tuple(map(int, wrong[0])) if len(wrong) else ()
        verdicts.append(Verdict(kinds, places))
    return verdicts


def _same_kind(actual: Array, best: Array, usual: Array) -> Array:
    """Finite where plain is; and of what is not, the one that plain or float64 has."""
    kinds = [
        np.where(np.isnan(x), 2.0, np.where(np.isinf(x), np.sign(x), 0.0))
        for x in (actual, best, usual.astype(np.float64))
    ]
    finite = np.isfinite(actual) == np.isfinite(usual)
    return finite & ((kinds[0] == kinds[1]) | (kinds[0] == kinds[2]))


def _may_overflow(q: Array, k: Array, rules: Rules) -> Array:
    """(heads, rows): a score may become +inf, or NaN, by the order of its additions.

    One that may become -inf only has no weight either way.
    """
    sign = np.sign(rules.scale)
    a, b = _finite(q) * sign, _finite(k)
    most = np.abs(a).max(initial=0) * np.abs(b).max(initial=0) * q.shape[-1]
    if most * max(1.0, 1.5 * abs(rules.scale)) < 2.0**127.9:
        return np.zeros(q.shape[:2], bool)
    above = np.maximum(a, 0) @ np.maximum(b, 0).swapaxes(1, 2)
    above += np.maximum(-a, 0) @ np.maximum(-b, 0).swapaxes(1, 2)
    above *= max(1.0, 1.5 * abs(rules.scale))  # kernels scale to powers of two
    return np.where(seen_of(q, k, rules), above, 0).max(-1, initial=0) >= 2.0**127.9


def _either(v: Array, best: Result, usual: Result, seen: Array, rules: Rules) -> Array:
    """Where a result need not be finite, and need not be none.

    Where plain overflows, or another order of its additions would; where the keys that are seen
    have no weight at all; where a hidden key's V is no number, which times 0 is none either.
    """
    overflows = ~np.isfinite(usual.out) & np.isfinite(best.out)
    near = best.p @ np.abs(_finite(v)) >= 2.0**127.9
    near |= np.isfinite(best.out) & (np.abs(best.out) >= rules.greatest * (1 - 2 * rules.unit))
    wild = ~np.isfinite(v)
    if wild.any():
        some = wild.astype(np.float32)
        near |= (~seen).astype(np.float32) @ some > 0
        near |= (best.total == 0) & some.any(1, keepdims=True)
    return overflows | near


def _finite(x: Array) -> Array:
    return np.where(np.isfinite(x), x, 0).astype(np.float64)


def _errors(actual: Array, by: Truth) -> tuple[dict[str, Array], dict[str, list[tuple[int, ...]]]]:
    best, rules = by.best, by.rules
    judged = np.isfinite(actual) & np.isfinite(best.out)
    expected = np.where(judged, best.out, 0)
    error = np.where(judged, np.abs(actual - best.out), 0)
    also = judged & np.isfinite(by.endless)
    of_plain = np.where(also, np.abs(by.endless - best.out), 0)
    lost = np.maximum(rules.unit * best.p, np.minimum(best.p, rules.ulp(np.zeros(1)) / 2))
    lost = np.where(best.total == 0, 0, lost / best.total)
    noise = np.sqrt(_finite(lost) ** 2 @ _finite(by.v) ** 2)
    noise = np.where(judged, noise, 0)
    last = np.where(judged, rules.ulp(expected) * (1 if rules.mode == "rtz" else 0.5), 0)
    ratios, where = {}, {}
    for name, axis in (("row", 2), ("column", 1)):
        if name == "column" and actual.shape[1] < LEAST_ROWS:
            continue
        count = np.maximum(judged.sum(axis), 1)
        for kind, measure in (
            ("rms", lambda x, axis=axis, count=count: np.sqrt((x * x).sum(axis) / count)),
            ("max", lambda x, axis=axis: x.max(axis, initial=0)),
        ):
            allowed = FACTOR * np.maximum(measure(of_plain), measure(noise)) + measure(last)
            ratio = _ratio(measure(error), allowed)
            ratios[f"{name} {kind}"] = ratio.max(1, initial=0)
            where[f"{name} {kind}"] = [(int(n),) for n in ratio.argmax(1)]
    return ratios, where


def _ratio(error: Array, allowed: Array) -> Array:
    return np.where(error == 0, 0.0, error / np.where(allowed == 0, 1e-300, allowed))


def _lse(lse: Array, by: Truth) -> tuple[Array, list[tuple[int, ...]]]:
    """Twice plain's error of the head, the rounding of a float32 dot product, and three ULPs.

    Those are of the scale, of the product with it, and of the way back from powers of two.
    """
    best, usual, rules = by.best, by.usual, by.rules
    reach = np.linalg.norm(_finite(by.q), axis=-1) * np.linalg.norm(_finite(by.k), axis=-1).max(
        -1, keepdims=True, initial=0
    )
    judged = np.isfinite(lse) & np.isfinite(best.lse)
    of_plain = np.where(np.isfinite(usual.lse) & judged, np.abs(usual.lse - best.lse), 0)
    ulp = 2.0**-23 * np.maximum(1, np.abs(np.where(judged, best.lse, 0)))
    allowed = (
        FACTOR * of_plain.max(-1, keepdims=True, initial=0)
        + 3 * ulp
        + 2.0**-22 * (abs(rules.scale) * reach + 4 * rules.softcap)
    )
    ratio = _ratio(np.where(judged, np.abs(lse - best.lse), 0), allowed)
    either = by.loose | (~np.isfinite(usual.lse) & np.isfinite(best.lse))
    ratio = np.where(either | _same_kind(lse, best.lse, usual.lse), ratio, np.inf)
    return ratio.max(1, initial=0), [(int(n),) for n in ratio.argmax(1)]
