#include "runtime/checkpoint/safetensors_writer.h"

#include <nlohmann/json.hpp>

#include "runtime/base/check.h"
#include "runtime/base/pending_file.h"

namespace ferry {

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
    checksums_.expect(tensor.name, bytes, checksum_piece_bytes(tensor.dtype, tensor.shape));
  }
  std::string text = header.dump();
  uint64_t header_bytes = 0;
  const std::size_t unpadded = sizeof(header_bytes) + text.size(), alignment = kDataAlignment;
  text.resize((unpadded + alignment - 1) / alignment * alignment - sizeof(header_bytes), ' ');
  header_bytes = text.size();
  text.insert(0, reinterpret_cast<const char*>(&header_bytes), sizeof(header_bytes));

  file_ = std::make_unique<PendingFile>(path);
  file_->write(std::as_bytes(std::span(text)));
  checksums_.begin(std::as_bytes(std::span(text)));
}

SafetensorsWriter::~SafetensorsWriter() = default;

void SafetensorsWriter::write(std::span<const std::byte> data) {
  FERRY_CHECK_LE(static_cast<int64_t>(data.size()), bytes_left_);
  file_->write(data);
  checksums_.add(data);
  bytes_left_ -= static_cast<int64_t>(data.size());
}

FileChecksums SafetensorsWriter::commit() {
  FERRY_CHECK_EQ(bytes_left_, 0);
  file_->commit();
  return checksums_.take();
}

void write_safetensors(const std::filesystem::path& path, std::span<const TensorToWrite> tensors,
                       const std::map<std::string, std::string>& metadata) {
  SafetensorsWriter writer(path, tensors, metadata);
  for (const TensorToWrite& tensor : tensors) writer.write(tensor.data);
  writer.commit();
}

}  // namespace ferry
