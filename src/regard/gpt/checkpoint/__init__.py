"""Checkpoints: directories of safetensors and JSON that transformers reads and writes too."""
