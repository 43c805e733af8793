"""The sizes of a product's groups, as callers give them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from amdattn.arrays.interchange import as_view
from amdattn.arrays.views import View
from amdattn.op.indices import on_device, placed, private
from amdattn.scalars import INT32_MAX

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class AsGroupSizes:
    """Reads `group_sizes` for plans, and checks sizes on the host.

    On the device a negative size counts as 0, and groups end where the rows of a do.
    """

    groups: int
    rows: int  # of a in memory, of all groups

    def __call__(self, array: Any, label: str, ordinal: int | None, stream: int) -> View:
        """View the sizes as int32, on the device of a if a is on a device."""
        view = as_view(private(array, label, nested=False), label, stream)
        name = view.dtype.name
        if view.shape != (self.groups,) or not name.startswith(("int", "uint")):
            raise ValueError(
                f"{label} has shape {view.shape} and dtype {name}; it must be int32 or int64 of "
                f"shape ({self.groups},), one of each group"
            )
        if view.array is None:
            return on_device(view, label, stream, 0, INT32_MAX)
        least, total = int(view.array.min()), int(view.array.sum(dtype="int64"))
        if least < 0:
            at = int(view.array.argmin())
            raise ValueError(f"{label}[{at}]={least} must be in 0..{self.rows}, the rows of a")
        if total > self.rows:
            raise ValueError(
                f"the sum of {label} is {total}; it may be at most {self.rows}, the rows of a"
            )
        return placed(view.array, label, ordinal, stream)

    def even(self) -> NDArray[np.int32]:
        """Equal sizes that hold all rows."""
        import numpy as np

        more = np.arange(self.groups) < self.rows % self.groups
        return (self.rows // self.groups + more).astype(np.int32)
