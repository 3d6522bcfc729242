#include "kernels/vulkan/pipelines.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>

#include "kernels/ops.h"
#include "kernels/vulkan/pipeline_file.h"
#include "tests/support/temp_folder.h"
#include "tests/support/vulkan_device.h"

namespace ferry::vulkan {
namespace {

constexpr PipelineOwner kOwner{.vendor_id = 0x10de, .device_id = 0x2330, .driver_uuid = {1, 2, 3}};

/// As a driver writes them: the header of Vulkan, then what is its own.
std::vector<std::byte> driver_data(const PipelineOwner& owner, std::size_t num_own_bytes) {
  VkPipelineCacheHeaderVersionOne header{.headerSize = sizeof(header),
                                         .headerVersion = VK_PIPELINE_CACHE_HEADER_VERSION_ONE,
                                         .vendorID = owner.vendor_id,
                                         .deviceID = owner.device_id,
                                         .pipelineCacheUUID = {}};
  std::memcpy(header.pipelineCacheUUID, owner.driver_uuid.data(), owner.driver_uuid.size());
  std::vector<std::byte> data(sizeof(header) + num_own_bytes, std::byte{0x5a});
  std::memcpy(data.data(), &header, sizeof(header));
  return data;
}

std::string contents(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void overwrite(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

int64_t num_files(const std::filesystem::path& folder) {
  return std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator());
}

TEST(PipelineFile, KeepsWhatItIsGiven) {
  const test::TempFolder folder;
  const PipelineFile file(folder.path() / "made" / "when needed", kOwner);
  EXPECT_TRUE(file.read().empty());
  for (const std::size_t size : {std::size_t{100}, std::size_t{0}, std::size_t{1} << 20}) {
    file.write(driver_data(kOwner, size));
    EXPECT_EQ(file.read(), driver_data(kOwner, size));
  }
  EXPECT_EQ(num_files(file.path().parent_path()), 1) << "what is written first has another name";
}

TEST(PipelineFile, OfOthersIsNotRead) {
  const test::TempFolder folder;
  const PipelineFile file(folder.path(), kOwner);
  file.write(driver_data(kOwner, 10));
  PipelineOwner other_vendor = kOwner, other_device = kOwner, other_driver = kOwner;
  ++other_vendor.vendor_id, ++other_device.device_id, ++other_driver.driver_uuid[15];
  for (const PipelineOwner& other : {other_vendor, other_device, other_driver}) {
    const PipelineFile theirs(folder.path(), other);
    EXPECT_NE(theirs.path(), file.path());
    std::filesystem::copy_file(file.path(), theirs.path());  // in the place of its own
    EXPECT_TRUE(theirs.read().empty());
    theirs.write(driver_data(kOwner, 20));
    EXPECT_EQ(contents(theirs.path()), contents(file.path())) << "data of another owner were written";
  }
}

TEST(PipelineFile, ThatIsBrokenIsNotRead) {
  const test::TempFolder folder;
  const PipelineFile file(folder.path(), kOwner);
  file.write(driver_data(kOwner, 40));
  const std::string whole = contents(file.path());
  ASSERT_FALSE(file.read().empty());
  for (std::size_t i = 0; i < whole.size(); ++i) {
    overwrite(file.path(), whole.substr(0, i));
    EXPECT_TRUE(file.read().empty()) << "the first " << i << " bytes";
    std::string changed = whole;
    changed[i] = static_cast<char>(changed[i] ^ 16);
    overwrite(file.path(), changed);
    EXPECT_TRUE(file.read().empty()) << "byte " << i << " is another";
  }
  overwrite(file.path(), whole + "x");
  EXPECT_TRUE(file.read().empty());
  overwrite(file.path(), whole);
  std::filesystem::resize_file(file.path(), static_cast<std::uintmax_t>(PipelineFile::kMaxBytes) + 4096);
  EXPECT_TRUE(file.read().empty());
  std::filesystem::remove(file.path());
  std::filesystem::create_directory(file.path());
  EXPECT_TRUE(file.read().empty());
  file.write(driver_data(kOwner, 40));
  EXPECT_EQ(num_files(folder.path()), 1) << "what could not be put in place is left behind";
}

TEST(PipelineFile, RemovesWhatKilledRunsLeft) {
  const test::TempFolder folder;
  const PipelineFile file(folder.path(), kOwner);
  file.write(driver_data(kOwner, 10));
  const std::filesystem::path stale = file.path().string() + ".0123abcd", fresh = file.path().string() + ".4567cdef",
                              foreign = folder.path() / "pipelines-of-another.0123abcd";
  for (const auto& path : {stale, fresh, foreign}) overwrite(path, "half");
  for (const auto& path : {stale, foreign, file.path()})
    std::filesystem::last_write_time(path, std::filesystem::last_write_time(path) - std::chrono::minutes(2));
  file.write(driver_data(kOwner, 20));
  EXPECT_EQ(file.read(), driver_data(kOwner, 20));
  EXPECT_FALSE(std::filesystem::exists(stale));
  EXPECT_TRUE(std::filesystem::exists(fresh)) << "another run may be writing it";
  EXPECT_TRUE(std::filesystem::exists(foreign));
}

TEST(PipelineFile, NeedsNoFolder) {
  const PipelineFile none("", kOwner);
  none.write(driver_data(kOwner, 10));
  EXPECT_TRUE(none.read().empty());
  const test::TempFolder folder;
  overwrite(folder.path() / "file", "x");
  const PipelineFile within_a_file(folder.path() / "file" / "cache", kOwner);
  within_a_file.write(driver_data(kOwner, 10));
  EXPECT_TRUE(within_a_file.read().empty());
}

TEST(Pipelines, AreKeptFromDeviceToDevice) {
  FERRY_NEED_VULKAN_DEVICE(physical);
  const test::TempFolder folder;
  const PipelineFile file(folder.path(), physical->pipeline_owner);
  { const test::VulkanDevice unused(*physical, DType::kF32, folder.path()); }
  EXPECT_EQ(num_files(folder.path()), 0) << "nothing was compiled";
  for (const bool is_broken : {false, true}) {
    if (is_broken) overwrite(file.path(), "garbage");
    test::VulkanDevice device(*physical, DType::kF32, folder.path());
    Matrix row(device.memory(), DType::kF32, 1, 64);
    add(device.stream, {.a = row.view(), .b = row.view(), .out = row.view()});
    device.stream.wait(device.stream.submit());
  }
  EXPECT_FALSE(file.read().empty());
}

std::vector<std::size_t> given_bytes;  // to the driver, by each cache made
PFN_vkCreatePipelineCache create_cache = nullptr;

VKAPI_ATTR VkResult VKAPI_CALL create_noted(VkDevice device, const VkPipelineCacheCreateInfo* info,
                                            const VkAllocationCallbacks* callbacks, VkPipelineCache* cache) {
  given_bytes.push_back(info->initialDataSize);
  return create_cache(device, info, callbacks, cache);
}

VKAPI_ATTR VkResult VKAPI_CALL refuse_data(VkDevice device, const VkPipelineCacheCreateInfo* info,
                                           const VkAllocationCallbacks* callbacks, VkPipelineCache* cache) {
  return info->initialDataSize > 0 ? VK_ERROR_INITIALIZATION_FAILED : create_noted(device, info, callbacks, cache);
}

TEST(Pipelines, GiveTheDriverWhatWasKept) {
  FERRY_NEED_VULKAN_DEVICE(physical);
  const test::TempFolder folder;
  const PipelineFile file(folder.path(), physical->pipeline_owner);
  file.write(driver_data(physical->pipeline_owner, 0));
  Device device(*physical);
  create_cache = std::exchange(device.vk().CreatePipelineCache, &create_noted);
  given_bytes.clear();
  { const Pipelines pipelines(device, file); }
  device.vk().CreatePipelineCache = &refuse_data;
  { const Pipelines pipelines(device, file); }
  EXPECT_EQ(given_bytes, (std::vector<std::size_t>{sizeof(VkPipelineCacheHeaderVersionOne), 0}));
}

}  // namespace
}  // namespace ferry::vulkan
