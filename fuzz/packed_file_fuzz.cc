// SPDX-License-Identifier: Apache-2.0
// Opens any bytes as a packed side file without its source, and writes the source back. Size and checksum are put right
// first, so that the checks behind them are reached.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <span>

#include "base/result.h"
#include "format/packed_file.h"
#include "tensor/packed.h"

using namespace nanomind;

namespace {

void put_right(std::span<std::byte> bytes) {
  PackedHeader header;
  if (bytes.size() < sizeof header) return;
  std::memcpy(&header, bytes.data(), sizeof header);
  const PackedHeader ours;
  std::memcpy(header.magic, ours.magic, sizeof header.magic);
  header.byte_order = ours.byte_order;
  header.image_version = kImageVersion;
  header.packed_version = kPackedVersion;
  header.file_bytes = bytes.size();
  if (header.entry_count <= (bytes.size() - sizeof header) / sizeof(PackedEntry)) {
    std::vector<PackedEntry> entries(header.entry_count);
    if (!entries.empty())
      std::memcpy(entries.data(), bytes.data() + sizeof header, entries.size() * sizeof(PackedEntry));
    header.checksum = header_checksum(header, entries);
  }
  std::memcpy(bytes.data(), &header, sizeof header);
}

void read_all(std::span<const std::byte> bytes) {
  auto image = parse_image(bytes, "input");
  if (!image) return;
  const std::vector<GgufPart> parts = image->verbatim_parts();
  const uint64_t source_bytes = image->header.source_bytes;
  auto gguf = GgufFile::parse_parts(parts, source_bytes, "input");
  if (!gguf) return;
  const auto weights = PackedWeights::bind(*std::move(image), *gguf, PackedStorage::side_file, nullptr);
  if (!weights) return;
  for (const PackedMatrix& m : weights->matrices()) {
    CHECK(weights->find(m.name) != nullptr && m.bytes.size() == packed_bytes(m.dtype, m.rows, m.columns));
  }
  (void)restore_source(weights->image(), [&](uint64_t offset, std::span<const std::byte> piece) -> Result<void> {
    CHECK(offset <= source_bytes && piece.size() <= source_bytes - offset);
    return {};
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr std::align_val_t kAlign{64};
  struct Free {
    void operator()(std::byte* p) const { ::operator delete(p, kAlign); }
  };
  const std::unique_ptr<std::byte, Free> copy(static_cast<std::byte*>(::operator new(size, kAlign)));
  if (size > 0) std::memcpy(copy.get(), data, size);
  put_right({copy.get(), size});
  read_all({copy.get(), size});
  return 0;
}
