#include "runtime/checkpoint/folder_check.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <optional>
#include <set>
#include <system_error>

#include "runtime/base/error.h"
#include "runtime/base/is_there.h"
#include "runtime/checkpoint/checksums.h"
#include "runtime/checkpoint/packed_checkpoint.h"
#include "runtime/checkpoint/safetensors.h"

namespace ferry {
namespace {

namespace fs = std::filesystem;

/// Compares every tensor with its checksums. Throws for the first damaged one in the file.
void check_all_tensors(const SafetensorsFile& file, ThreadPool& pool) {
  std::vector<const TensorInfo*> tensors;
  for (const TensorInfo& tensor : file.tensors()) tensors.push_back(&tensor);
  std::ranges::sort(tensors, {}, [](const TensorInfo* tensor) { return tensor->data; });
  std::atomic<int64_t> first_damaged{std::ssize(tensors)};
  const auto check = [&](int64_t i, int) {
    const TensorInfo& tensor = *tensors[static_cast<std::size_t>(i)];
    try {
      check_bytes(tensor, 0, tensor.bytes);
    } catch (const Error&) {
      for (int64_t first = first_damaged; i < first && !first_damaged.compare_exchange_weak(first, i);) {
      }
    }
  };
  pool.parallel_for(std::ssize(tensors), check);
  if (first_damaged == std::ssize(tensors)) return;
  const TensorInfo& damaged = *tensors[static_cast<std::size_t>(first_damaged)];
  check_bytes(damaged, 0, damaged.bytes);
}

void require_there(const fs::path& path) {
  if (!is_there(path)) throw Error(ErrorCode::kNotFound, path.string() + ": is missing; " + kChecksumsFile + " has it");
}

/// Returns what `check` finds of the file `name`. It may fill in more of the result.
FileCheck check_file(const fs::path& dir, const std::string& name, const std::function<void(FileCheck&)>& check) {
  FileCheck result{.name = name, .result = FileCheck::Result::kRight};
  std::error_code error;
  const std::uintmax_t bytes = fs::file_size(dir / name, error);
  if (!error) result.bytes = static_cast<int64_t>(bytes);
  try {
    check(result);
  } catch (const Error& complaint) {
    result.result = is_there(dir / name) ? FileCheck::Result::kDamaged : FileCheck::Result::kMissing;
    result.damage = complaint.what();
  }
  return result;
}

/// Returns the names of files that loading may use but that have no checksums, sorted.
std::set<std::string> unlisted_files(const fs::path& dir, const PackedMark& mark, const FolderChecksums& weights) {
  std::set<std::string> found;
  for (const char* name : kCopiedFiles)
    if (is_there(dir / name) && !mark.files.contains(name)) found.insert(name);
  std::error_code error;
  for (fs::directory_iterator it(dir, error), end; !error && it != end; it.increment(error)) {
    const fs::path name = it->path().filename();
    if (name.extension() == ".safetensors" && is_there(it->path()) && !weights.contains(name.string()))
      found.insert(name.string());
  }
  return found;
}

/// Files of weights, and what says which there are.
std::vector<FileCheck> check_structure(const fs::path& dir) {
  const Checkpoint checkpoint = Checkpoint::open(dir);
  std::vector<FileCheck> found;
  for (const auto& file : checkpoint.files()) {
    found.push_back({.name = fs::path(file->path()).lexically_relative(dir).string(),
                     .bytes = file->size(),
                     .tensors = std::ssize(file->tensors())});
  }
  return found;
}

}  // namespace

std::vector<FileCheck> check_folder(const fs::path& dir, ThreadPool& pool) {
  std::optional<PackedMark> mark;
  std::vector<FileCheck> found{check_file(dir, kPackedMark, [&](FileCheck&) { mark = read_packed_mark(dir); })};
  const bool is_readable = found.front().damage.empty();
  if (is_readable && (!mark || !mark->has_checksums())) return check_structure(dir);
  if (!is_readable) return found;
  for (const auto& file : mark->files)
    found.push_back(check_file(dir, file.first, [&](FileCheck&) { read_packed_file(dir, *mark, file.first); }));
  FolderChecksums weights;
  try {
    weights = read_packed_checksums(dir, *mark);
  } catch (const Error&) {  // the line of checksums.json says so
    return found;
  }
  for (const auto& entry : weights) {
    found.push_back(check_file(dir, entry.first, [&](FileCheck& result) {
      require_there(dir / entry.first);
      SafetensorsFile file(dir / entry.first);
      file.expect(entry.second);
      result.tensors = std::ssize(file.tensors());
      check_all_tensors(file, pool);
    }));
  }
  for (const std::string& name : unlisted_files(dir, *mark, weights))
    found.push_back(check_file(dir, name, [&](FileCheck&) { refuse_unlisted(dir / name); }));
  return found;
}

}  // namespace ferry
