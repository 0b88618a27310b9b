"""Rounded statistics of the openb trace, from which the demo's load is drawn.

Source: openb (Alibaba; hkust-adsl/kubernetes-scheduler-simulator, Apache-2.0): 1,523 nodes and
8,152 pods. tests/sim/test_statistics.py recomputes them if the trace is available. Units:
millicores, MiB, thousandths of a GPU, seconds.
"""

from typing import Final

NODE_SHAPES: Final = (
    (96_000, 393_216, 8_000, 27),
    (104_000, 524_288, 2_000, 19),
    (32_000, 262_144, 0, 6),
    (16_000, 122_880, 2_000, 5),
    (96_000, 524_288, 0, 3),
    (128_000, 786_432, 8_000, 2),
    (96_000, 393_216, 0, 1),
    (32_000, 131_072, 4_000, 1),
)
"""CPU, memory, GPU, count: the eight most common shapes (87 % of the nodes), scaled to 64."""
POD_SHAPES: Final = (
    (3_152, 5_600, 810, 170),
    (11_300, 49_152, 1_000, 139),
    (11_400, 48_128, 1_000, 87),
    (3_152, 5_600, 1_000, 76),
    (11_908, 47_104, 470, 63),
    (12_500, 57_344, 0, 59),
    (8_000, 30_517, 470, 58),
    (32_000, 49_152, 0, 46),
    (18_708, 64_512, 1_000, 41),
    (11_908, 47_104, 650, 38),
    (9_810, 41_560, 1_000, 32),
    (8_000, 30_517, 0, 26),
    (12_000, 24_576, 1_000, 26),
    (15_700, 58_368, 1_000, 26),
    (11_908, 47_104, 1_000, 25),
    (15_400, 51_200, 0, 19),
    (4_000, 22_888, 320, 18),
    (16_000, 32_768, 1_000, 17),
    (4_000, 24_576, 1_000, 17),
    (8_000, 16_384, 1_000, 17),
)
"""CPU, memory, GPU, weight: the twenty most common shapes (76 % of the pods), scaled to 1,000.

Left out are, among others, the 1 % of pods that request two to eight whole GPUs.
"""
LIFE_SECONDS: Final = (
    10, 48, 80, 112, 146, 167, 202, 244, 301, 406, 540, 691, 883, 1122, 1422, 1974, 2700, 4006,
    6574, 16_425, 99_719,
)  # fmt: skip
"""Quantiles of lifetimes (deletion_time - creation_time): 0 %, 5 %, ... 95 %, and 99 %.

The first quantile is 0 in the trace. The longest 1 % of lifetimes, up to 145 days, is cut. It
makes up most of the mean, which is 7.18 hours in the trace and about one hour in this table.
"""
WAVE_PERCENT: Final = (
    152, 134, 107, 128, 125, 94, 86, 97, 71, 43, 65, 60, 45, 44, 40, 80, 89, 125, 162, 137, 104,
    127, 127, 158,
)  # fmt: skip
"""Arrivals in each hour of the day, relative to their mean."""
