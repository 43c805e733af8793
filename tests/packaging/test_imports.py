"""Modules import each other in one direction, also within functions."""

from __future__ import annotations

import graphlib

import pytest

grimp = pytest.importorskip("grimp", reason="import-linter is not installed")


def test_no_import_goes_in_a_circle() -> None:
    graph = grimp.build_graph("amdattn", exclude_type_checking_imports=True, cache_dir=None)
    order = graphlib.TopologicalSorter(
        {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    )
    try:
        order.prepare()
    except graphlib.CycleError as error:
        pytest.fail(f"imports go in a circle: {' <- '.join(error.args[1])}")
