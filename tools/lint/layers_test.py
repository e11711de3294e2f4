#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs layers.py on made-up trees: each rule is broken once, in a tree that is otherwise right."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

TOOL = pathlib.Path(__file__).with_name("layers.py")
LAYERS = """
base:
tensor: base
ops: base tensor
kernels: base tensor
device: base ops kernels
models: base ops
runtime: base device/device.h models
tests: ops
"""
RIGHT = {
    "base/result.h": "#include <string>\n",
    "tensor/shape.h": '#include "base/result.h"\n',
    "tensor/shape_test.cc": '#include "ops/reference.h"\n#include "tests/support.h"\n#include "tensor/shape.h"\n',
    "ops/reference.h": '#include "tensor/shape.h"\n',
    "kernels/cpu/neon/table.cc": "#include <arm_neon.h>\n",
    "device/device.h": '#include "ops/reference.h"\n// The cpu is one of several.\n',
    "device/cpu/cpu.h": '#include "device/device.h"\nclass CpuDevice {};\n',
    "device/registry.cc": "make_cpu();\n",
    "models/qwen3.cc": '#include "ops/reference.h"\n',
    "runtime/engine.cc": '#include "device/device.h"\n',
}


def run(changes):
    with tempfile.TemporaryDirectory() as folder:
        src = pathlib.Path(folder)
        for name, text in {"LAYERS": LAYERS, **RIGHT, **changes}.items():
            (src / name).parent.mkdir(parents=True, exist_ok=True)
            (src / name).write_text(text)
        done = subprocess.run([sys.executable, TOOL, src], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout


class LayersTest(unittest.TestCase):
    def expect(self, changes, message):
        status, output = run(changes)
        self.assertIn(message, output)
        self.assertEqual(status, 1, output)

    def test_right_tree_passes(self):
        self.assertEqual(run({}), (0, "layers: 10 files, 0 problems\n"))

    def test_include_pointing_up(self):
        self.expect({"base/log.h": '#include "tensor/shape.h"\n'}, 'includes "tensor/shape.h", which LAYERS does not allow')

    def test_header_that_is_not_the_one_allowed(self):
        self.expect({"runtime/run.cc": '#include "device/cpu/cpu.h"\n'}, 'includes "device/cpu/cpu.h", which LAYERS')

    def test_reference_is_for_tests_only(self):
        self.expect({"tensor/view.cc": '#include "ops/reference.h"\n'}, "LAYERS does not allow")

    def test_vendor_header_away_from_home(self):
        self.expect({"device/cpu/fast.cc": "#  include <immintrin.h>\n"}, "belongs in kernels/cpu/*/")
        self.expect({"kernels/cpu/select.cc": "#include <arm_neon.h>\n"}, "belongs in kernels/cpu/*/")
        self.expect({"runtime/fetch.cc": "#include <curl/curl.h>\n"}, "belongs in hub/")

    def test_isa_code_is_sealed(self):
        self.expect({"kernels/cpu/neon/sum.cc": "#include <vector>\n"}, "which code of one ISA must not")

    def test_device_word_in_a_model(self):
        self.expect({"models/llama.cc": "void bind_cpuWeights();\nint neon;\n"}, "says 'neon'")

    def test_model_word_in_a_device(self):
        self.expect({"device/cpu/fuse.cc": "// Gemma needs this.\n"}, "says 'gemma'")

    def test_device_named_outside_the_registry(self):
        self.expect({"device/place.cc": "return VulkanDevice();\n"}, "names the device 'vulkan'")

    def test_unknown_folder_and_unknown_include(self):
        self.expect({"misc/x.h": "\n"}, "its folder is not in LAYERS")
        self.expect({"base/x.h": '#include "misc/x.h"\n'}, "not under a folder that LAYERS names")

    def test_files_that_include_each_other(self):
        self.expect({"base/a.h": '#include "base/b.h"\n', "base/b.h": '#include "base/a.h"\n'},
                    "files include each other: base/a.h -> base/b.h -> base/a.h")

    def test_folders_that_include_each_other(self):
        layers = LAYERS.replace("base:", "base: tensor")
        self.expect({"LAYERS": layers, "base/x.h": '#include "tensor/y.h"\n', "tensor/y.h": "\n"}, "folders include each other")


if __name__ == "__main__":
    unittest.main()
