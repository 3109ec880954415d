"""What a training does to a card and no more: takes memory on device 0 by the driver's own library, says so, holds it.

    allocate.py MIB SECONDS

Prints one JSON line once the memory is taken: devices seen, the UUID of device 0, MiB. No package is needed.
"""

import ctypes
import json
import sys
import time
import uuid

MIB = 1024 * 1024


class Cuda:
    """libcuda, whose every refusal is an exception with the function's name and code."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libcuda.so.1")

    def __call__(self, name: str, *arguments: object) -> None:
        code = getattr(self._library, name)(*arguments)
        if code:
            raise SystemExit(f"{name} answered {code}")


def main(mib: int, seconds: float) -> None:
    cuda = Cuda()
    cuda("cuInit", 0)
    count, device = ctypes.c_int(), ctypes.c_int()
    cuda("cuDeviceGetCount", ctypes.byref(count))
    cuda("cuDeviceGet", ctypes.byref(device), 0)
    raw = (ctypes.c_char * 16)()
    cuda("cuDeviceGetUuid", ctypes.byref(raw), device)
    context, memory = ctypes.c_void_p(), ctypes.c_uint64()
    cuda("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    cuda("cuCtxSetCurrent", context)
    cuda("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(mib * MIB))
    cuda("cuMemsetD8_v2", memory, ctypes.c_ubyte(1), ctypes.c_size_t(mib * MIB))
    cuda("cuCtxSynchronize")
    told = {"devices": count.value, "uuid": f"GPU-{uuid.UUID(bytes=raw.raw)}", "mib": mib}
    print(json.dumps(told), flush=True)
    time.sleep(seconds)


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
