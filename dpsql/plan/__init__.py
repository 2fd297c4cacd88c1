"""Decisions from public facts: workloads, strategies and their exact expected errors."""

from dpsql.plan.select import select
from dpsql.plan.strategy import Strategy
from dpsql.plan.workload import Product, Workload

__all__ = ["Product", "Strategy", "Workload", "select"]
