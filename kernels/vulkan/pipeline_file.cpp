#include "kernels/vulkan/pipeline_file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>
#include <system_error>

#include "kernels/vulkan/api.h"
#include "kernels/vulkan/shader_code.h"
#include "runtime/base/error.h"
#include "runtime/base/file_descriptor.h"
#include "runtime/base/random_id.h"
#include "runtime/base/text_file.h"

namespace ferry::vulkan {
namespace {

struct FileHeader {
  static constexpr uint64_t kMagic = 0x3150504952524546;  // "FERRIPP1"

  uint64_t magic = kMagic;
  uint64_t num_bytes = 0;  // behind this header
  uint64_t checksum = 0;   // of those
};

/// FNV-1a of 64 bits.
uint64_t hash_bytes(std::span<const std::byte> bytes, uint64_t hash = 0xcbf29ce484222325ULL) {
  for (const std::byte b : bytes) hash = (hash ^ static_cast<uint64_t>(b)) * 0x100000001b3ULL;
  return hash;
}

uint64_t hash_shaders() {
  uint64_t hash = hash_bytes({});
  for (const ShaderCode& code : shader_codes()) {
    hash = hash_bytes(std::as_bytes(std::span(code.name)), hash);
    hash = hash_bytes(std::as_bytes(code.words), hash);
  }
  return hash;
}

std::string hex(uint64_t value, int num_digits) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::string text;
  for (int digit = num_digits - 1; digit >= 0; --digit) text += kDigits[value >> (4 * digit) & 15];
  return text;
}

std::string file_name(const PipelineOwner& owner) {
  std::string uuid;
  for (const uint8_t byte : owner.driver_uuid) uuid += hex(byte, 2);
  return "pipelines-" + hex(owner.vendor_id, 8) + "-" + hex(owner.device_id, 8) + "-" + uuid + "-" + hex(hash_shaders(), 16);
}

/// Whether the data begin with the header that Vulkan asks of them, and it names the owner.
bool is_of(const PipelineOwner& owner, std::span<const std::byte> data) {
  VkPipelineCacheHeaderVersionOne header;
  if (data.size() < sizeof(header)) return false;
  std::memcpy(&header, data.data(), sizeof(header));
  return header.headerSize >= sizeof(header) && header.headerSize <= data.size() &&
         header.headerVersion == VK_PIPELINE_CACHE_HEADER_VERSION_ONE && header.vendorID == owner.vendor_id &&
         header.deviceID == owner.device_id &&
         std::memcmp(header.pipelineCacheUUID, owner.driver_uuid.data(), owner.driver_uuid.size()) == 0;
}

bool write_all(int file, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t piece = ::write(file, bytes.data(), bytes.size());
    if (piece < 0 && errno == EINTR) continue;
    if (piece <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(piece));
  }
  return true;
}

bool write_new_file(const std::filesystem::path& path, std::span<const std::byte> data) {
  const FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  const FileHeader header{.num_bytes = data.size(), .checksum = hash_bytes(data)};
  return file.get() >= 0 && write_all(file.get(), std::as_bytes(std::span(&header, 1))) && write_all(file.get(), data);
}

/// What runs that were killed while they wrote `path` have left beside it. Nobody writes for as long as a minute.
void remove_leftovers(const std::filesystem::path& path) {
  const auto oldest = std::filesystem::file_time_type::clock::now() - std::chrono::minutes(1);
  const std::string prefix = path.filename().string() + ".";
  std::error_code error;
  std::vector<std::filesystem::path> left;
  for (std::filesystem::directory_iterator entry(path.parent_path(), error), end; !error && entry != end;
       entry.increment(error)) {
    std::error_code unknown;  // it is gone already
    const auto written = entry->last_write_time(unknown);
    if (!unknown && written < oldest && entry->path().filename().string().starts_with(prefix)) left.push_back(entry->path());
  }
  for (const std::filesystem::path& file : left) std::filesystem::remove(file, error);
}

}  // namespace

PipelineFile::PipelineFile(const std::filesystem::path& folder, const PipelineOwner& owner) : owner_(owner) {
  if (!folder.empty()) path_ = folder / file_name(owner);
}

std::vector<std::byte> PipelineFile::read() const {
  if (path_.empty()) return {};
  std::string text;
  try {
    text = read_text_file(path_, kMaxBytes + static_cast<int64_t>(sizeof(FileHeader)));
  } catch (const Error&) {
    return {};
  }
  FileHeader header;
  if (text.size() < sizeof(header)) return {};
  std::memcpy(&header, text.data(), sizeof(header));
  const std::span<const std::byte> data = std::as_bytes(std::span(text)).subspan(sizeof(header));
  if (header.magic != FileHeader::kMagic || header.num_bytes != data.size() || header.checksum != hash_bytes(data)) return {};
  if (!is_of(owner_, data)) return {};
  return {data.begin(), data.end()};
}

void PipelineFile::write(std::span<const std::byte> data) const {
  if (path_.empty() || std::ssize(data) > kMaxBytes || !is_of(owner_, data)) return;
  std::error_code error;
  std::filesystem::create_directories(path_.parent_path(), error);
  const std::filesystem::path temporary = path_.string() + "." + random_id();
  if (write_new_file(temporary, data)) std::filesystem::rename(temporary, path_, error);
  std::filesystem::remove(temporary, error);
  remove_leftovers(path_);
}

}  // namespace ferry::vulkan
