"""Benchmarks: speed and memory next to other libraries, in one process, interleaved, checked before anything is timed.

    python -m regard.bench.layer      one attention layer, forward and forward + backward
    python -m regard.bench.memory     the memory of one forward over a long text, on the CPU
    python -m regard.bench.watch      the cost of watching every head
    python -m regard.bench.generate   text generation with a complete model
    python -m regard.bench.train      a training step of a complete model

options.py holds their command lines, settings.py what they share, timing.py and clocks.py measure time, peers.py and
twins.py hold the other libraries' layers and models.
"""
