"""The consequences of a failed event.

attempts      attempts at single events, and their consequences
recovery      the decision on a failed event
closed_lanes  the closed lanes of a projection
suspects      the event to blame for a failed store or process
exclusive     one event alone in the process
"""
