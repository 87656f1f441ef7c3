"""Appends (or creates, renames) in copies of a workspace, each killed at another operation on its files.

Arguments: a folder of numbered copies, what to do, the first and the last number, `torn` or `whole`.
A fork of this process works on each copy: the imports, which take most of a second, are done once.
"""

from __future__ import annotations

import os
import sys


def main() -> None:
    folder, what, first, last, torn = sys.argv[1:]
    import pyarrow as pa

    import trueline as tl
    import trueline.dataset.append.append
    from tests.chain.store.watched import WatchedFiles, killing
    from trueline.chain.store import file as file_store
    from trueline.chain.store import folders
    from trueline.workspace import locations

    for at in range(int(first), int(last) + 1):
        child = os.fork()
        if child == 0:
            files = WatchedFiles()
            file_store.Files = lambda files=files: files
            folders._FILES = locations._FILES = files
            ws = tl.open(f"{folder}/{at}")
            if what == "append":
                ds = ws["trades"]
                assert ds.head
                files.forget()
                files.before = killing(at, torn=torn == "torn").before
                ds.append(pa.table({"x": [100]}), idempotency_key="k")
            elif what == "rename":
                ds = ws["trades"]
                files.forget()
                files.before = killing(at, torn=torn == "torn").before
                ds.rename("deals")
            else:
                files.forget()
                files.before = killing(at, torn=torn == "torn").before
                ws.create("trades")
            os._exit(0)
        _, status = os.waitpid(child, 0)
        how = "killed" if os.WIFSIGNALED(status) else "done" if status == 0 else "failed"
        sys.stdout.write(f"{at} {how}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
