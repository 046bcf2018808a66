"""What users declare: events, projections, policies. No I/O and no threads."""
