#include "kernels/vulkan/pack_weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <vector>

#include "kernels/cpu/unpack_panels.h"
#include "tests/kernels/matrices.h"
#include "tests/kernels/panel_cases.h"

namespace ferry::vulkan {
namespace {

TEST(PackWeights, LayoutHoldsEveryRowOnce) {
  for (const bool is_gated : {false, true}) {
    for (const int64_t n : {2, 32, 34, 64, 66, 130}) {
      const PackedLayout layout{.n = n, .k = 40, .type = {WeightFormat::kBF16}, .is_gated = is_gated};
      EXPECT_EQ(layout.num_panels() % 2, 0);
      std::vector<int> seen(static_cast<std::size_t>(n));
      for (int64_t panel = 0; panel < layout.num_panels(); ++panel) {
        for (int64_t lane = 0; lane < kPanelRows; ++lane) {
          const int64_t row = layout.row_of(panel, lane);
          if (row >= 0) ++seen[static_cast<std::size_t>(row)];
        }
      }
      EXPECT_EQ(seen, std::vector<int>(static_cast<std::size_t>(n), 1)) << n;
      EXPECT_EQ(layout.bytes(), layout.num_panels() * 3 * kTileBytes);
    }
  }
}

PackedRoom room_in(std::vector<std::byte>& bytes) {
  return [&bytes](int64_t offset, int64_t size, const std::function<void(std::byte*)>& write) {
    ASSERT_LE(offset + size, std::ssize(bytes));
    write(bytes.data() + offset);
  };
}

/// All bytes of a packed matrix, where those that nobody packed are 0xEE.
template <class Weights>
std::vector<std::byte> packed(const Weights& weights, const PackedLayout& layout, ThreadPool* pool = nullptr) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(layout.bytes()), std::byte{0xEE});
  pack_weights(weights, layout, pool, room_in(bytes));
  return bytes;
}

TEST(PackWeights, TilesHoldRowsAsTheyAre) {
  const Matrix w = random_matrix(DType::kBF16, 70, 40, 1);
  const PackedLayout layout{.n = 70, .k = 40, .type = {WeightFormat::kBF16}, .is_gated = true};
  const std::vector<std::byte> bytes = packed(w.view(), layout);
  ThreadPool pool(3);
  EXPECT_EQ(packed(w.view(), layout, &pool), bytes);
  for (int64_t panel = 0; panel < layout.num_panels(); ++panel) {
    for (int64_t lane = 0; lane < kPanelRows; ++lane) {
      for (int64_t k = 0; k < 48; ++k) {
        bfloat16 element;
        std::memcpy(&element, bytes.data() + (panel * 3 + k / 16) * kTileBytes + lane * kTileRowBytes + k % 16 * 2, 2);
        const int64_t row = layout.row_of(panel, lane);
        const bool is_there = row >= 0 && k < 40;
        EXPECT_EQ(to_float(element), is_there ? to_float(w.view().row<bfloat16>(row)[k]) : 0.0F);
      }
    }
  }
}

TEST(PackWeights, Int4CodesAndWords) {
  QuantizedMatrix w{.type = {WeightFormat::kInt4, 32}, .n = 3, .k = 96, .group = 32};
  for (int64_t i = 0; i < w.n * w.k; ++i) w.codes.push_back(static_cast<uint8_t>(i * 5 % 16));
  for (int64_t i = 0; i < w.n * w.num_groups(); ++i) {
    w.scales.push_back(1.5F * static_cast<float>(1 << i));
    w.zero_points.push_back(static_cast<uint8_t>(i));
  }
  const PackedLayout layout{.n = 3, .k = 96, .type = w.type};
  const std::vector<std::byte> bytes = packed(w, layout);
  EXPECT_EQ(layout.bytes(), 2 * (2 * kTileBytes + 3 * kPanelRows * 2));
  for (int64_t row = 0; row < 3; ++row) {
    for (int64_t k = 0; k < 128; ++k) {
      const auto at = static_cast<std::size_t>(k / 64 * kTileBytes + row * kTileRowBytes + k % 64 / 8 * 4 + k % 4);
      const auto byte = static_cast<unsigned>(bytes[at]);
      EXPECT_EQ(k % 8 < 4 ? byte & 15U : byte >> 4, k < 96 ? w.codes[static_cast<std::size_t>(row * 96 + k)] : 0U);
    }
    for (int64_t group = 0; group < 3; ++group) {
      uint16_t word;
      std::memcpy(&word, bytes.data() + 2 * 2 * kTileBytes + (group * kPanelRows + row) * 2, 2);
      EXPECT_EQ(word & 15, row * 3 + group);
      EXPECT_EQ(std::bit_cast<float>(uint32_t{word} >> 4 << 19), w.scales[static_cast<std::size_t>(row * 3 + group)]);
    }
  }
}

TEST(PackWeights, PanelsOfTheCpuGiveTheBytesOfTheirCodes) {
  ThreadPool pool(3);
  for (const test::PanelCase& c : test::all_panel_cases()) {
    const QuantizedMatrix w = test::random_codes(c);
    const AlignedBuffer panels = test::pack(w, c.use);
    const PackedLayout layout{.n = c.n, .k = c.k, .type = c.type, .is_gated = c.use == WeightUse::kGated};
    for (ThreadPool* threads : {static_cast<ThreadPool*>(nullptr), &pool}) {
      std::vector<std::byte> bytes(static_cast<std::size_t>(layout.bytes()), std::byte{0xEE});
      repack_panels(test::bytes_of(panels, w, c.use), layout, threads, room_in(bytes));
      EXPECT_TRUE(bytes == packed(w, layout)) << c.text();
    }
  }
}

}  // namespace
}  // namespace ferry::vulkan
