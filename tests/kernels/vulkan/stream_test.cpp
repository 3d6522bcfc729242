#include "kernels/vulkan/vulkan_stream.h"

#include <gtest/gtest.h>

#include <numeric>
#include <stdexcept>

#include "kernels/host_rows.h"
#include "kernels/ops.h"
#include "tests/support/vulkan_device.h"

namespace ferry::vulkan {
namespace {

constexpr int64_t kCols = 100;

std::vector<float> ascending(int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  std::iota(values.begin(), values.end(), 1.0f);
  return values;
}

/// A row of a device's memory with values of the host.
Matrix row_of(Memory& memory, const std::vector<float>& values) {
  Matrix row(memory, DType::kF32, 1, std::ssize(values));
  memory.fill({row.view().data, row.view().space}, std::as_bytes(std::span(values)));
  return row;
}

std::vector<float> values_of(Stream& stream, ConstMatrixView row) {
  HostRows rows(stream, DType::kF32, 1, row.cols);
  rows.fetch(row);
  const ConstMatrixView seen = rows.look();
  return {seen.row<float>(0), seen.row<float>(0) + row.cols};
}

TEST(VulkanStream, ChainsOfOpsSeeEachOther) {
  FERRY_NEED_VULKAN_DEVICE(physical);
  test::VulkanDevice device(*physical);
  Matrix one = row_of(device.memory(), std::vector<float>(kCols, 1.0f)), sum = row_of(device.memory(), ascending(kCols));
  // More than a submission holds: the stream hands them on by itself.
  constexpr int kNumAdds = 300;
  for (int i = 0; i < kNumAdds; ++i) add(device.stream, {.a = sum.view(), .b = one.view(), .out = sum.view()});
  std::vector<float> expected = ascending(kCols);
  for (float& x : expected) x += kNumAdds;
  EXPECT_EQ(values_of(device.stream, sum.view()), expected);
  EXPECT_EQ(device.stream.num_dispatches(), kNumAdds);
}

TEST(VulkanStream, WhatIsRehearsedIsReadyAndNotComputed) {
  FERRY_NEED_VULKAN_DEVICE(physical);
  test::VulkanDevice device(*physical);
  Matrix one = row_of(device.memory(), std::vector<float>(kCols, 1.0f)), sum = row_of(device.memory(), ascending(kCols));
  std::vector<float> host(kCols, 5.0f);
  const auto work = [&] {
    for (int i = 0; i < 300; ++i) add(device.stream, {.a = sum.view(), .b = one.view(), .out = sum.view()});
    multiply(device.stream, {.a = sum.view(), .b = one.view(), .out = sum.view()});
    device.stream.clear({sum.view().data, Space::kDevice}, kCols * sizeof(float));
    copy_rows(device.stream, sum.view(), {reinterpret_cast<std::byte*>(host.data()), DType::kF32, 1, kCols, kCols});
    device.stream.wait(device.stream.submit());
  };
  const Pipelines& pipelines = device.backend.device().pipelines();
  device.stream.rehearse(work);
  EXPECT_EQ(pipelines.num_made(), 2);
  EXPECT_EQ(device.stream.num_dispatches(), 0);
  EXPECT_EQ(values_of(device.stream, sum.view()), ascending(kCols));
  EXPECT_EQ(host, std::vector<float>(kCols, 5.0f));
  work();
  EXPECT_EQ(pipelines.num_made(), 2);
  EXPECT_EQ(host, std::vector<float>(kCols, 0.0f));
  EXPECT_THROW(device.stream.rehearse([] { throw std::runtime_error("work"); }), std::runtime_error);
  add(device.stream, {.a = sum.view(), .b = one.view(), .out = sum.view()});
  EXPECT_EQ(values_of(device.stream, sum.view()), std::vector<float>(kCols, 1.0f));
}

TEST(VulkanStream, BarriersStandOnlyWhereRangesMeet) {
  FERRY_NEED_VULKAN_DEVICE(physical);
  test::VulkanDevice device(*physical);
  Matrix one = row_of(device.memory(), std::vector<float>(kCols, 1.0f));
  std::vector<Matrix> sums;
  for (int i = 0; i < 8; ++i) sums.push_back(row_of(device.memory(), std::vector<float>(kCols, static_cast<float>(i))));
  for (Matrix& sum : sums) add(device.stream, {.a = sum.view(), .b = one.view(), .out = sum.view()});
  EXPECT_EQ(device.stream.num_barriers(), 0);
  for (Matrix& sum : sums) add(device.stream, {.a = sum.view(), .b = one.view(), .out = sum.view()});
  EXPECT_EQ(device.stream.num_barriers(), 1) << "one for all eight";
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(values_of(device.stream, sums[static_cast<std::size_t>(i)].view()),
              std::vector<float>(kCols, static_cast<float>(i + 2)));
  }
}

// A barrier between two dispatches is none for a copy behind them.
TEST(VulkanStream, CopiesHaveBarriersOfTheirOwn) {
  FERRY_NEED_VULKAN_DEVICE(physical);
  test::VulkanDevice device(*physical);
  Matrix one = row_of(device.memory(), std::vector<float>(kCols, 1.0f));
  Matrix first = row_of(device.memory(), std::vector<float>(kCols)),
         second = row_of(device.memory(), std::vector<float>(kCols));
  add(device.stream, {.a = one.view(), .b = one.view(), .out = first.view()});
  add(device.stream, {.a = first.view(), .b = one.view(), .out = second.view()});
  EXPECT_EQ(device.stream.num_barriers(), 1) << "between the two";
  std::vector<float> seen(kCols);
  device.stream.copy(Address<const std::byte>(first.view().data, Space::kDevice),
                     Address<std::byte>(reinterpret_cast<std::byte*>(seen.data())), kCols * sizeof(float));
  EXPECT_EQ(device.stream.num_barriers(), 2) << "in front of the copy, though the first was before a barrier";
  add(device.stream, {.a = one.view(), .b = one.view(), .out = first.view()});
  EXPECT_EQ(device.stream.num_barriers(), 3) << "behind the copy, which reads what this writes";
  device.stream.wait(device.stream.submit());
  EXPECT_EQ(seen, std::vector<float>(kCols, 2.0f));
}

// The order within a group is the stream's to choose: reversed, what was told of comes out the same, and what was not does not.
TEST(VulkanStream, ReversedOrderShowsWhatWasNotTold) {
  FERRY_NEED_VULKAN_DEVICE(physical);
  test::VulkanDevice device(*physical);
  device.stream.set_order(VulkanStream::Order::kReversed);
  Matrix a = row_of(device.memory(), ascending(kCols));
  Matrix b = row_of(device.memory(), std::vector<float>(kCols)), c = row_of(device.memory(), std::vector<float>(kCols));
  const auto bytes = static_cast<std::size_t>(kCols) * sizeof(float);
  const auto at = [](Matrix& m) { return Address<std::byte>(m.view().data, m.view().space); };
  device.stream.copy(at(a), at(b), bytes);
  device.stream.copy(at(b), at(c), bytes);
  EXPECT_EQ(values_of(device.stream, c.view()), ascending(kCols));
  EXPECT_GE(device.stream.num_barriers(), 1);
}

TEST(VulkanStream, TheHostsBytesAreTakenAtOnceAndBroughtBackInOrder) {
  FERRY_NEED_VULKAN_DEVICE(physical);
  test::VulkanDevice device(*physical);
  Storage storage = device.memory().allocate(sizeof(int32_t));
  std::vector<int32_t> seen(200, -1);
  std::vector<Stream::Event> events;
  for (int32_t i = 0; i < 200; ++i) {
    int32_t value = i;
    const auto* bytes = reinterpret_cast<const std::byte*>(&value);
    device.stream.copy(Address<const std::byte>(bytes), storage.address(), sizeof value);
    value = -7;
    device.stream.copy(storage.address(), Address<std::byte>(reinterpret_cast<std::byte*>(&seen[static_cast<std::size_t>(i)])),
                       sizeof value);
    if (i % 3 == 0) events.push_back(device.stream.submit());
    if (i % 50 == 49) device.stream.wait(events[events.size() / 2]);
  }
  device.stream.wait(device.stream.submit());
  std::vector<int32_t> expected(200);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(seen, expected);
}

TEST(VulkanStream, ManyBytesComeBackInPieces) {
  FERRY_NEED_VULKAN_DEVICE(physical);
  test::VulkanDevice device(*physical);
  for (const int64_t count : {(int64_t{1} << 16) - 1, int64_t{1} << 16, (int64_t{1} << 16) + 1, int64_t{1} << 20}) {
    const Matrix row = row_of(device.memory(), ascending(count));
    EXPECT_TRUE(values_of(device.stream, row.view()) == ascending(count)) << count;
  }
}

TEST(VulkanStream, ClearWritesZerosThere) {
  FERRY_NEED_VULKAN_DEVICE(physical);
  test::VulkanDevice device(*physical);
  Matrix row = row_of(device.memory(), ascending(kCols));
  const Address<std::byte> first(row.view().data, row.view().space);
  device.stream.clear(first + 40, 80);
  std::vector<float> expected = ascending(kCols);
  std::fill(expected.begin() + 10, expected.begin() + 30, 0.0f);
  EXPECT_EQ(values_of(device.stream, row.view()), expected);
}

TEST(VulkanStream, WhatWasSentAlreadyIsNotSentAgain) {
  FERRY_NEED_VULKAN_DEVICE(physical);
  test::VulkanDevice device(*physical);
  VulkanStream& stream = device.stream;
  std::vector<int32_t> table = {1, 2, 3, 4, 5};
  const auto send = [&] { return stream.upload_once(std::span<const int32_t>(table)); };
  const uint64_t first = send();
  EXPECT_EQ(stream.num_uploaded_bytes(), 20);
  EXPECT_EQ(send(), first);
  stream.submit();
  EXPECT_EQ(send(), first) << "from the next submission too";
  EXPECT_EQ(stream.num_uploaded_bytes(), 20);
  table[4] = 6;
  EXPECT_NE(send(), first) << "other values";
  table.pop_back();
  EXPECT_NE(send(), first) << "fewer";
  EXPECT_EQ(stream.num_uploaded_bytes(), 56);
  stream.wait(stream.submit());
}

// The room of a submission is used again when it has run, unless a later one reads what was sent with it.
TEST(VulkanStream, WhatIsNotSentAgainStaysUntilItsLastReaderHasRun) {
  FERRY_NEED_VULKAN_DEVICE(physical);
  test::VulkanDevice device(*physical);
  VulkanStream& stream = device.stream;
  Matrix one = row_of(device.memory(), std::vector<float>(kCols, 1.0f)), sum = row_of(device.memory(), ascending(kCols));
  const auto work = [&] {
    add(stream, {.a = sum.view(), .b = one.view(), .out = sum.view()});
    return stream.submit();
  };
  const std::vector<int32_t> table = {1, 2, 3, 4, 5}, other = {6, 7, 8, 9, 10};
  const auto send = [&] { return stream.upload_once(std::span<const int32_t>(table)); };
  const auto overwrites = [&](uint64_t address) { return stream.upload(std::span<const int32_t>(other)) == address; };
  const uint64_t address = send();
  work();
  const Stream::Event second = work();
  EXPECT_EQ(send(), address);
  stream.wait(second);
  const Stream::Event third = work();
  EXPECT_FALSE(overwrites(address)) << "the third reads it";
  stream.wait(third);
  work();
  EXPECT_FALSE(overwrites(address)) << "an op of the third may have its second dispatch in the fourth";
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(send(), address) << "as long as it is asked for";
    stream.wait(work());
  }
  const int64_t num_bytes = stream.num_uploaded_bytes();
  for (int i = 0; i < 2; ++i) stream.wait(work());
  send();
  EXPECT_EQ(stream.num_uploaded_bytes(), num_bytes + 20) << "nobody read it any more";
  stream.wait(stream.submit());
}

TEST(VulkanStream, NothingSubmittedIsNothingToWaitFor) {
  FERRY_NEED_VULKAN_DEVICE(physical);
  test::VulkanDevice device(*physical);
  device.stream.wait(device.stream.submit());
}

}  // namespace
}  // namespace ferry::vulkan
