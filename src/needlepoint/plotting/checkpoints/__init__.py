"""Pictures of real checkpoints: heads (spectra and maps), losses (of cuts), probes (bars)."""
