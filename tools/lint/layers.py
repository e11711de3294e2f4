#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks who includes whom, against src/LAYERS, and which words stay in which folders.

Prints one line per violation and exits with 1 if there is any. Takes the source folder as its only argument (default: the
src beside tools/), so that its own test can run it on made-up trees.
"""
import pathlib
import re
import sys

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', re.M)
SUFFIXES = {".cc", ".h"}

# Header (a regular expression) -> where it may be included (prefixes of the path from src/).
HOMES = [
    (r"(imm|[a-z]mm|avx\w*|x86)intrin\.h", ["kernels/cpu/*/"]),
    (r"arm_\w+\.h", ["kernels/cpu/*/"]),
    (r"curl/.*", ["hub/"]),
    (r"openssl/.*", ["base/", "hub/"]),
    (r"sys/socket\.h|netdb\.h|netinet/.*|arpa/inet\.h", ["hub/"]),
    (r"zip\.h", ["hub/"]),
    (r"j(peglib|error)\.h|png\.h|webp/.*|gif_lib\.h|libexif/.*", ["media/"]),
    (r"linux/videodev2\.h", ["media/camera/"]),
    (r"nlohmann/.*", ["base/json.h", "hub/", "cli/"]),
    (r"CLI/.*", ["cli/"]),
    (r"pcre2\.h", ["text/"]),
    (r"utf8proc\.h", ["text/"]),
    (r"rknn_api\.h", ["device/rknn/"]),
    (r"acl/.*", ["device/ascend/"]),
    (r"vulkan/.*", ["device/vulkan/"]),
    (r"CL/.*", ["device/opencl/"]),
]

# Code of an ISA is compiled with flags that not every CPU of ours has, so it stays away from what the linker may share with the
# rest of the program: inline functions of the standard library and of other folders.
SEALED = "kernels/cpu/*/"
SEALED_MAY_INCLUDE = re.compile(r"c(std\w+|float|limits|math|string)|bit|\w*intrin\.h|arm_\w+\.h|asm/\w+\.h|sys/syscall\.h|unistd\.h|"
                                r"kernels/cpu/.*|tensor/(half|block|packed_layout)\.h")

# Models record and devices compile: neither knows the other's words. Matched as parts of snake_case or PascalCase names.
DEVICE_WORDS = "avx avx2 avx512 neon cuda cpu gpu npu opencl vulkan rknn ascend amx sve dotprod i8mm simd".split()
MODEL_WORDS = "llama qwen qwen2 qwen3 gemma gemma3 smollm siglip whisper kokoro mistral phi3".split()
# In device/, only the registry names the devices there are.
CONCRETE_DEVICES = ["cpu", "sim", "vulkan", "opencl", "rknn", "ascend"]


def read_layers(path):
    """{folder: [what it may include]} of a LAYERS file."""
    layers = {}
    for line in path.read_text().splitlines():
        line = line.split("#")[0].strip()
        if line:
            folder, _, allowed = line.partition(":")
            layers[folder.strip()] = allowed.split()
    return layers


def is_test(path):
    return path.stem.endswith(("_test", "_bench", "_test_support")) or path.stem.startswith("test_")


def matches(path, prefix):
    """True if `path` is under `prefix`, in which '*' stands for one folder."""
    return re.match(re.escape(prefix).replace(r"\*", "[^/]+"), path) is not None


def may_include(layers, path, target):
    folder, target_folder = path.parts[0], target.split("/")[0]
    allowed = layers.get(folder, []) + (layers.get("tests", []) if is_test(path) else [])
    return target_folder == folder or any(a == target_folder or a == target for a in allowed)


def check_includes(layers, path, includes):
    for bracket, target in includes:
        for pattern, homes in HOMES:
            # Tests read expected values and play servers, so only what belongs to one processor is kept from them.
            allowed_in_tests = is_test(path) and "intrin" not in pattern and "arm_" not in pattern
            if re.fullmatch(pattern, target) and not allowed_in_tests and not any(matches(str(path), home) for home in homes):
                yield f"includes <{target}>, which belongs in {' or '.join(homes)}"
        if matches(str(path), SEALED) and not is_test(path) and not SEALED_MAY_INCLUDE.fullmatch(target):
            yield f"includes {target}, which code of one ISA must not (see SEALED in tools/lint/layers.py)"
        if bracket == "<":
            continue
        if not (target.split("/")[0] in layers or (is_test(path) and target.startswith("tests/"))):
            yield f'includes "{target}", which is not under a folder that LAYERS names'
        elif not (is_test(path) and target.startswith("tests/")) and not may_include(layers, path, target):
            yield f'includes "{target}", which LAYERS does not allow'
        if target.endswith(".cc"):
            yield f'includes "{target}"; only headers are included'


def strip_text(source):
    """The source without comments and string literals, so that only names are left."""
    return re.sub(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', '""', source, flags=re.S)


def words_of(text):
    """The lower-case parts of all names in `text`: KvCache_q8 gives kv, cache, q8."""
    text = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", text)
    return {word.lower() for word in re.findall(r"[A-Za-z][A-Za-z0-9]*", text.replace("_", " "))}


def check_words(path, source):
    name = str(path)
    if name.startswith("models/"):
        for word in sorted(words_of(source) & set(DEVICE_WORDS)):
            yield f"says '{word}'; models know no devices"
    if name.startswith("device/") and not is_test(path):
        for word in sorted(words_of(source) & set(MODEL_WORDS)):
            yield f"says '{word}'; devices know no models"
        if len(path.parts) == 2 and name != "device/registry.cc":
            for word in sorted(words_of(strip_text(source)) & set(CONCRETE_DEVICES)):
                yield f"names the device '{word}', which only device/registry.cc does"


def find_cycle(edges):
    """One cycle of the graph {node: {nodes}} as a list, or None."""
    state, trail = {}, []

    def visit(node):
        state[node] = "open"
        trail.append(node)
        for following in sorted(edges.get(node, ())):
            if state.get(following) == "open":
                return trail[trail.index(following):] + [following]
            if following not in state and (cycle := visit(following)):
                return cycle
        state[node] = "done"
        trail.pop()
        return None

    for node in sorted(edges):
        if node not in state and (cycle := visit(node)):
            return cycle
    return None


def main():
    src = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).parents[2] / "src"
    layers = read_layers(src / "LAYERS")
    problems, file_edges, folder_edges = [], {}, {}
    files = sorted(p.relative_to(src) for p in src.rglob("*") if p.suffix in SUFFIXES)
    for path in files:
        source = (src / path).read_text(errors="replace")
        includes = INCLUDE.findall(source)
        if path.parts[0] not in layers:
            problems.append(f"{path}: its folder is not in LAYERS")
        for problem in [*check_includes(layers, path, includes), *check_words(path, source)]:
            problems.append(f"{path}: {problem}")
        if not is_test(path):
            targets = {target for bracket, target in includes if bracket == '"'}
            file_edges[str(path)] = targets
            folder = path.parts[0]
            folder_edges.setdefault(folder, set()).update({t.split("/")[0] for t in targets} - {folder})
    for what, edges in (("files", file_edges), ("folders", folder_edges)):
        if cycle := find_cycle(edges):
            problems.append(f"{what} include each other: {' -> '.join(cycle)}")
    for problem in problems:
        print(f"src/{problem}")
    print(f"layers: {len(files)} files, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
