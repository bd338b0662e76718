"""The page on a local server: type a text, choose a model, see. Needs starlette and uvicorn (the extra serve)."""
