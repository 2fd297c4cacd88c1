"""Which strategy has the least expected error for a workload (stage 5)."""
