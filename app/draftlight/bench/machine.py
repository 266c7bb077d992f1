"""The machine that was measured on, as far as it matters: processor, cores, memory, system, and how busy it is."""

import os
import platform
from pathlib import Path

import psutil

_CPU_FILE = Path("/proc/cpuinfo")
_GIBIBYTE = 2**30


def machine() -> dict[str, object]:
    """Return what to print about this machine."""
    return {
        "cpu": cpu_model(),
        "physical_cores": psutil.cpu_count(logical=False),
        "logical_cores": psutil.cpu_count(),
        "usable_cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else psutil.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / _GIBIBYTE, 1),
        "system": platform.platform(),
        "python": platform.python_version(),
    }


def cpu_model(file: Path = _CPU_FILE) -> str:
    """Return the processor's name: Linux keeps it in a file, elsewhere Python knows."""
    try:
        lines = file.read_text("utf-8", "replace").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def load_average() -> float:
    """Return how many processes wanted to run, on average over the last minute."""
    return round(psutil.getloadavg()[0], 2)
