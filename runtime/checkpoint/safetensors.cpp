#include "runtime/checkpoint/safetensors.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/content_hash.h"
#include "runtime/base/error.h"
#include "runtime/base/is_there.h"
#include "runtime/base/json.h"
#include "runtime/base/quoting.h"
#include "runtime/checkpoint/checksums.h"
#include "runtime/checkpoint/packed_checkpoint.h"

namespace ferry {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors data is little endian");

using Json = nlohmann::json;
constexpr int64_t kLengthBytes = 8;  // the u64 in front of the header

struct StoredTypeRow {
  StoredType type;
  const char* name;
  int64_t bytes;
};
constexpr std::array kStoredTypes = {
    StoredTypeRow{StoredType::kF64, "F64", 8},        StoredTypeRow{StoredType::kF32, "F32", 4},
    StoredTypeRow{StoredType::kF16, "F16", 2},        StoredTypeRow{StoredType::kBF16, "BF16", 2},
    StoredTypeRow{StoredType::kF8E4M3, "F8_E4M3", 1}, StoredTypeRow{StoredType::kF8E5M2, "F8_E5M2", 1},
    StoredTypeRow{StoredType::kF8E8M0, "F8_E8M0", 1}, StoredTypeRow{StoredType::kC64, "C64", 8},
    StoredTypeRow{StoredType::kI64, "I64", 8},        StoredTypeRow{StoredType::kI32, "I32", 4},
    StoredTypeRow{StoredType::kI16, "I16", 2},        StoredTypeRow{StoredType::kI8, "I8", 1},
    StoredTypeRow{StoredType::kU64, "U64", 8},        StoredTypeRow{StoredType::kU32, "U32", 4},
    StoredTypeRow{StoredType::kU16, "U16", 2},        StoredTypeRow{StoredType::kU8, "U8", 1},
    StoredTypeRow{StoredType::kBool, "BOOL", 1},
};

const StoredTypeRow& stored_type_row(StoredType type) {
  const auto idx = static_cast<std::size_t>(type);
  FERRY_CHECK(idx < kStoredTypes.size() && kStoredTypes[idx].type == type) << "stored type " << idx;
  return kStoredTypes[idx];
}

std::optional<StoredType> parse_stored_type(const std::string& name) {
  for (const StoredTypeRow& row : kStoredTypes) {
    if (name == row.name) return row.type;
  }
  return std::nullopt;
}

[[noreturn]] void throw_system(ErrorCode code, const std::string& what, int error) {
  throw Error(code, what + ": " + std::strerror(error));
}

/// A JSON integer in [0, 2^63).
std::optional<int64_t> as_count(const Json& value) {
  if (!value.is_number_unsigned()) return std::nullopt;
  const auto count = value.get<uint64_t>();
  if (count > static_cast<uint64_t>(INT64_MAX)) return std::nullopt;
  return static_cast<int64_t>(count);
}

/// Product of `shape` times `element_bytes`, or nothing if it does not fit an int64.
std::optional<int64_t> tensor_bytes(std::span<const int64_t> shape, int64_t element_bytes) {
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
  int64_t bytes = element_bytes;
  for (const int64_t extent : shape) {
    if (__builtin_mul_overflow(bytes, extent, &bytes)) return std::nullopt;
  }
  return bytes;
}

std::string join(std::span<const int64_t> shape) {
  std::string result = "[";
  constexpr std::size_t kShownDims = 16;  // no model has more; a damaged file may
  for (std::size_t i = 0; i < std::min(shape.size(), kShownDims); ++i)
    result += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  return result + (shape.size() > kShownDims ? ", …]" : "]");
}

const Json& member(const Json& entry, const char* key, const std::string& where) {
  const auto it = entry.find(key);
  if (it == entry.end()) throw_invalid(where + ": no '" + key + "' in the header");
  return *it;
}

/// Fills in one tensor from its header entry. `data` is the `data_bytes` bytes after the header.
TensorInfo parse_tensor(const std::string& name, const Json& entry, const std::byte* data, int64_t data_bytes,
                        const std::string& path) {
  const std::string where = path + ": tensor " + in_quotes(name);
  if (!entry.is_object()) throw_invalid(where + ": header entry is " + shown(entry) + ", not an object");
  TensorInfo tensor;
  tensor.name = name;
  tensor.file = path;

  const Json& dtype = member(entry, "dtype", where);
  const auto type = dtype.is_string() ? parse_stored_type(dtype.get<std::string>()) : std::nullopt;
  if (!type)
    throw_invalid(where + ": unknown dtype " + shown(dtype) + ", known are F64 F32 F16 BF16 F8_* C64 I64‥I8 U64‥U8 BOOL");
  tensor.dtype = *type;

  const Json& shape = member(entry, "shape", where);
  if (!shape.is_array()) throw_invalid(where + ": shape " + shown(shape) + " is not an array");
  for (const Json& extent : shape) {
    const auto count = as_count(extent);
    if (!count) throw_invalid(where + ": shape " + shown(shape) + " holds " + shown(extent) + ", not an integer in [0, 2^63)");
    tensor.shape.push_back(*count);
  }
  const auto bytes = tensor_bytes(tensor.shape, stored_type_bytes(*type));
  if (!bytes) throw_invalid(where + ": shape " + shown(shape) + " overflows 2^63 bytes");
  tensor.bytes = *bytes;

  const Json& offsets = member(entry, "data_offsets", where);
  const bool is_pair = offsets.is_array() && offsets.size() == 2;
  const auto begin = is_pair ? as_count(offsets[0]) : std::nullopt;
  const auto end = is_pair ? as_count(offsets[1]) : std::nullopt;
  if (!begin || !end || *begin > *end) throw_invalid(where + ": data_offsets " + shown(offsets) + " is not [begin, end]");
  if (*end > data_bytes) {
    throw_invalid(where + ": data_offsets end at " + std::to_string(*end) + ", but the file holds " +
                  std::to_string(data_bytes) + " bytes of data; is it truncated?");
  }
  if (*end - *begin != *bytes) {
    throw_invalid(where + ": data_offsets span " + std::to_string(*end - *begin) + " bytes, shape " + join(tensor.shape) +
                  " of " + stored_type_name(*type) + " needs " + std::to_string(*bytes));
  }
  tensor.data = data + *begin;
  return tensor;
}

/// What the header's metadata say under the tensor's name.
std::string note_on(const std::string& name, const Json& metadata) {
  const auto it = metadata.find(name);
  return it != metadata.end() && it->is_string() ? it->get<std::string>() : std::string();
}

/// The file in `dir` that an index entry names; refuses names that would lead out of the folder. Symbolic links are
/// followed: a Hugging Face cache consists of them.
std::filesystem::path shard_path(const std::filesystem::path& dir, const Json& value, const std::string& where) {
  if (!value.is_string()) throw_invalid(where + ": file is " + shown(value) + ", not a string");
  const auto& name = value.get_ref<const std::string&>();
  const std::filesystem::path relative(name);
  const bool leaves = relative.is_absolute() || std::find(relative.begin(), relative.end(), "..") != relative.end();
  if (name.empty() || leaves || name.find('\0') != std::string::npos) {
    throw_invalid(where + ": file " + in_quotes(name) + " is not a path inside the checkpoint folder");
  }
  return dir / relative;
}

/// The weights file of a folder without an index.
std::filesystem::path single_file(const std::filesystem::path& dir) {
  if (is_there(dir / "model.safetensors")) return dir / "model.safetensors";
  std::vector<std::filesystem::path> found;
  std::string other;  // weights in a format that is not read
  for (const auto& entry : std::filesystem::directory_iterator(dir)) {
    const std::filesystem::path extension = entry.path().extension();
    if (extension == ".safetensors") found.push_back(entry.path());
    if (extension == ".gguf" || extension == ".bin" || extension == ".pth") other = entry.path().filename().string();
  }
  if (found.size() == 1) return found[0];
  throw Error(ErrorCode::kNotFound, dir.string() + ": no model.safetensors.index.json or model.safetensors, and " +
                                        std::to_string(found.size()) + " *.safetensors files where one is needed" +
                                        (other.empty() ? "" : "; weights as in " + in_quotes(other) + " are not read"));
}

}  // namespace

