"""Llama, Mistral and Qwen checkpoints in Hugging Face's layout, run by amdattn's kernels alone."""
