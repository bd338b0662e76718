"""Attention you can read, see, check and ship."""

# Nothing is imported here: until __main__.py has set its handler, Ctrl-C shows a traceback.
import sys


class _OldNames:
    """Asked last, for modules that nobody else finds: those that have moved still have their old name."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> object:
        """The module by its new name; None for all that are not ours."""
        if not name.startswith("regard."):
            return None
        from regard.support.moved import find_old_name

        return find_old_name(name)


sys.meta_path.append(_OldNames)  # type: ignore[arg-type]
TYPE_CHECKING = False  # type checkers take it for True
if TYPE_CHECKING:
    from regard.public import *  # noqa: F403

    __version__: str
else:

    def __getattr__(name: str) -> object:
        """Import the public names, and torch with them, when the first is used: `regard --help` must not wait."""
        if name == "__version__":
            from importlib.metadata import version

            return globals().setdefault(name, version("regard"))
        if name.startswith("_") and name != "__all__":
            raise AttributeError(f"module 'regard' has no attribute {name!r}")
        from importlib import import_module

        import torch

        # The first use may be inside `with torch.device("meta")` or inference mode, and modules hold tensors.
        with torch.inference_mode(False), torch.device("cpu"):
            public = import_module("regard.public")  # `from regard import public` would ask this function first
        globals().update({"__all__": public.__all__, **{one: getattr(public, one) for one in public.__all__}})
        if name not in globals():  # submodules are here now, too
            raise AttributeError(f"module 'regard' has no attribute {name!r}")
        return globals()[name]

    def __dir__() -> list[str]:
        return [*__getattr__("__all__"), *(name for name in globals() if name.startswith("__"))]
