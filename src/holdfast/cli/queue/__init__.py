"""`holdfast queue`: events that could not be applied.

commands    the commands of the group
selection   the options that select items
change      a change of items: preview, question, change, report
left_alone  why a change leaves an item alone
item_view   items as rows of a table, as lines of text and as JSON
"""
