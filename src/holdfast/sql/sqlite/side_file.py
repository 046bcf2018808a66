"""Files beside the database, which processes lock."""

from __future__ import annotations

import os
from pathlib import Path


def open_side_file(database: Path, path: Path) -> int:
    """Opens a file, which is made if needed, for those alone who may write the database.

    Who can open a file can lock it. A file that root makes belongs to the database's owner, as
    those that SQLite itself makes do.
    """
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        of_database, now = database.stat(), os.fstat(file)
        writers = of_database.st_mode & 0o022
        mode = 0o600 | writers | writers << 1
        if now.st_uid == os.geteuid() and now.st_mode & 0o777 != mode:
            os.fchmod(file, mode)
        if os.geteuid() == 0 and now.st_uid != of_database.st_uid:
            os.fchown(file, of_database.st_uid, of_database.st_gid)
    except BaseException:
        os.close(file)
        raise
    return file
