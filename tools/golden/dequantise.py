# SPDX-License-Identifier: Apache-2.0
"""Writes a GGUF file again with every tensor as F32: what another program's float path is measured with.

    dequantise.py MODEL.gguf OUT.gguf
"""

import argparse

import gguf
import numpy as np


def copy_field(writer, field, value):
    kind = field.types[0]
    writer.add_key_value(field.name, value, kind, sub_type=field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("out")
    arguments = parser.parse_args()
    reader = gguf.GGUFReader(arguments.model)
    writer = gguf.GGUFWriter(arguments.out, reader.fields["general.architecture"].contents())
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name in ("general.architecture", "general.file_type"):
            continue
        copy_field(writer, field, field.contents())
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    for tensor in reader.tensors:
        shape = [int(n) for n in reversed(tensor.shape)]
        writer.add_tensor_info(tensor.name, shape, np.dtype(np.float32), 4 * int(tensor.n_elements))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for tensor in reader.tensors:
        writer.write_tensor_data(gguf.dequantize(tensor.data, tensor.tensor_type))
    writer.close()


if __name__ == "__main__":
    main()
