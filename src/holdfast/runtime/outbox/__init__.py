"""Delivery by the queue: claims, executors and their relay."""
