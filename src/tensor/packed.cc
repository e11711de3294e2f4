// SPDX-License-Identifier: Apache-2.0
// The loops over blocks, rows and runs of codes that all types share; what differs between types: packed_types.h,
// packed_types_k.h and packed_types_table.h.
#include "tensor/packed.h"

#include <algorithm>
#include <cstring>

#include "base/result.h"
#include "tensor/half.h"
#include "tensor/packed_layout.h"
#include "tensor/packed_types.h"
#include "tensor/packed_types_k.h"
#include "tensor/packed_types_table.h"

namespace nanomind {
namespace {

// A codec does three things with a group; quantised types share one, floats the other.
template <typename Type>
struct QuantizedCodec {
  using Packed = typename Type::Packed;
  static constexpr int kBlocks = Packed::kColumns / (kUnitColumns * Type::kUnits);  // GGUF blocks in a packed one
  static constexpr PackedTraits kTraits{Packed::kColumns, sizeof(Packed)};

  static void pack(const uint8_t* source, int rows, int64_t columns, Packed* group) {
    const int64_t blocks = columns / (kUnitColumns * Type::kUnits);
    const int64_t stride = blocks * static_cast<int64_t>(sizeof(typename Type::Block));
    std::memset(group, 0, static_cast<size_t>((blocks + kBlocks - 1) / kBlocks) * sizeof(Packed));
    for (int64_t i = 0; i < blocks; ++i) {
      for (int row = 0; row < rows; ++row) {
        const uint8_t* block = source + row * stride + i * static_cast<int64_t>(sizeof(typename Type::Block));
        const int first_unit = static_cast<int>(i % kBlocks) * Type::kUnits;
        for (int unit = 0; unit < Type::kUnits; ++unit) {
          for (int run = 0; run < packed::kRuns; ++run) {
            Type::put(group[i / kBlocks], first_unit + unit, run, row, Type::load_run(block, unit, run));
          }
        }
        Type::pack_scales(block, group[i / kBlocks], first_unit, row);
      }
    }
  }

  static void unpack(const Packed* group, int rows, int64_t columns, uint8_t* target) {
    const int64_t blocks = columns / (kUnitColumns * Type::kUnits);
    std::memset(target, 0, static_cast<size_t>(rows * blocks) * sizeof(typename Type::Block));
    for (int row = 0; row < rows; ++row) {
      for (int64_t i = 0; i < blocks; ++i, target += sizeof(typename Type::Block)) {
        const int first_unit = static_cast<int>(i % kBlocks) * Type::kUnits;
        for (int unit = 0; unit < Type::kUnits; ++unit) {
          for (int run = 0; run < packed::kRuns; ++run) {
            Type::store_run(target, unit, run, Type::get(group[i / kBlocks], first_unit + unit, run, row));
          }
        }
        Type::unpack_scales(group[i / kBlocks], first_unit, row, target);
      }
    }
  }

  static void to_float(const Packed* group, int row, int64_t columns, float* out) {
    for (int64_t column = 0; column < columns; column += 8) {
      const Packed& block = group[column / Packed::kColumns];
      const int unit = static_cast<int>(column % Packed::kColumns) / kUnitColumns;
      const int run = static_cast<int>(column % kUnitColumns) / 8;
      const packed::Affine a = Type::affine(block, unit, run / 2, row);
      const uint64_t q = Type::get(block, unit, run, row);
      for (int i = 0; i < 8; ++i) {
        out[column + i] = a.scale * static_cast<float>(value(q >> 8 * i & 255) - a.zero) + a.offset;
      }
    }
  }

 private:
  static int value(uint64_t code) {
    if constexpr (requires { Type::kValues; }) return Type::kValues[code];
    return static_cast<int>(code);
  }
};

template <typename PackedType, typename Element, float (*widen)(Element)>
struct FloatCodec {
  using Packed = PackedType;
  static constexpr PackedTraits kTraits{Packed::kColumns, sizeof(Packed)};

  static void pack(const uint8_t* source, int rows, int64_t columns, Packed* group) {
    for (int64_t first = 0; first < columns; first += Packed::kColumns) {
      Packed& block = group[first / Packed::kColumns];
      const int count = static_cast<int>(std::min<int64_t>(Packed::kColumns, columns - first));
      if (rows < kGroupRows || count < Packed::kColumns) std::memset(&block, 0, sizeof block);
      for (int row = 0; row < rows; ++row) {
        const uint8_t* from = source + (row * columns + first) * static_cast<int64_t>(sizeof(Element));
        for (int c = 0; c < count; ++c) block.w[c][row] = packed::load<Element>(from + c * sizeof(Element));
      }
    }
  }

