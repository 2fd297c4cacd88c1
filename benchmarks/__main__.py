"""Run every benchmark."""

from __future__ import annotations

from benchmarks import first_light

if __name__ == "__main__":
    first_light.main()
