"""Write a copy of a wheel that says it is another version, to try a lane for a release that is not out yet.

python tools/relabel_wheel.py executorch-1.5.1-cp311-cp311-linux_x86_64.whl 1.6.0 -o out    prints the copy's path
"""

import argparse
import base64
import hashlib
import re
import zipfile
from pathlib import Path


def relabelled(wheel: Path, version: str, folder: Path) -> Path:
    """Write the copy: another name, directory of metadata, ``METADATA``, ``version.py`` and ``RECORD``."""
    name, old, tags = wheel.name.split("-", 2)
    copy = folder / f"{name}-{version}-{tags}"
    folder.mkdir(parents=True, exist_ok=True)
    record = []
    with zipfile.ZipFile(wheel) as source, zipfile.ZipFile(copy, "w", zipfile.ZIP_STORED) as target:
        for entry in source.infolist():
            path = entry.filename.replace(f"{name}-{old}.dist-info/", f"{name}-{version}.dist-info/")
            data = source.read(entry)
            if path.endswith(".dist-info/RECORD"):
                record_entry = zipfile.ZipInfo(path, entry.date_time)
                continue
            if path.endswith(".dist-info/METADATA"):
                data = re.sub(rb"(?m)^Version: .*$", f"Version: {version}".encode(), data, count=1)
            if path == f"{name}/version.py":
                data = data.replace(old.encode(), version.encode())
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record.append(f"{path},sha256={digest},{len(data)}\n")
            renamed = zipfile.ZipInfo(path, entry.date_time)
            renamed.external_attr = entry.external_attr  # flatc may be executed
            target.writestr(renamed, data)
        record.append(f"{record_entry.filename},,\n")
        target.writestr(record_entry, "".join(record))
    return copy


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("version")
    parser.add_argument("-o", "--output", type=Path, default=Path("out"), metavar="FOLDER")
    given = parser.parse_args()
    print(relabelled(given.wheel, given.version, given.output))