const char* stored_type_name(StoredType type) { return stored_type_row(type).name; }
int64_t stored_type_bytes(StoredType type) { return stored_type_row(type).bytes; }

void refuse_tensor(const TensorInfo& tensor, const std::string& complaint) {
  throw_invalid(std::string(tensor.file) + ": tensor " + tensor.name + " " + complaint);
}

std::string TensorInfo::shape_string() const { return join(shape); }

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : path_(path.string()) {
  map_file();
  try {
    read_tensors();
    check_coverage();
  } catch (...) {
    ::munmap(const_cast<std::byte*>(data_), static_cast<std::size_t>(size_));
    throw;
  }
}

SafetensorsFile::~SafetensorsFile() { ::munmap(const_cast<std::byte*>(data_), static_cast<std::size_t>(size_)); }

void SafetensorsFile::map_file() {
  // O_NONBLOCK: opening a FIFO must be an error, not a hang.
  const int fd = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) throw_system(ErrorCode::kNotFound, "cannot open " + path_, errno);
  struct stat status {};
  const bool is_file = ::fstat(fd, &status) == 0 && S_ISREG(status.st_mode);
  size_ = static_cast<int64_t>(status.st_size);
  // The system's default read-ahead suits loading: an expert is read from its first byte to its last.
  void* data = MAP_FAILED;
  if (is_file && size_ >= kLengthBytes) data = ::mmap(nullptr, static_cast<std::size_t>(size_), PROT_READ, MAP_PRIVATE, fd, 0);
  const int error = errno;
  ::close(fd);
  if (!is_file) throw_invalid(path_ + ": not a regular file");
  if (size_ < kLengthBytes) {
    throw_invalid(path_ + ": " + std::to_string(size_) + " bytes, a safetensors file has at least " +
                  std::to_string(kLengthBytes));
  }
  if (data == MAP_FAILED) throw_system(ErrorCode::kResourceExhausted, "cannot map " + path_, error);
  data_ = static_cast<const std::byte*>(data);
}

