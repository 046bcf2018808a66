"""The product's story without a database: events, projections, and how they meet.

Read `runner.py` first; everything else is what it leans on.
"""
