"""Speed and memory beside the peers: every contender in one process, interleaved, checked before it is timed.

    python -m regard.bench.layer      one attention layer, forward and forward + backward
    python -m regard.bench.memory     the memory of one forward over a long text, on the CPU
    python -m regard.bench.watch      the price of seeing what every head does
    python -m regard.bench.generate   text written by a whole model
    python -m regard.bench.train      a training step of a whole model

timing.py holds the clocks, report.py says where and when, peers.py holds the contenders.
"""
