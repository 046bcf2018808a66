"""Commands on projections, for operators.

status       `holdfast status`: how far each projection is
status_view  the table of projections, and the lines below it
explain      `holdfast explain`: why a projection does not advance
control      `holdfast pause`, `resume`, `retry`, `depose`, `reshard`: whether and where it runs
checkpoint   `holdfast reset`, `rewind`, `forward`: where it goes on
settings     `holdfast set`: settings that change while it runs
audit        `holdfast audit`: what operators have changed
migrate      `holdfast migrate`: holdfast's own tables
"""
