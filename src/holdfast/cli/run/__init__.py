"""`holdfast run`: worker processes.

command    the command, and the life of one worker process
processes  several worker processes under one command: --processes
http       metrics and health of a worker process: --http
"""
