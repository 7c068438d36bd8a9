"""Makes the links of README absolute, because PyPI resolves no others.

    python release/readme.py FOLDER TAG

The address is `Repository` in project.urls of the folder's pyproject.toml. Without one, README
stays as it is, and a line says so.
"""

import re
import sys
import tomllib
from pathlib import Path


def main(folder: Path, tag: str) -> None:
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    if address := project.get("urls", {}).get("Repository"):
        readme = folder / "README.md"
        text = re.sub(r"(!\[[^]]*\]\()(?!\w+:|#)", rf"\1{address}/raw/{tag}/", readme.read_text())
        readme.write_text(re.sub(r"(\]\()(?!\w+:|#)", rf"\1{address}/blob/{tag}/", text))
    else:
        print("README's links stay relative: expected Repository in pyproject's project.urls")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
