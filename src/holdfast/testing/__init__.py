"""What users need to test their projections, and the contracts that databases must keep."""
