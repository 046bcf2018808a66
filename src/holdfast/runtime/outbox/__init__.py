"""Delivery by the queue.

relay             outbox delivery in one process
shares            what is claimed, in parts for the executors
executor          attempts at the events of claimed lanes
executor_threads  the threads of executors
bundle_size       the number of lanes in one transaction
claim_renewal     the renewal of claims
inline            delivery right after the append
replay            an operator's attempt at one item
shadow            shadow mode, which changes nothing
"""
