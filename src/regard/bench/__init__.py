"""Speed and memory beside the peers: every contender in one process, interleaved, checked before it is timed.

    python -m regard.bench.layer      one attention layer, forward and forward + backward
    python -m regard.bench.memory     the memory of one forward over a long text, on the CPU

timing.py holds the clocks, report.py says where and when, peers.py holds the contenders.
"""
