#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

// Weights as Hugging Face stores them: safetensors files, one or many per checkpoint.
//
//   u64 header_bytes (little endian) | header: JSON, padded with spaces | tensor data, back to back
//   header: {"name": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [begin, end]}, "__metadata__": {...}}
//
// Format: https://github.com/huggingface/safetensors, "Format" in its README. Everything that a header says is checked before
// any of it is used; a file from a stranger can be refused but cannot make a reader leave the mapped bytes. As the format asks,
// every byte of data belongs to exactly one tensor: no holes, no overlaps, nothing behind the last one.

namespace ferry {

struct FileChecksums;
struct OpenChecksums;
struct TensorChecksums;

/// Element types that a safetensors header may name, at least one byte wide each.
enum class StoredType : uint8_t {
  kF64,
  kF32,
  kF16,
  kBF16,
  kF8E4M3,
  kF8E5M2,
  kF8E8M0,
  kC64,
  kI64,
  kI32,
  kI16,
  kI8,
  kU64,
  kU32,
  kU16,
  kU8,
  kBool,
};

/// The name in the header, for example "F8_E4M3".
const char* stored_type_name(StoredType type);
int64_t stored_type_bytes(StoredType type);

/// One tensor in a mapped file. The views are valid as long as the SafetensorsFile or Checkpoint they came from.
struct TensorInfo {
  std::string name;
  StoredType dtype = StoredType::kF32;
  std::vector<int64_t> shape;                  // row-major, empty for a scalar
  const std::byte* data = nullptr;             // may be unaligned for its type: read it with memcpy
  int64_t bytes = 0;                           // product of shape * element size
  std::string_view file;                       // path, for messages
  std::string note;                            // what __metadata__ says under the tensor's name; empty if nothing
  const TensorChecksums* checksums = nullptr;  // null if the folder has none (checksums.h)

  /// "[2, 3]".
  std::string shape_string() const;
};

/// Throws Error{kInvalidArgument}: the file, the tensor's name and the complaint.
[[noreturn]] void refuse_tensor(const TensorInfo& tensor, const std::string& complaint);

/// One file, mapped read-only. Opening reads the header only; other pages are read when somebody touches them.
///
/// Immutable after construction, so any thread may read. The file must not be truncated while it is open (the system would
/// answer a read beyond its end with SIGBUS).
class SafetensorsFile {
 public:
  static constexpr int64_t kHeaderBytesMax = 100'000'000;  // bytes; the limit of the reference implementation

  /// Throws Error{kNotFound} if the file cannot be opened and Error{kInvalidArgument} if it is not a well-formed
  /// safetensors file; both name the file, the tensor, the value and what is allowed.
  explicit SafetensorsFile(const std::filesystem::path& path);
  ~SafetensorsFile();
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;

  const std::string& path() const { return path_; }
  /// Sorted by name.
  const std::vector<TensorInfo>& tensors() const { return tensors_; }
  /// nullptr if the file has no such tensor.
  const TensorInfo* find(std::string_view name) const;
  int64_t size() const { return size_; }

  /// Compares size and header with `checksums`, and gives each tensor its own. Throws Error{kInvalidArgument} if something
  /// differs. For use before other threads read.
  void expect(const FileChecksums& checksums);

 private:
  void map_file();
  std::string_view header() const;
  void read_tensors();
  void check_coverage() const;

  std::string path_;
  const std::byte* data_ = nullptr;  // [size_] the whole file
  int64_t size_ = 0;                 // bytes
  std::vector<TensorInfo> tensors_;
  std::unique_ptr<OpenChecksums> checksums_;  // null: there are none
};

/// All tensors of a checkpoint folder, by name.
class Checkpoint {
 public:
  /// Opens the files that `model.safetensors.index.json` names, and beside them mtp.safetensors for tensors of an MTP layer;
  /// without an index `model.safetensors`, or the folder's only `*.safetensors`. No other file name is made up.
  ///
  /// Throws Error{kNotFound} for a missing folder or file and Error{kInvalidArgument} for a malformed file, an index entry
  /// that leaves the folder, or one whose file lacks the tensor. Of a folder of `ferry quantize` that has checksums, all files
  /// but the weights, and the weights' headers, are compared with them. Weights without checksums are refused there.
  static Checkpoint open(const std::filesystem::path& dir);

  /// nullptr if there is no such tensor.
  const TensorInfo* find(std::string_view name) const;
  /// Sorted.
  std::vector<std::string_view> names() const;
  /// The files in which tensors are.
  std::span<const std::unique_ptr<SafetensorsFile>> files() const { return files_; }
  /// Bytes of all files.
  int64_t size() const;

  /// Reads the tensor into memory if it is not there and maps it, so that no later access waits for the disk.
  void fetch_pages(const TensorInfo& tensor) const;
  /// Gives the memory of bytes [offset, offset + bytes) of the tensor back to the system, whole pages inside the range only;
  /// reading them again fetches them from the file. For use after packing, so that weights are held once.
  void drop_pages(const TensorInfo& tensor, int64_t offset, int64_t bytes) const;

 private:
  using ByFile = std::map<std::string, FileChecksums, std::less<>>;
  const SafetensorsFile& open_file(const std::filesystem::path& dir, const std::string& name, const ByFile* checksums);
  void open_index(const std::filesystem::path& dir, const ByFile* checksums);
  void open_mtp_file(const std::filesystem::path& dir, const ByFile* checksums);

  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string_view, const TensorInfo*> tensors_;
};

}  // namespace ferry
