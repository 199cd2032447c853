# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""A stand-in for pynvml: cards, links and errors as a test wants them."""

from types import SimpleNamespace

GIB = 1 << 30


class NVMLError(Exception):
    """An NVML error with its code, as pynvml raises it."""

    def __init__(self, value):
        super().__init__(f"NVML error {value}")
        self.value = value


def card(name="Tesla V100-SXM2-16GB", capability=(7, 0), users=(), links=()):
    """Return one card; ``links`` are the bus ids at the far ends of its NVLinks."""
    return SimpleNamespace(
        name=name, capability=capability, users=users, links=list(links)
    )


class FakeNvml:
    """Answers like pynvml; ``fail`` maps a function's name to the error it raises."""

    NVMLError = NVMLError
    NVML_ERROR_INVALID_ARGUMENT = 2
    NVML_ERROR_NOT_SUPPORTED = 3
    NVML_ERROR_DRIVER_NOT_LOADED = 9
    NVML_ERROR_LIBRARY_NOT_FOUND = 12
    NVML_ERROR_LIB_RM_VERSION_MISMATCH = 18
    NVML_ERROR_UNKNOWN = 999
    NVML_NVLINK_MAX_LINKS = 6
    # a tuple of one in nvidia-ml-py itself
    NVML_P2P_CAPS_INDEX_READ = (0,)
    NVML_P2P_CAPS_INDEX_WRITE = 1
    NVML_P2P_STATUS_OK = 0
    NVML_P2P_STATUS_UNKNOWN = 6

    def __init__(self, cards=(), driver="570.86.10", cuda=12080, fail=None, p2p=0):
        self.cards = list(cards)
        self.driver, self.cuda, self.p2p = driver, cuda, p2p
        self.fail = fail or {}
        self.open = 0

    def _may(self, name):
        if name in self.fail:
            raise NVMLError(self.fail[name])

    def nvmlInit(self):
        """Open the library."""
        self._may("nvmlInit")
        self.open += 1

    def nvmlShutdown(self):
        """Close the library."""
        self._may("nvmlShutdown")
        self.open -= 1

    def nvmlSystemGetDriverVersion(self):
        """Return the driver's version; older bindings return bytes."""
        return self.driver

    def nvmlSystemGetCudaDriverVersion_v2(self):
        """Return the driver's own CUDA version as one number."""
        self._may("nvmlSystemGetCudaDriverVersion_v2")
        return self.cuda

    def nvmlDeviceGetCount(self):
        """Return the number of cards."""
        self._may("nvmlDeviceGetCount")
        return len(self.cards)

    def nvmlDeviceGetHandleByIndex(self, index):
        """Return a handle, which is the index."""
        self._may(f"nvmlDeviceGetHandleByIndex {index}")
        return index

    def nvmlDeviceGetCudaComputeCapability(self, handle):
        """Return major and minor number."""
        self._may("nvmlDeviceGetCudaComputeCapability")
        return self.cards[handle].capability

    def nvmlDeviceGetMemoryInfo(self, handle):
        """Return total and used bytes."""
        self._may("nvmlDeviceGetMemoryInfo")
        return SimpleNamespace(total=16 * GIB, used=GIB)

    def nvmlDeviceGetPciInfo(self, handle):
        """Return the bus id with a domain of eight digits."""
        self._may("nvmlDeviceGetPciInfo")
        return SimpleNamespace(busId=f"00000000:{handle + 10:02X}:00.0".encode())

    def nvmlDeviceGetComputeRunningProcesses(self, handle):
        """Return the processes on a card."""
        self._may("nvmlDeviceGetComputeRunningProcesses")
        return [
            SimpleNamespace(pid=pid, usedGpuMemory=used)
            for pid, used in self.cards[handle].users
        ]

    def nvmlDeviceGetName(self, handle):
        """Return the card's name."""
        return self.cards[handle].name

    def nvmlDeviceGetUUID(self, handle):
        """Return the card's identity."""
        return f"GPU-{handle}"

    def nvmlDeviceGetNvLinkState(self, handle, link):
        """Return whether a link is active; a link past the last one is an error."""
        self._may("nvmlDeviceGetNvLinkState")
        links = self.cards[handle].links
        if link >= len(links):
            raise NVMLError(self.NVML_ERROR_INVALID_ARGUMENT)
        return links[link] is not None

    def nvmlDeviceGetNvLinkRemotePciInfo(self, handle, link):
        """Return the bus id at the far end, with a domain of four digits."""
        self._may("nvmlDeviceGetNvLinkRemotePciInfo")
        return SimpleNamespace(busId=self.cards[handle].links[link])

    def nvmlDeviceGetP2PStatus(self, a, b, index):
        """Return whether peer access works."""
        self._may("nvmlDeviceGetP2PStatus")
        assert isinstance(index, int)
        return self.p2p