  static void unpack(const Packed* group, int rows, int64_t columns, uint8_t* target) {
    for (int row = 0; row < rows; ++row) {
      for (int64_t c = 0; c < columns; ++c, target += sizeof(Element)) packed::store(target, at(group, row, c));
    }
  }

  static void to_float(const Packed* group, int row, int64_t columns, float* out) {
    for (int64_t c = 0; c < columns; ++c) out[c] = widen(at(group, row, c));
  }

 private:
  static Element at(const Packed* group, int row, int64_t column) {
    return group[column / Packed::kColumns].w[column % Packed::kColumns][row];
  }
};

float keep(float x) { return x; }

// Calls f with an object of the dtype's codec.
template <typename F>
auto with_codec(DType dtype, const F& f) {
  switch (dtype) {
    case DType::f32: return f(FloatCodec<PackedFloat, float, keep>());
    case DType::f16: return f(FloatCodec<PackedHalf, uint16_t, float_from_half>());
    case DType::bf16: return f(FloatCodec<PackedHalf, uint16_t, float_from_bf16>());
    case DType::q4_0: return f(QuantizedCodec<packed::Q4_0>());
    case DType::q4_1: return f(QuantizedCodec<packed::Q4_1>());
    case DType::q5_0: return f(QuantizedCodec<packed::Q5_0>());
    case DType::q5_1: return f(QuantizedCodec<packed::Q5_1>());
    case DType::q8_0: return f(QuantizedCodec<packed::Q8_0>());
    case DType::q2_k: return f(QuantizedCodec<packed::Q2_K>());
    case DType::q3_k: return f(QuantizedCodec<packed::Q3_K>());
    case DType::q4_k: return f(QuantizedCodec<packed::Q4_K>());
    case DType::q5_k: return f(QuantizedCodec<packed::Q5_K>());
    case DType::q6_k: return f(QuantizedCodec<packed::Q6_K>());
    case DType::iq4_nl: return f(QuantizedCodec<packed::IQ4_NL>());
    case DType::iq4_xs: return f(QuantizedCodec<packed::IQ4_XS>());
    case DType::mxfp4: return f(QuantizedCodec<packed::MXFP4>());
  }
  CHECK(!"a known dtype");
  __builtin_unreachable();
}

}  // namespace

const PackedTraits& packed_traits(DType dtype) {
  return *with_codec(dtype, [](auto codec) -> const PackedTraits* { return &decltype(codec)::kTraits; });
}

size_t packed_group_bytes(DType dtype, int64_t columns) {
  const PackedTraits& t = packed_traits(dtype);
  return (static_cast<size_t>(columns) + t.block_columns - 1) / t.block_columns * t.block_bytes;
}

size_t packed_bytes(DType dtype, int64_t rows, int64_t columns) {
  return static_cast<size_t>((rows + kGroupRows - 1) / kGroupRows) * packed_group_bytes(dtype, columns);
}

void pack_group(DType dtype, const std::byte* source, int rows, int64_t columns, std::byte* group) {
  CHECK(rows >= 1 && rows <= kGroupRows && columns % traits(dtype).block_columns == 0);
  with_codec(dtype, [&]<typename Codec>(Codec) {
    Codec::pack(reinterpret_cast<const uint8_t*>(source), rows, columns,
                reinterpret_cast<typename Codec::Packed*>(group));
  });
}

void unpack_group(DType dtype, const std::byte* group, int rows, int64_t columns, std::byte* target) {
  CHECK(rows >= 1 && rows <= kGroupRows && columns % traits(dtype).block_columns == 0);
  with_codec(dtype, [&]<typename Codec>(Codec) {
    Codec::unpack(reinterpret_cast<const typename Codec::Packed*>(group), rows, columns,
                  reinterpret_cast<uint8_t*>(target));
  });
}

void packed_row_to_float(DType dtype, std::span<const std::byte> matrix, int64_t row, int64_t columns, float* out) {
  const size_t group_bytes = packed_group_bytes(dtype, columns);
  const size_t offset = static_cast<size_t>(row / kGroupRows) * group_bytes;
  CHECK(row >= 0 && offset + group_bytes <= matrix.size());
  with_codec(dtype, [&]<typename Codec>(Codec) {
    const auto* group = reinterpret_cast<const typename Codec::Packed*>(matrix.data() + offset);
    Codec::to_float(group, static_cast<int>(row % kGroupRows), columns, out);
  });
}

}  // namespace nanomind
