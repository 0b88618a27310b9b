import json
import re
import sys

import pytest

from tests.release.errors import NoIndexError, ReleaseError
from tests.release.executables import TARGETS, Target, current_target, missing_package

NO_WHEEL = (
    "pip: ERROR: Could not find a version that satisfies the requirement cffi==2.1.1 "
    "(from -r requirements.txt (line 205)) (from versions: 2.0.0)"
)
NO_INDEX = (
    "pip: WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError': /\n"
    "pip: ERROR: Could not find a version that satisfies the requirement cffi==2.1.1 "
    "(from -r requirements.txt (line 205)) (from versions: none)"
)


@pytest.mark.parametrize(
    ("target", "accepted", "rejected"),
    [
        (
            Target("linux", "amd64", 11),
            ["cp311-cp311-manylinux_2_28_x86_64", "cp311-abi3-manylinux2014_x86_64"],
            ["cp312-cp312-manylinux_2_28_x86_64", "cp311-cp311-manylinux_2_34_x86_64"],
        ),
        (
            Target("linux", "arm64", 14),
            ["cp314-cp314-manylinux_2_17_aarch64", "py3-none-any"],
            ["cp314-cp314-musllinux_1_2_aarch64", "cp314-cp314t-manylinux_2_17_aarch64"],
        ),
        (
            Target("darwin", "arm64", 13),
            ["cp313-cp313-macosx_11_0_arm64", "cp311-abi3-macosx_10_12_universal2"],
            ["cp313-cp313-macosx_13_0_arm64", "cp313-cp313-macosx_10_13_x86_64"],
        ),
    ],
)
def test_target_accepts_wheels_of_its_platform(
    target: Target, accepted: list[str], rejected: list[str]
) -> None:
    tags = json.loads(target.complete_platform())["compatible_tags"]
    assert set(accepted) <= set(tags)
    assert set(rejected).isdisjoint(tags)


def test_targets_have_different_names() -> None:
    names = [target.name for target in TARGETS]
    assert len(set(names)) == len(names) == 16
    assert all(re.fullmatch(r"(linux|darwin)-(amd64|arm64)-py31[1-4]", name) for name in names)


def test_current_target_has_minor_of_this_python() -> None:
    assert current_target().minor == sys.version_info.minor


def test_missing_package_is_that_without_wheel() -> None:
    assert missing_package(NO_WHEEL) == "cffi==2.1.1"


@pytest.mark.parametrize(
    ("output", "error"), [(NO_INDEX, NoIndexError), ("hashes do not match", ReleaseError)]
)
def test_missing_package_is_unknown_after_other_errors(
    output: str, error: type[ReleaseError]
) -> None:
    with pytest.raises(error):
        missing_package(output)
