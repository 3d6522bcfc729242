#pragma once

#include <gtest/gtest.h>
#include <zlib.h>

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

// The page's packed columns read back, as its script reads them.

namespace ferry::test {

inline std::string decode_base64(const std::string& text) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  uint32_t bits = 0;
  int num_bits = 0;
  for (const char c : text) {
    if (c == '=') break;
    bits = bits << 6 | static_cast<uint32_t>(kDigits.find(c));
    num_bits += 6;
    if (num_bits < 8) continue;
    num_bits -= 8;
    bytes += static_cast<char>(bits >> num_bits & 0xff);
  }
  return bytes;
}

inline std::string inflate_bytes(const std::string& packed, std::size_t max_size = 1 << 24) {
  std::string bytes(max_size, '\0');
  uLongf size = max_size;
  EXPECT_EQ(uncompress(reinterpret_cast<Bytef*>(bytes.data()), &size, reinterpret_cast<const Bytef*>(packed.data()),
                       static_cast<uLong>(packed.size())),
            Z_OK);
  bytes.resize(size);
  return bytes;
}

class VarintReader {
 public:
  explicit VarintReader(std::string bytes) : bytes_(std::move(bytes)) {}

  uint64_t next() {
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = static_cast<uint8_t>(bytes_.at(at_++));
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
  }
  std::vector<uint64_t> column(std::size_t count) {
    std::vector<uint64_t> values(count);
    for (uint64_t& value : values) value = next();
    return values;
  }
  bool is_at_end() const { return at_ == bytes_.size(); }

 private:
  std::string bytes_;
  std::size_t at_ = 0;
};

/// Times are ns since the step's begin.
struct UnpackedStep {
  explicit UnpackedStep(const std::string& bytes) {
    VarintReader reader(bytes);
    const auto early = static_cast<int64_t>(reader.next());
    lanes.resize(reader.next());
    std::size_t count = 0;
    for (auto& [lane, size] : lanes) {
      lane = reader.next();
      size = reader.next();
      count += size;
    }
    for (auto* column : {&zone, &layer, &micro_batch, &a, &b}) *column = reader.column(count);
    for (const auto& [lane, size] : lanes) {
      int64_t at = -early;
      for (std::size_t i = 0; i < size; ++i) begin.push_back(at += static_cast<int64_t>(reader.next()));
    }
    duration = reader.column(count);
    flags = reader.column(count);
    for (auto& kind : arrows) {
      kind.resize(reader.next());
      for (auto& [from, to] : kind) {
        from = reader.next();
        to = reader.next();
      }
    }
    const std::size_t num_pieces = reader.next();
    for (auto* column : {&path_kind, &path_rank, &path_peer, &path_slice, &path_duration}) *column = reader.column(num_pieces);
    EXPECT_TRUE(reader.is_at_end());
    int64_t at = 0, place = 0;
    for (uint64_t& slice : path_slice) {
      place += slice % 2 ? -static_cast<int64_t>(slice / 2) - 1 : static_cast<int64_t>(slice / 2);
      slice = static_cast<uint64_t>(place);
    }
    for (std::size_t i = 0; i < num_pieces; ++i) {
      const uint64_t code = path_duration[i], slice = path_slice[i] - 1;
      const int64_t end = code == 0   ? begin.at(slice) + static_cast<int64_t>(duration.at(slice))
                          : code == 1 ? begin.at(path_slice.at(i + 1) - 1)
                                      : at + static_cast<int64_t>(code) - 2;
      path_duration[i] = static_cast<uint64_t>(end - at);
      at = end;
    }
  }

  std::vector<std::pair<uint64_t, uint64_t>> lanes;  // (place, number of slices)
  std::vector<uint64_t> zone, layer, micro_batch, a, b, duration, flags;
  std::vector<int64_t> begin;
  std::vector<uint64_t> path_kind, path_rank, path_peer, path_slice, path_duration;
  std::array<std::vector<std::pair<uint64_t, uint64_t>>, 3> arrows;  // to experts, to combine, messages
};

}  // namespace ferry::test
