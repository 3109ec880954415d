"""An `nvidia-smi` over the simulated driver, for the one test that runs the group for real cards without one.

Started as a program of that name; it loads pynvml as the agent does and knows the questions that we ask.
"""

from __future__ import annotations

import sys
from typing import Any

import pynvml as nvml

MIB = 1024 * 1024


def value(handle: Any, index: int, field: str) -> str:
    """What the real tool prints for one field; a field that is not simulated is `[N/A]`."""
    memory = nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2)
    known = {
        "index": str(index),
        "uuid": nvml.nvmlDeviceGetUUID(handle),
        "name": nvml.nvmlDeviceGetName(handle),
        "pci.bus_id": nvml.nvmlDeviceGetPciInfo(handle).busId,
        "memory.total": str(memory.total // MIB),
        "memory.free": str(memory.free // MIB),
        "memory.used": str(memory.used // MIB),
        "compute_mode": "Default",
        "compute_cap": "{}.{}".format(*nvml.nvmlDeviceGetCudaComputeCapability(handle)),
        "driver_version": nvml.nvmlSystemGetDriverVersion(),
    }
    return known.get(field, "[N/A]")


def main(question: str) -> None:
    """Answer one question on stdout."""
    nvml.nvmlInit()
    handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
    name, _, fields = question.partition("=")
    if name == "--query-gpu":
        for index, handle in enumerate(handles):
            print(", ".join(value(handle, index, field) for field in fields.split(",")))
    elif name == "--query-compute-apps":
        for handle in handles:
            for process in nvml.nvmlDeviceGetComputeRunningProcesses(handle):
                row = {"gpu_uuid": nvml.nvmlDeviceGetUUID(handle), "pid": process.pid}
                row["used_memory"] = process.usedGpuMemory // MIB
                print(", ".join(str(row[field]) for field in fields.split(",")))
    else:
        number = nvml.nvmlSystemGetCudaDriverVersion()
        print(f"CUDA Version                              : {number // 1000}.{number % 1000 // 10}")


if __name__ == "__main__":
    main(sys.argv[1])
