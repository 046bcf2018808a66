"""The worker process that the crash tests kill: `holdfast run tests.world.worker:app`.

`Wanted` says what it runs and how it behaves. Every signal of the runtime, and every event that the
ledger begins to handle, is a line on the standard output.
"""

import threading

from tests.support.limits import set_limits, small_batches
from tests.world.build import build_wanted, limit_memory, set_constants
from tests.world.speech import die_with_parent, say, say_signal
from tests.world.wanted import wanted_here

if (wanted := wanted_here()) is not None:
    threading.Thread(target=die_with_parent, daemon=True).start()
    set_constants(wanted.limits)
    app = build_wanted(wanted)
    if wanted.batch_events is not None:
        small_batches(app, wanted.batch_events)
    if wanted.drain_events is not None:
        set_limits(app, drain_events=wanted.drain_events)
    app.listen(say_signal)
    if wanted.spare_bytes is not None:
        limit_memory(wanted.spare_bytes)
    say("Loaded")