std::string_view SafetensorsFile::header() const {
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, data_, sizeof(header_bytes));
  if (header_bytes > static_cast<uint64_t>(kHeaderBytesMax)) {
    throw_invalid(path_ + ": header length " + std::to_string(header_bytes) + ", at most " + std::to_string(kHeaderBytesMax) +
                  " bytes are allowed; is this a safetensors file?");
  }
  if (header_bytes > static_cast<uint64_t>(size_ - kLengthBytes)) {
    throw_invalid(path_ + ": header length " + std::to_string(header_bytes) + ", but only " +
                  std::to_string(size_ - kLengthBytes) + " bytes follow; is it truncated?");
  }
  return {reinterpret_cast<const char*>(data_) + kLengthBytes, header_bytes};
}

void SafetensorsFile::read_tensors() {
  const std::string_view text = header();
  const Json root = parse_json(text, path_, kNoDuplicates);
  if (!root.is_object()) throw_invalid(path_ + ": header is not a JSON object");
  const int64_t data_begin = kLengthBytes + static_cast<int64_t>(text.size());
  const auto metadata = root.find("__metadata__");
  for (const auto& [name, entry] : root.items()) {  // sorted: a JSON object is a std::map
    if (name == "__metadata__") continue;
    tensors_.push_back(parse_tensor(name, entry, data_ + data_begin, size_ - data_begin, path_));
    if (metadata != root.end()) tensors_.back().note = note_on(name, *metadata);
  }
}

void SafetensorsFile::check_coverage() const {
  std::vector<const TensorInfo*> by_address;
  for (const TensorInfo& tensor : tensors_) by_address.push_back(&tensor);
  const auto end_of = [](const TensorInfo* tensor) { return tensor->data + tensor->bytes; };
  std::sort(by_address.begin(), by_address.end(), [&](const TensorInfo* a, const TensorInfo* b) {
    return std::pair(a->data, end_of(a)) < std::pair(b->data, end_of(b));
  });
  const std::byte* covered = data_ + kLengthBytes + header().size();
  const TensorInfo* before = nullptr;
  for (const TensorInfo* tensor : by_address) {
    if (tensor->data < covered) {
      throw_invalid(path_ + ": tensors " + in_quotes(before->name) + " and " + in_quotes(tensor->name) + " overlap by " +
                    std::to_string(covered - tensor->data) + " bytes");
    }
    if (tensor->data > covered) {
      throw_invalid(path_ + ": " + std::to_string(tensor->data - covered) + " bytes before tensor " + in_quotes(tensor->name) +
                    " belong to none; allowed: tensors back to back");
    }
    covered = end_of(tensor);
    before = tensor;
  }
  const int64_t left = data_ + size_ - covered;
  if (left > 0) {
    throw_invalid(path_ + ": " + std::to_string(left) +
                  " bytes after the last tensor belong to none; allowed: a file that ends with its last tensor");
  }
}

