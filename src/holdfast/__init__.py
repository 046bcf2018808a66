"""holdfast keeps read models right: projections for event-sourced Python applications."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast._public import *  # noqa: F403
    from holdfast._public import __all__ as __all__
else:
    # Names are loaded on first use, so that the command line starts fast.

    def __getattr__(name: str) -> object:
        if name == "__all__" or not name.startswith("_"):
            from holdfast import _public

            if name == "__all__" or name in _public.__all__:
                value = globals()[name] = getattr(_public, name)
                return value
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        from holdfast import _public

        return sorted({*globals(), *_public.__all__})
