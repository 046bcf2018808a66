"""One projection as several runners.

layout        the number of shards, and their change
shard_source  the events of one shard
shard_worker  the shards of one process
"""