const TensorInfo* SafetensorsFile::find(std::string_view name) const {
  const auto it = std::lower_bound(tensors_.begin(), tensors_.end(), name,
                                   [](const TensorInfo& tensor, std::string_view key) { return tensor.name < key; });
  return it != tensors_.end() && it->name == name ? &*it : nullptr;
}

void SafetensorsFile::expect(const FileChecksums& checksums) {
  if (size_ != checksums.bytes) {
    throw_invalid(path_ + ": " + std::to_string(size_) + " bytes; " + kChecksumsFile + " has " +
                  std::to_string(checksums.bytes));
  }
  const uint64_t found = content_hash({data_, kLengthBytes + header().size()});
  if (found != checksums.header) {
    throw_invalid(path_ + ": the header is damaged: it has the checksum " + checksum_text(found) + "; " + kChecksumsFile +
                  " has " + checksum_text(checksums.header));
  }
  std::vector<std::pair<int64_t, int64_t>> shares;  // by tensor: bytes of a piece, and pieces
  int64_t num_pieces = 0;
  for (const TensorInfo& tensor : tensors_) {
    const int64_t piece_bytes = checksum_piece_bytes(tensor.dtype, tensor.shape);
    shares.emplace_back(piece_bytes, checksum_pieces(tensor.bytes, piece_bytes));
    num_pieces += shares.back().second;
  }
  if (num_pieces != std::ssize(checksums.pieces)) {
    throw_invalid(path_ + ": " + kChecksumsFile + " has " + std::to_string(checksums.pieces.size()) +
                  " checksums; allowed: " + std::to_string(num_pieces));
  }
  checksums_ = std::make_unique<OpenChecksums>(checksums.pieces);
  checksums_->tensors.reserve(tensors_.size());
  std::size_t first = 0;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const auto count = static_cast<std::size_t>(shares[i].second);
    tensors_[i].checksums =
        &checksums_->tensors.emplace_back(TensorChecksums{.piece_bytes = shares[i].first,
                                                          .pieces = std::span(checksums_->pieces).subspan(first, count),
                                                          .was_right = std::span(checksums_->was_right).subspan(first, count)});
    first += count;
  }
}

Checkpoint Checkpoint::open(const std::filesystem::path& dir) {
  if (std::error_code error; !std::filesystem::is_directory(dir, error))
    throw Error(ErrorCode::kNotFound, dir.string() + ": no such checkpoint folder");
  Checkpoint checkpoint;
  const std::optional<PackedMark> mark = read_packed_mark(dir);
  const bool has_checksums = mark && mark->has_checksums();
  if (has_checksums) {
    check_packed_files(dir, *mark);
    const FolderChecksums checksums = read_packed_checksums(dir, *mark);
    checkpoint.open_index(dir, &checksums);
    checkpoint.open_mtp_file(dir, &checksums);
  } else if (is_there(dir / kIndexFile)) {
    checkpoint.open_index(dir, nullptr);
    checkpoint.open_mtp_file(dir, nullptr);
  } else {
    checkpoint.files_.push_back(std::make_unique<SafetensorsFile>(single_file(dir)));
    for (const TensorInfo& tensor : checkpoint.files_[0]->tensors()) checkpoint.tensors_.emplace(tensor.name, &tensor);
  }
  return checkpoint;
}

