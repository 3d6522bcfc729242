#include "profiler/report/page_data/packing.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/profiler/report/page_data/unpacked_step.h"

namespace ferry {
namespace {

TEST(Packing, VarintsComeBack) {
  const std::vector<uint64_t> values = {
      0, 1, 127, 128, 255, 300, 16383, 16384, uint64_t{1} << 53, std::numeric_limits<uint64_t>::max()};
  VarintWriter writer;
  for (const uint64_t value : values) writer.put(value);
  test::VarintReader reader(writer.bytes());
  for (const uint64_t value : values) EXPECT_EQ(reader.next(), value);
  EXPECT_TRUE(reader.is_at_end());
}

TEST(Packing, TheLowBitsComeFirst) {
  VarintWriter writer;
  writer.put(300);
  EXPECT_EQ(writer.bytes(), "\xac\x02");
}

TEST(Packing, Base64IsThatOfTheStandard) {
  const std::pair<const char*, const char*> examples[] = {{"", ""},
                                                          {"f", "Zg=="},
                                                          {"fo", "Zm8="},
                                                          {"foo", "Zm9v"},
                                                          {"foob", "Zm9vYg=="},
                                                          {"fooba", "Zm9vYmE="},
                                                          {"foobar", "Zm9vYmFy"}};
  for (const auto& [bytes, text] : examples) EXPECT_EQ(encode_base64(bytes), text);
  EXPECT_EQ(encode_base64("\xff\xef\xbe"), "/+++");
}

TEST(Packing, DeflatedBytesComeBack) {
  std::string bytes;
  for (int i = 0; i < 5000; ++i) bytes += static_cast<char>(i * i % 251);
  const std::string packed = deflate_bytes(bytes);
  EXPECT_LT(packed.size(), bytes.size());
  EXPECT_EQ(test::inflate_bytes(packed), bytes);
  EXPECT_EQ(test::inflate_bytes(deflate_bytes("")), "");
}

}  // namespace
}  // namespace ferry
