"""Makes the Python wheel of a built program. maturin makes the same from source (packaging/pyproject.toml).

usage: wheel.py BINARY TARGET OUT SECONDS
"""

import base64
import hashlib
import pathlib
import re
import sys
import time
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
NAME = "overnight_runner"


def platforms(binary, target):
    """The platform tags: of the C library that the program needs, or both kinds where it needs none."""
    processor = target.split("-")[0]
    needed = [int(minor) for minor in re.findall(rb"GLIBC_2\.(\d+)", binary)]
    if b"/ld-musl-" in binary or b"/ld-linux" not in binary:
        return [f"manylinux2014_{processor}", f"musllinux_1_1_{processor}"]
    return [f"manylinux_2_{max(needed)}_{processor}"]


def main():
    path, target, out, stamp = sys.argv[1:]
    binary = pathlib.Path(path).read_bytes()
    manifest = (HERE.parent / "Cargo.toml").read_text()
    version = re.search(r'^version = "(.*)"$', manifest, re.M)[1]
    summary = re.search(r'^description = "(.*)"$', manifest, re.M)[1]
    tags = platforms(binary, target)
    info = f"{NAME}-{version}.dist-info"
    metadata = (
        f"Metadata-Version: 2.4\nName: overnight-runner\nVersion: {version}\nSummary: {summary}\n"
        f"License-Expression: MIT\nLicense-File: LICENSE\nRequires-Python: >=3.8\n"
        f"Description-Content-Type: text/markdown\n\n{(HERE.parent / 'README.md').read_text()}"
    )
    wheel = "Wheel-Version: 1.0\nGenerator: overnight packaging\nRoot-Is-Purelib: false\n"
    wheel += "".join(f"Tag: py3-none-{tag}\n" for tag in tags)
    files = {
        f"{NAME}-{version}.data/scripts/overnight": (binary, 0o100755),
        f"{info}/METADATA": (metadata.encode(), 0o100644),
        f"{info}/WHEEL": (wheel.encode(), 0o100644),
        f"{info}/licenses/LICENSE": ((HERE.parent / "LICENSE").read_bytes(), 0o100644),
    }
    record = f"{info}/RECORD"
    lines = []
    for name, (data, _) in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(data)}\n")
    files[record] = (("".join(lines) + f"{record},,\n").encode(), 0o100644)
    # Zip files know no time before 1980.
    when = time.gmtime(max(int(stamp), 315619200))[:6]
    target_file = pathlib.Path(out) / f"{NAME}-{version}-py3-none-{'.'.join(tags)}.whl"
    with zipfile.ZipFile(target_file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, (data, mode) in files.items():
            entry = zipfile.ZipInfo(name, when)
            entry.external_attr = mode << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)


main()
