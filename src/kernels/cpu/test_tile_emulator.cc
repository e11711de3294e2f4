// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/test_tile_emulator.h"

#include <signal.h>
#include <ucontext.h>

#include <bit>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace nanomind {
namespace {

constexpr int kTiles = 8, kMaxRows = 16, kRowBytes = 64;

struct Tile {
  int rows, row_bytes;  // 0: not configured
  uint8_t data[kMaxRows][kRowBytes];
};

// A signal handler has no other context than this. Zero at the start, as after TILERELEASE.
thread_local Tile tiles[kTiles];  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables)

using Registers = greg_t[NGREG];

// A VEX instruction of map 0F38 in its three-byte form, which all tile instructions have.
struct Instruction {
  int prefix;  // 0: none, 1: 66, 2: F3, 3: F2
  int opcode;
  int mod, reg, rm;  // ModRM, with the upper bits of reg and rm from VEX
  int vvvv;
  uint64_t base;    // of the memory operand, displacement included
  uint64_t stride;  // its index register times the scale
  const uint8_t* end;
};

// Number of a general register in an instruction to its place in a signal's context.
uint64_t general(const Registers& registers, int number) {
  static constexpr int kPlaces[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                                      REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
  return static_cast<uint64_t>(registers[kPlaces[number]]);
}

int64_t signed_bytes(const uint8_t* at, int count) {
  if (count == 1) return static_cast<int8_t>(*at);
  int32_t value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

// The memory operand; SDM vol. 2, "Instruction Format". `at` is behind ModRM, `index_high` the fourth bit of an index.
void decode_memory(const Registers& registers, const uint8_t* at, int index_high, Instruction& i) {
  const int mod = i.mod;
  int base = i.rm;
  i.stride = 0;
  if ((base & 7) == 4) {
    const int sib = *at++;
    const int index = (sib >> 3 & 7) | index_high;
    if (index != 4) i.stride = general(registers, index) << (sib >> 6);
    base = (sib & 7) | (base & 8);
  } else if (mod == 0 && (base & 7) == 5) {
    i.end = at + 4;
    i.base = reinterpret_cast<uint64_t>(i.end) + static_cast<uint64_t>(signed_bytes(at, 4));
    return;
  }
  const bool no_base = mod == 0 && (base & 7) == 5;
  const int bytes = mod == 1 ? 1 : mod == 2 || no_base ? 4 : 0;
  i.base = (no_base ? 0 : general(registers, base)) + static_cast<uint64_t>(bytes == 0 ? 0 : signed_bytes(at, bytes));
  i.end = at + bytes;
}

bool decode(const Registers& registers, Instruction& i) {
  const auto* at = reinterpret_cast<const uint8_t*>(registers[REG_RIP]);
  if (at[0] != 0xC4 || (at[1] & 0x1F) != 2 || (at[2] & 0x84) != 0) return false;  // map 0F38, W = 0, L = 0
  i.prefix = at[2] & 3;
  i.vvvv = ~at[2] >> 3 & 15;
  i.opcode = at[3];
  i.mod = at[4] >> 6;
  i.reg = (at[4] >> 3 & 7) | (~at[1] >> 4 & 8);
  i.rm = (at[4] & 7) | (~at[1] >> 2 & 8);
  i.end = at + 5;
  if (i.mod != 3) decode_memory(registers, at + 5, ~at[1] >> 3 & 8, i);
  return true;
}

bool load_configuration(const uint8_t* config) {
  const int palette = config[0];
  if (palette > 1 || config[1] != 0) return false;
  for (int i = 2; i < 16; ++i) {
    if (config[i] != 0) return false;
  }
  std::memset(tiles, 0, sizeof tiles);
  if (palette == 0) return true;
  for (int t = 0; t < 16; ++t) {
    uint16_t row_bytes;
    std::memcpy(&row_bytes, config + 16 + 2 * t, sizeof row_bytes);
    const int rows = config[48 + t];
    if (rows > kMaxRows || row_bytes > kRowBytes || (rows == 0) != (row_bytes == 0) || (t >= kTiles && rows != 0)) {
      return false;
    }
    if (t < kTiles) {
      tiles[t].rows = rows;
      tiles[t].row_bytes = row_bytes;
    }
  }
  return true;
}

bool load(Tile& tile, const uint8_t* from, uint64_t stride) {
  if (tile.rows == 0) return false;
  std::memset(tile.data, 0, sizeof tile.data);
  for (int r = 0; r < tile.rows; ++r) {
    std::memcpy(tile.data[r], from + static_cast<uint64_t>(r) * stride, static_cast<size_t>(tile.row_bytes));
  }
  return true;
}

bool store(const Tile& tile, uint8_t* to, uint64_t stride) {
  if (tile.rows == 0) return false;
  for (int r = 0; r < tile.rows; ++r) {
    std::memcpy(to + static_cast<uint64_t>(r) * stride, tile.data[r], static_cast<size_t>(tile.row_bytes));
  }
  return true;
}

// Numbers below the normal ones count as zero on both sides of the instruction.
float flush(float x) { return std::abs(x) < FLT_MIN ? std::copysign(0.0f, x) : x; }

float bf16_at(const uint8_t* row, int index) {
  uint16_t bits;
  std::memcpy(&bits, row + 2 * index, sizeof bits);
  return flush(std::bit_cast<float>(static_cast<uint32_t>(bits) << 16));
}

// c += a * b: even and odd columns of a are summed apart, then together, then with c. Products of bf16 numbers are
// exact in float.
bool multiply(Tile& c, const Tile& a, const Tile& b) {
  const int pairs = a.row_bytes / 4, columns = c.row_bytes / 4;
  if (c.rows == 0 || a.rows == 0 || b.rows == 0 || &c == &a || &c == &b || &a == &b) return false;
  if (c.rows != a.rows || c.row_bytes != b.row_bytes || b.rows != pairs) return false;
  if (a.row_bytes % 4 != 0 || b.row_bytes % 4 != 0) return false;
  float numbers[kMaxRows][2 * kMaxRows];
  for (int k = 0; k < pairs; ++k) {
    for (int n = 0; n < 2 * columns; ++n) numbers[k][n] = bf16_at(b.data[k], n);
  }
  for (int m = 0; m < c.rows; ++m) {
    float sums[2 * kMaxRows] = {};
    for (int k = 0; k < pairs; ++k) {
      const float x[2] = {bf16_at(a.data[m], 2 * k), bf16_at(a.data[m], 2 * k + 1)};
      for (int n = 0; n < 2 * columns; ++n) sums[n] = flush(sums[n] + x[n % 2] * numbers[k][n]);
    }
    for (int n = 0; n < columns; ++n) {
      float total;
      std::memcpy(&total, c.data[m] + 4 * n, sizeof total);
      total = flush(flush(total) + flush(sums[2 * n] + sums[2 * n + 1]));
      std::memcpy(c.data[m] + 4 * n, &total, sizeof total);
    }
  }
  return true;
}

// False: not a tile instruction, or one that the processor would refuse.
bool run(const Instruction& i) {
  enum { kNone, k66, kF3, kF2 };
  auto* memory = reinterpret_cast<uint8_t*>(i.base);
  const bool in_memory = i.mod != 3;
  if (i.reg >= kTiles) return false;
  if (i.opcode == 0x49 && i.prefix == kNone && in_memory) return i.reg == 0 && load_configuration(memory);
  if (i.opcode == 0x49 && i.prefix == kNone) {  // TILERELEASE
    std::memset(tiles, 0, sizeof tiles);
    return i.reg == 0 && i.rm == 0;
  }
  if (i.opcode == 0x49 && i.prefix == kF2 && !in_memory) {  // TILEZERO
    std::memset(tiles[i.reg].data, 0, sizeof tiles[i.reg].data);
    return tiles[i.reg].rows != 0;
  }
  if (i.opcode == 0x4B && i.prefix == kF2 && in_memory) return load(tiles[i.reg], memory, i.stride);
  if (i.opcode == 0x4B && i.prefix == kF3 && in_memory) return store(tiles[i.reg], memory, i.stride);
  if (i.opcode == 0x5C && i.prefix == kF3 && !in_memory && i.rm < kTiles && i.vvvv < kTiles) {
    return multiply(tiles[i.reg], tiles[i.rm], tiles[i.vvvv]);
  }
  return false;
}

void on_illegal_instruction(int, siginfo_t*, void* context) {
  Registers& registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  Instruction instruction{};
  if (decode(registers, instruction) && run(instruction)) {
    registers[REG_RIP] = reinterpret_cast<greg_t>(instruction.end);
    return;
  }
  signal(SIGILL, SIG_DFL);  // and the instruction runs into it
}

}  // namespace

void emulate_tiles() {
  struct sigaction action{};
  action.sa_sigaction = on_illegal_instruction;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGILL, &action, nullptr);
}

}  // namespace nanomind
