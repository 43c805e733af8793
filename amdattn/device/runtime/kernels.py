"""Loaded kernels of a device, and buffers for their arguments."""

from __future__ import annotations

import threading
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from amdattn.device import kernarg_preload
from amdattn.device.code_object import read_kernels
from amdattn.device.kernarg import KernargBuffer
from amdattn.device.manifest import KernelSpec
from amdattn.device.runtime import launch_form
from amdattn.device.runtime.calls import HipCalls
from amdattn.device.runtime.launch_form import LaunchForm
from amdattn.device.runtime.metadata import check_metadata, check_tile, differing_limits
from amdattn.errors import BindingError

if TYPE_CHECKING:
    from amdattn.device.runtime import Runtime


class LoadedKernel(NamedTuple):
    """A kernel on a device, and the offsets of its arguments."""

    function: Any
    offsets: tuple[int, ...]
    # The module and its image: the runtime keeps a pointer to the image of a raw ELF.
    kept: object


class KernelLoader(HipCalls):
    """The part of a runtime that loads kernels.

    Attributes
    ----------
    kernarg_preload : bool
        Whether kernels that are loaded from now on may start with arguments in SGPRs.
    """

    def __init__(self, *bound: Any) -> None:
        super().__init__(*bound)
        # The virtual device takes both forms, and a probe would be checked, profiled and counted.
        self._form = LaunchForm.EXTRA if self.choice.kind == "virtual" else None
        self.kernarg_preload = kernarg_preload.wanted()
        self._kernels: dict[tuple[KernelSpec, bool], LoadedKernel] = {}
        self._kernels_lock = threading.RLock()
        self._has_warned = False
        self._local = threading.local()

    @property
    def launch_form(self) -> LaunchForm | None:
        """How arguments are passed; None before the first kernel of a GPU is loaded."""
        return self._form

    def function(self, kernel: KernelSpec) -> Any:
        """The loaded kernel; its code object is verified, checked and loaded on first use."""
        return self._loaded(kernel).function

    def argument_offsets(self, kernel: KernelSpec) -> tuple[int, ...]:
        """The offset of each argument of a kernel in its block, from its code object."""
        return self._loaded(kernel).offsets

    def _loaded(self, kernel: KernelSpec) -> LoadedKernel:
        key = kernel, self.kernarg_preload
        found = self._kernels.get(key)
        if found is None:
            with self._kernels_lock:
                self._decide_form()
                found = self._kernels.get(key) or self.load_kernel(kernel)
                self._kernels[key] = found
        return found

    def _decide_form(self) -> None:
        with self._kernels_lock:
            if self._form is None:
                self._form = launch_form.choose(cast("Runtime", self))

    def load_kernel(self, kernel: KernelSpec) -> LoadedKernel:
        """Load a shipped kernel in a module of its own, after every check of its metadata."""
        image = kernel.read_code_object()
        info = read_kernels(image, str(kernel.path)).get(kernel.symbol)
        check_metadata(kernel, info, self.props)
        check_tile(kernel, image)
        assert info is not None
        if not self.kernarg_preload:
            image = kernarg_preload.without(image, kernel.symbol)
        function, module = self._load(image, kernel.symbol)
        self._compare_limits(kernel, function)
        return LoadedKernel(function, info.offsets, (image, module))

    def _compare_limits(self, kernel: KernelSpec, function: Any) -> None:
        """Warn once about limits of the runtime that a kernel exceeds; the launch decides."""
        with self.current():  # on the module's device, where AMD's runtime looks for it
            differing = differing_limits(self.hip, kernel, function)
        if differing and not self._has_warned:
            self._has_warned = True
            warnings.warn(
                f"{differing}; kernels are launched all the same, and a launch fails if it cannot "
                "be. Other kernels are not warned of",
                RuntimeWarning,
                stacklevel=2,
            )

    def load(self, image: bytes, symbol: str) -> tuple[Any, Any]:
        """Load a code object, and return a kernel and the module. `image` must outlive both."""
        self._decide_form()
        return self._load(image, symbol)

    def _load(self, image: bytes, symbol: str) -> tuple[Any, Any]:
        # A handle that comes with an error is invalid, so it is not unloaded.
        with self.current():
            module = self.check("hipModuleLoadData", self.hip.hipModuleLoadData(image))
            function = self.check(
                "hipModuleGetFunction", self.hip.hipModuleGetFunction(module, symbol.encode())
            )
        return function, module

    def kernarg_buffer(self, size: int, offsets: tuple[int, ...] = ()) -> KernargBuffer:
        """The calling thread's kernarg buffer of `size` bytes, for arguments at `offsets`."""
        buffers: dict[object, KernargBuffer] | None = getattr(self._local, "buffers", None)
        if buffers is None:
            buffers = self._local.buffers = {}
        key = (size, offsets) if self._form is LaunchForm.PARAMS else size
        buffer = buffers.get(key)
        if buffer is None:
            buffer = buffers[key] = self.new_kernarg_buffer(size, offsets)
        return buffer

    def new_kernarg_buffer(self, size: int, offsets: tuple[int, ...] = ()) -> KernargBuffer:
        """A new kernarg buffer for the caller alone."""
        if self._form is not LaunchForm.PARAMS:
            return KernargBuffer(size, self.launch_types)
        if size and not offsets:
            raise BindingError(
                f"{self.choice.library} takes kernel arguments one by one only (kernelParams), and "
                "where those of this kernel begin was not said"
            )
        return KernargBuffer(size, self.launch_types, offsets)
