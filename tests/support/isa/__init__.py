"""Oracles of instructions, a bare wave to run them on, LLVM's assembler, and tables of rows."""
