#include "runtime/checkpoint/safetensors_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/error.h"

namespace ferry {

/// A file that is being written under a temporary name; removed unless commit() is reached.
class SafetensorsWriter::PendingFile {
 public:
  explicit PendingFile(const std::filesystem::path& path)
      : path_(path), temporary_(path.string() + ".tmp." + std::to_string(::getpid())) {
    // Renaming onto a device or a socket would replace it, for root even /dev/null.
    if (std::filesystem::exists(path_) && !std::filesystem::is_regular_file(path_)) {
      throw Error(ErrorCode::kFailedPrecondition, "cannot write " + path_.string() + ": it is there and no regular file");
    }
    fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd_ < 0) fail();
  }
  ~PendingFile() {
    if (fd_ >= 0) ::close(fd_);
    if (!committed_) ::unlink(temporary_.c_str());
  }
  PendingFile(const PendingFile&) = delete;
  PendingFile& operator=(const PendingFile&) = delete;

  void write(std::span<const std::byte> data) {
    while (!data.empty()) {
      const ssize_t written = ::write(fd_, data.data(), data.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) fail();
      data = data.subspan(static_cast<std::size_t>(written));
    }
  }
  void commit() {
    const int fd = std::exchange(fd_, -1);
    if (::close(fd) != 0 || ::rename(temporary_.c_str(), path_.c_str()) != 0) fail();
    committed_ = true;
  }

 private:
  [[noreturn]] void fail() const {
    const int error = errno;
    const bool is_full = error == ENOSPC || error == EDQUOT || error == EFBIG;
    throw Error(is_full ? ErrorCode::kResourceExhausted : ErrorCode::kFailedPrecondition,
                "cannot write " + path_.string() + ": " + std::strerror(error));
  }

  std::filesystem::path path_;
  std::string temporary_;
  int fd_ = -1;
  bool committed_ = false;
};

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path, std::span<const TensorToWrite> tensors,
                                     const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  for (const TensorToWrite& tensor : tensors) {
    int64_t bytes = stored_type_bytes(tensor.dtype);
    for (const int64_t extent : tensor.shape) FERRY_CHECK(!__builtin_mul_overflow(bytes, extent, &bytes)) << tensor.name;
    FERRY_CHECK(!header.contains(tensor.name) && tensor.name != "__metadata__") << "tensor name " << tensor.name;
    header[tensor.name] = {{"dtype", stored_type_name(tensor.dtype)},
                           {"shape", tensor.shape},
                           {"data_offsets", {bytes_left_, bytes_left_ + bytes}}};
    bytes_left_ += bytes;
  }
  std::string text = header.dump();
  uint64_t header_bytes = 0;
  const std::size_t unpadded = sizeof(header_bytes) + text.size(), alignment = kDataAlignment;
  text.resize((unpadded + alignment - 1) / alignment * alignment - sizeof(header_bytes), ' ');
  header_bytes = text.size();

  file_ = std::make_unique<PendingFile>(path);
  file_->write(std::as_bytes(std::span(&header_bytes, 1)));
  file_->write(std::as_bytes(std::span(text)));
}

SafetensorsWriter::~SafetensorsWriter() = default;

void SafetensorsWriter::write(std::span<const std::byte> data) {
  FERRY_CHECK_LE(static_cast<int64_t>(data.size()), bytes_left_);
  file_->write(data);
  bytes_left_ -= static_cast<int64_t>(data.size());
}

void SafetensorsWriter::commit() {
  FERRY_CHECK_EQ(bytes_left_, 0);
  file_->commit();
}

void write_safetensors(const std::filesystem::path& path, std::span<const TensorToWrite> tensors,
                       const std::map<std::string, std::string>& metadata) {
  SafetensorsWriter writer(path, tensors, metadata);
  for (const TensorToWrite& tensor : tensors) writer.write(tensor.data);
  writer.commit();
}

}  // namespace ferry
