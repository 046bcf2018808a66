"""Outbox delivery on SQL databases.

registration  which projections appends put events into the queue for
claims        claims of workers on lanes
"""
