"""The journal on SQL databases.

journal         appends, reads and tails
encode          events as the database stores them
join            a caller's open transaction, joined by an append
join_errors     drivers' errors in a joined transaction
positions       what shows that positions have gone back
journal_source  the journal as the feed of a runner
json_lines      the format of exports and imports
export          exports as JSON Lines
import_lines    imports of JSON Lines
"""
