"""What users pass to a task → batches for its network: columns, lengths, datasets, replicas."""
