"""Models that the decoder workload serves: where weights come from, and how a step is computed."""
