"""What theory and simulation share beyond the task: the action of an attention on its fields."""
