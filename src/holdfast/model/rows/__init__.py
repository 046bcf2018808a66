"""Rows of a TableProjection.

row_type       a dataclass as a table
column_values  kinds and checks of column values
row_codegen    generated functions of a row type
"""
