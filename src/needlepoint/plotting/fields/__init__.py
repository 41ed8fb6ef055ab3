"""Pictures of theories on fields: `transitions` of curves with a marked place, `paths` of overlaps over time."""
