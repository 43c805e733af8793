"""The declarations of the native handler are those of jaxlib's header."""

from __future__ import annotations

from pathlib import Path

import jax
import pytest

from tests.support.native_handler import NATIVE, compile_c


def test_declarations_are_those_of_jaxlib(tmp_path: Path) -> None:
    """Sizes, offsets and numbers of native/xla_ffi.h."""
    pytest.importorskip("ziglang")
    structs = {
        "FfiExtension": ("XLA_FFI_Extension_Base", {"type": "type", "next": "next"}),
        "FfiVersion": (
            "XLA_FFI_Api_Version",
            {"major": "major_version", "minor": "minor_version"},
        ),
        "FfiMetadataExtension": ("XLA_FFI_Metadata_Extension", {"metadata": "metadata"}),
        "FfiBuffer": (
            "XLA_FFI_Buffer",
            {"dtype": "dtype", "data": "data", "rank": "rank", "dims": "dims"},
        ),
        "FfiSpan": ("XLA_FFI_ByteSpan", {"data": "ptr", "size": "len"}),
        "FfiArray": ("XLA_FFI_Array", {"dtype": "dtype", "size": "size", "data": "data"}),
        "FfiAttributes": (
            "XLA_FFI_Attrs",
            {"size": "size", "types": "types", "names": "names", "values": "attrs"},
        ),
        "FfiErrorCreate": ("XLA_FFI_Error_Create_Args", {"message": "message", "code": "errc"}),
        "FfiStreamGet": ("XLA_FFI_Stream_Get_Args", {"context": "ctx", "stream": "stream"}),
        "FfiOrdinalGet": (
            "XLA_FFI_DeviceOrdinal_Get_Args",
            {"context": "ctx", "ordinal": "device_ordinal"},
        ),
    }
    # Of those that grow, what there is.
    prefixes = {
        "FfiMetadata": ("XLA_FFI_Metadata", {"version": "api_version", "traits": "traits"}),
        "FfiBuffers": ("XLA_FFI_Rets", {"size": "size", "types": "types", "values": "rets"}),
        "FfiApi": (
            "XLA_FFI_Api",
            {
                "version": "api_version",
                "error_create": "XLA_FFI_Error_Create",
                "stream_get": "XLA_FFI_Stream_Get",
                "ordinal_get": "XLA_FFI_DeviceOrdinal_Get",
            },
        ),
        "FfiFrame": (
            "XLA_FFI_CallFrame",
            {
                "api": "api",
                "context": "ctx",
                "stage": "stage",
                "arguments": "args",
                "results": "rets",
                "attributes": "attrs",
            },
        ),
    }
    numbers = {
        "kFfiExtensionMetadata": "XLA_FFI_Extension_Metadata",
        "kFfiAttributeArray": "XLA_FFI_AttrType_ARRAY",
        "kFfiAttributeString": "XLA_FFI_AttrType_STRING",
        "kFfiInt64": "XLA_FFI_DataType_S64",
        "kFfiInstantiate": "XLA_FFI_ExecutionStage_INSTANTIATE",
        "kFfiExecute": "XLA_FFI_ExecutionStage_EXECUTE",
        "kFfiCommandBufferCompatible": "XLA_FFI_HANDLER_TRAITS_COMMAND_BUFFER_COMPATIBLE",
        "kFfiInvalidArgument": "XLA_FFI_Error_Code_INVALID_ARGUMENT",
        "kFfiFailedPrecondition": "XLA_FFI_Error_Code_FAILED_PRECONDITION",
        "kFfiInternal": "XLA_FFI_Error_Code_INTERNAL",
    }
    lines = ['#include "xla/ffi/api/c_api.h"', f'#include "{NATIVE}/xla_ffi.h"']

    def same(ours: str, theirs: str) -> None:
        lines.append(f'_Static_assert({ours} == {theirs}, "{ours}");')

    for ours, (theirs, fields) in (structs | prefixes).items():
        if ours in structs:
            same(
                f"sizeof({ours})",
                f"sizeof(struct {theirs})"
                if "Span" in ours or ours in ("FfiExtension", "FfiArray")
                else f"sizeof({theirs})",
            )
        for field, other in fields.items():
            same(f"offsetof({ours}, {field})", f"offsetof({theirs}, {other})")
    for ours, theirs in numbers.items():
        same(ours, theirs)
    source = tmp_path / "same.c"
    source.write_text("\n".join(lines) + "\n")
    compile_c([source], tmp_path / "same.so", f"-I{jax.ffi.include_dir()}")