/// Opens a file of weights. It must have its checksums if the folder has any.
const SafetensorsFile& Checkpoint::open_file(const std::filesystem::path& dir, const std::string& name,
                                             const FolderChecksums* checksums) {
  const FileChecksums* expected = nullptr;
  if (checksums != nullptr) {
    const auto found = checksums->find(name);
    if (found == checksums->end()) refuse_unlisted(dir / name);
    expected = &found->second;
  }
  SafetensorsFile& file = *files_.emplace_back(std::make_unique<SafetensorsFile>(dir / name));
  if (expected != nullptr) file.expect(*expected);
  return file;
}

/// Opens the files that the index names. They must have their `checksums` if there are any.
void Checkpoint::open_index(const std::filesystem::path& dir, const FolderChecksums* checksums) {
  const std::filesystem::path index_path = dir / kIndexFile;
  const Json index = read_json_file(index_path, kNoDuplicates);
  const auto weight_map = index.is_object() ? index.find("weight_map") : index.end();
  if (weight_map == index.end() || !weight_map->is_object()) throw_invalid(index_path.string() + ": no object 'weight_map'");
  std::map<std::filesystem::path, const SafetensorsFile*> opened;
  for (const auto& [name, value] : weight_map->items()) {
    const std::string where = index_path.string() + ": tensor " + in_quotes(name);
    const std::filesystem::path path = shard_path(dir, value, where);
    const auto [it, is_new] = opened.try_emplace(path, nullptr);
    if (is_new) it->second = &open_file(dir, value.get_ref<const std::string&>(), checksums);
    const TensorInfo* tensor = it->second->find(name);
    if (tensor == nullptr) throw_invalid(where + ": not in " + path.string() + ", which the index names for it");
    tensors_.emplace(tensor->name, tensor);
  }
}

/// Some conversions add the MTP layer as a file that the index does not know. What the index names comes first.
void Checkpoint::open_mtp_file(const std::filesystem::path& dir, const FolderChecksums* checksums) {
  constexpr const char* kMtpFile = "mtp.safetensors";
  const std::filesystem::path path = dir / kMtpFile;
  const bool is_open = std::ranges::any_of(files_, [&](const auto& file) { return file->path() == path.string(); });
  if (is_open || !is_there(path)) return;
  for (const TensorInfo& tensor : open_file(dir, kMtpFile, checksums).tensors())
    if (tensor.name.starts_with("mtp.")) tensors_.emplace(tensor.name, &tensor);
}

int64_t Checkpoint::size() const {
  int64_t bytes = 0;
  for (const auto& file : files_) bytes += file->size();
  return bytes;
}

const TensorInfo* Checkpoint::find(std::string_view name) const {
  const auto it = tensors_.find(name);
  return it == tensors_.end() ? nullptr : it->second;
}

std::vector<std::string_view> Checkpoint::names() const {
  std::vector<std::string_view> result;
  for (const auto& [name, tensor] : tensors_) result.push_back(name);
  return result;
}

void Checkpoint::fetch_pages(const TensorInfo& tensor) const {
  const auto page_bytes = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto address = reinterpret_cast<std::uintptr_t>(tensor.data);
  const std::uintptr_t begin = address / page_bytes * page_bytes;
  const std::size_t bytes = address + static_cast<std::uintptr_t>(tensor.bytes) - begin;
  // A hint, too: kernels before 5.14 do not know it and read a page when it is touched.
  ::madvise(reinterpret_cast<void*>(begin), bytes, MADV_POPULATE_READ);
}

void Checkpoint::drop_pages(const TensorInfo& tensor, int64_t offset, int64_t bytes) const {
  FERRY_CHECK(offset >= 0 && bytes >= 0 && offset <= tensor.bytes - bytes)
      << "drop_pages [" << offset << ", +" << bytes << ") of " << tensor.name << " with " << tensor.bytes << " bytes";
  const auto page_bytes = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto address = reinterpret_cast<std::uintptr_t>(tensor.data) + static_cast<std::uintptr_t>(offset);
  const std::uintptr_t begin = (address + page_bytes - 1) / page_bytes * page_bytes;
  const std::uintptr_t end = (address + static_cast<std::uintptr_t>(bytes)) / page_bytes * page_bytes;
  // A hint: if the system declines it, the pages merely stay.
  if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

}  // namespace ferry
