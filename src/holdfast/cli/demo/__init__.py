"""`holdfast demo`: a worker is killed in the middle of its work, and every row is right.

command  the command, and its temporary folder
bank     the app: one journal, three read models
story    what happens, in four chapters
writers  threads that append events
worker   a worker process: the real `holdfast run`
screen   what the demo shows
audit    every row compared with the journal
"""
