"""Makes equal jobs equal on a virtual machine, whatever memory it gave back to its host before."""

import os


class FreeMemory:
    """Free memory, turned into page cache that can be dropped.

    A virtual machine gives pages that are free for some seconds back to its host, and the first use of such a page
    costs several times the copy into it. Which contender meets them is chance, unless none are free.
    """

    LEFT = 1 << 30

    def __init__(self, folder):
        self.path = os.path.join(folder, "hole")
        self.at, self.size = 0, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        with open(self.path, "wb") as file:
            file.truncate(self.size)

    def fill(self):
        """Reads a sparse file into the page cache until less than a GiB is free."""
        buffer = bytearray(16 << 20)
        with open(self.path, "rb", buffering=0) as file:
            for _ in range(self.size // len(buffer)):
                if self.free() < self.LEFT:
                    return
                file.seek(self.at)
                read = file.readinto(buffer)
                self.at = 0 if read < len(buffer) else self.at + read

    def remove(self):
        """Removes the file, and with it its pages."""
        os.remove(self.path)

    @staticmethod
    def free():
        for line in open("/proc/meminfo"):
            if line.startswith("MemFree:"):
                return int(line.split()[1]) << 10
        return 0
