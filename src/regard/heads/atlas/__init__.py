"""What every head does over a corpus: sums, quantiles, jobs and examples that can be added, saved and compared."""
