"""What operators see and change on SQL databases.

deliveries          what outbox workers have done, and which of them are alive
lag                 the age of what is still to be applied, and what is stuck
status              the status of every projection
explain             reasons why a projection does not advance
clearing            what a reset clears besides the projection's own tables, and what it leaves
lifecycle           reset, rewind, pause, depose and other changes to a whole projection
forward             a projection moved forward, past events that it never applies
settings            settings that operators override
queue               the queue: lists, requeue, resolve, purge
queue_items         items of the queue, read for operators
park_next           the next event of a projection, parked by an operator
dead_letter_import  dead letters, imported into the queue
outbox              outbox delivery: state, mode, replay, messages to send
"""
