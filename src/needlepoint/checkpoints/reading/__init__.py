"""Reading checkpoints without running anything in them.

files (what may be opened), safetensors and gguf (strict headers, mapped tensors), folder (shards), settings
(config.json and GGUF metadata), families and layout (which rows are which head), checkpoint (`read_checkpoint`).
"""
