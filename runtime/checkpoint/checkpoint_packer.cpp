#include "runtime/checkpoint/checkpoint_packer.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <exception>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "kernels/cpu/pack_panels.h"
#include "runtime/base/aligned_buffer.h"
#include "runtime/base/content_hash.h"
#include "runtime/base/error.h"
#include "runtime/base/pending_file.h"
#include "runtime/base/text_file.h"
#include "runtime/checkpoint/checksums.h"
#include "runtime/checkpoint/output_folder.h"
#include "runtime/checkpoint/packed_checkpoint.h"
#include "runtime/checkpoint/safetensors_writer.h"

namespace ferry {
namespace {

constexpr int64_t kSlabElements = int64_t{1} << 21;  // of weights, one task's share: a few MB of scratch
constexpr int64_t kBatchBytes = int64_t{32} << 20;   // of panels between two writes
constexpr int64_t kCopyBytes = int64_t{16} << 20;    // of a tensor that is copied, likewise

/// A tensor of the new checkpoint: panels of a matrix, or a copy.
struct OutputTensor {
  std::string name;
  const StoredMatrix* matrix = nullptr;
  const TensorInfo* source = nullptr;

  int64_t bytes() const { return matrix != nullptr ? matrix->panel_shape().bytes() : source->bytes; }
  int64_t bytes_to_read() const { return matrix != nullptr ? matrix->stored_bytes() : source->bytes; }
  TensorToWrite entry() const {
    if (matrix == nullptr) return {.name = name, .dtype = source->dtype, .shape = source->shape, .data = {}};
    const PanelShape shape = matrix->panel_shape();
    return {.name = name, .dtype = StoredType::kU8, .shape = {shape.num_panels(), shape.panel_bytes()}, .data = {}};
  }
};

/// Panels first, then what is copied: all but the rows that became panels. The embedding stays even where it is the head, too.
std::vector<OutputTensor> list_output(const Checkpoint& checkpoint, const std::vector<StoredMatrix>& matrices) {
  std::vector<OutputTensor> list;
  std::set<std::string_view> replaced;
  for (const StoredMatrix& matrix : matrices) {
    list.push_back({.name = panels_name(matrix.name), .matrix = &matrix});
    for (const StoredRows& piece : matrix.pieces) {
      for (const TensorInfo* part : {piece.tensor, piece.scales, piece.zeros, piece.group_index, piece.shape})
        if (part != nullptr) replaced.insert(part->name);
    }
  }
  for (const std::string_view name : checkpoint.names()) {
    const bool is_embedding = name.find("embed_tokens.") != std::string_view::npos;
    if (replaced.contains(name) && !is_embedding) continue;
    list.push_back({.name = std::string(name), .source = checkpoint.find(name)});
  }
  return list;
}

using Files = std::vector<std::vector<OutputTensor>>;

Files cut_into_files(std::vector<OutputTensor> list, int64_t file_bytes) {
  Files files;
  int64_t bytes = 0;
  for (OutputTensor& tensor : list) {
    if (files.empty() || bytes + tensor.bytes() > file_bytes) {
      files.emplace_back();
      bytes = 0;
    }
    bytes += tensor.bytes();
    files.back().push_back(std::move(tensor));
  }
  return files;
}

std::string file_name(std::size_t number, std::size_t count) {
  std::array<char, 64> name{};
  std::snprintf(name.data(), name.size(), "model-%05zu-of-%05zu.safetensors", number, count);
  return name.data();
}

/// Rows [first, first + count) of stacked pieces.
void add_rows(const std::vector<StoredRows>& pieces, int64_t first, int64_t count, std::vector<StoredRows>& to) {
  for (const StoredRows& piece : pieces) {
    const int64_t begin = std::max<int64_t>(first, 0), end = std::min(first + count, piece.rows);
    if (begin < end) {
      to.push_back(piece);
      to.back().first_row += begin;
      to.back().rows = end - begin;
    }
    first -= piece.rows;
  }
}

/// Neighbouring panels of a matrix, one task.
struct Slab {
  const StoredMatrix* matrix;
  int64_t first_panel;
  int64_t num_panels;
  int64_t offset;  // bytes, in the batch

  int64_t bytes() const { return num_panels * matrix->panel_shape().panel_bytes(); }
  /// The rows that the panels hold: of a gated matrix gates, then their ups.
  std::vector<StoredRows> rows() const {
    const bool is_gated = matrix->use == WeightUse::kGated;
    const int64_t per_panel = is_gated ? kHalfCols : kPanelCols, all = is_gated ? matrix->n / 2 : matrix->n;
    const int64_t first = first_panel * per_panel, count = std::min(num_panels * per_panel, all - first);
    std::vector<StoredRows> found;
    add_rows(matrix->pieces, first, count, found);
    if (is_gated) add_rows(matrix->pieces, all + first, count, found);
    return found;
  }
};

class CheckpointPacker {
 public:
  CheckpointPacker(const Checkpoint& checkpoint, const TensorReader& reader, ThreadPool& pool, const PackOptions& options)
      : checkpoint_(checkpoint), reader_(reader), pool_(pool), options_(options), batch_(kBatchBytes) {}

  void expect(int64_t bytes_to_read) { total_bytes_ = bytes_to_read; }

  /// Returns the checksums of the file.
  FileChecksums write(const std::filesystem::path& path, const std::vector<OutputTensor>& tensors) {
    std::vector<TensorToWrite> entries;
    std::map<std::string, std::string> notes{{"format", "ferry panels"}, {"version", std::to_string(kPackedVersion)}};
    for (const OutputTensor& tensor : tensors) {
      entries.push_back(tensor.entry());
      if (tensor.matrix != nullptr) notes[tensor.name] = panels_note(tensor.matrix->panel_shape());
    }
    SafetensorsWriter writer(path, entries, notes);
    for (const OutputTensor& tensor : tensors) {
      if (tensor.matrix != nullptr) {
        add_slabs(*tensor.matrix, writer);
      } else {
        flush(writer);
        copy(*tensor.source, writer);
      }
    }
    flush(writer);
    return writer.commit();
  }

 private:
  void add_slabs(const StoredMatrix& matrix, SafetensorsWriter& writer) {
    const PanelShape shape = matrix.panel_shape();
    const int64_t most_fitting = std::max<int64_t>(1, kBatchBytes / shape.panel_bytes());
    const int64_t step = std::clamp<int64_t>(kSlabElements / (kPanelCols * shape.k), 1, most_fitting);
    for (int64_t panel = 0; panel < shape.num_panels(); panel += step) {
      const Slab slab{&matrix, panel, std::min(step, shape.num_panels() - panel), batch_bytes_};
      if (batch_bytes_ + slab.bytes() > kBatchBytes) flush(writer);
      slabs_.push_back(slab);
      slabs_.back().offset = batch_bytes_;
      batch_bytes_ += slab.bytes();
    }
  }

  /// Packs the slabs that wait and writes them.
  void flush(SafetensorsWriter& writer) {
    std::mutex mutex;
    std::exception_ptr error;
    int64_t read_bytes = 0;
    pool_.parallel_for(std::ssize(slabs_), [&](int64_t i, int) {
      try {
        const int64_t bytes = pack(slabs_[static_cast<std::size_t>(i)]);
        const std::scoped_lock lock(mutex);
        read_bytes += bytes;
      } catch (...) {
        const std::scoped_lock lock(mutex);
        if (error == nullptr) error = std::current_exception();
      }
    });
    if (error != nullptr) std::rethrow_exception(error);
    writer.write({batch_.data(), static_cast<std::size_t>(batch_bytes_)});
    slabs_.clear();
    batch_bytes_ = 0;
    tell(read_bytes);
  }

  /// Returns the bytes that were read.
  int64_t pack(const Slab& slab) {
    const std::vector<StoredRows> rows = slab.rows();
    std::byte* to = batch_.data() + slab.offset;
    std::memset(to, 0, static_cast<std::size_t>(slab.bytes()));
    const QuantizedMatrix quantized = reader_.read_quantized(rows, *slab.matrix->quantized);
    pack_panels(quantized, {quantized.n, slab.matrix->use == WeightUse::kGated}, to);
    reader_.drop_pages(rows);
    return StoredMatrix{.pieces = rows}.stored_bytes();
  }

  void copy(const TensorInfo& tensor, SafetensorsWriter& writer) {
    for (int64_t done = 0; done < tensor.bytes;) {
      const int64_t bytes = std::min(kCopyBytes, tensor.bytes - done);
      writer.write({tensor.data + done, static_cast<std::size_t>(bytes)});
      checkpoint_.drop_pages(tensor, done, bytes);
      done += bytes;
      tell(bytes);
    }
  }

  void tell(int64_t read_bytes) {
    done_bytes_ += read_bytes;
    if (options_.progress) options_.progress(done_bytes_, total_bytes_);
  }

  const Checkpoint& checkpoint_;
  const TensorReader& reader_;
  ThreadPool& pool_;
  const PackOptions& options_;
  AlignedBuffer batch_;
  int64_t batch_bytes_ = 0;  // of it that slabs_ take
  std::vector<Slab> slabs_;
  int64_t done_bytes_ = 0, total_bytes_ = 0;
};

/// Writes the files of a folder beside its weights, and keeps their checksums.
class SideFiles {
 public:
  explicit SideFiles(OutputFolder& folder) : folder_(folder) {}

  void copy_from(const std::filesystem::path& from) {
    for (const char* name : kCopiedFiles) {
      std::error_code error;
      if (std::filesystem::exists(from / name, error)) write(name, read_text_file(from / name));
    }
  }
  void write(const std::string& name, const std::string& text) {
    const std::span bytes = std::as_bytes(std::span(text));
    PendingFile file(folder_.add(name));
    file.write(bytes);
    file.commit();
    checksums_[name] = checksum_text(content_hash(bytes));
  }

  const std::map<std::string, std::string>& checksums() const { return checksums_; }

 private:
  OutputFolder& folder_;
  std::map<std::string, std::string> checksums_;
};

std::string index_text(const Files& files, int64_t total_bytes) {
  nlohmann::ordered_json index;
  index["metadata"]["total_size"] = total_bytes;
  std::map<std::string, std::string> places;
  for (std::size_t f = 0; f < files.size(); ++f) {
    for (const OutputTensor& tensor : files[f]) places[tensor.name] = file_name(f + 1, files.size());
  }
  index["weight_map"] = places;
  return index.dump(1) + "\n";
}

/// A disk that is too small is better known at once than after an hour.
void require_space(const std::filesystem::path& dir, int64_t bytes) {
  std::error_code error;
  const std::filesystem::space_info space = std::filesystem::space(dir, error);
  if (error || space.available >= static_cast<std::uintmax_t>(bytes)) return;
  throw Error(ErrorCode::kResourceExhausted, "--out: '" + dir.string() + "' needs " + std::to_string(bytes >> 20) +
                                                 " MiB of disk; available: " + std::to_string(space.available >> 20) + " MiB");
}

}  // namespace

PackSummary pack_checkpoint(const std::filesystem::path& from, const std::filesystem::path& to,
                            const FindMatrices& find_matrices, ThreadPool& pool, const PackOptions& options) {
  FERRY_CHECK(options.quantization.any());
  if (const auto packed = read_packed_mark(from)) {
    throw_invalid("--model: " + from.string() + " is packed already, as '" + quantization_name(packed->quantization) +
                  "'; allowed: a checkpoint with plain weights");
  }
  const Checkpoint checkpoint = Checkpoint::open(from);
  TensorReader reader(checkpoint, options.dtype, /*check_finite=*/true);
  const std::vector<StoredMatrix> matrices = find_matrices(checkpoint, reader);
  const Files files = cut_into_files(list_output(checkpoint, matrices), options.file_bytes);
  PackSummary summary{.num_files = std::ssize(files)};
  for (const std::vector<OutputTensor>& tensors : files) {
    for (const OutputTensor& tensor : tensors) {
      summary.read_bytes += tensor.bytes_to_read();
      summary.written_bytes += tensor.bytes();
    }
  }
  OutputFolder folder(to);
  require_space(to, summary.written_bytes);
  CheckpointPacker packer(checkpoint, reader, pool, options);
  packer.expect(summary.read_bytes);
  FolderChecksums checksums;
  for (std::size_t f = 0; f < files.size(); ++f) {
    const std::string name = file_name(f + 1, files.size());
    checksums.emplace(name, packer.write(folder.add(name), files[f]));
  }
  SideFiles beside(folder);
  beside.copy_from(from);
  beside.write(kIndexFile, index_text(files, summary.written_bytes));
  beside.write(kChecksumsFile, write_checksums(checksums));
  folder.add(kPackedMark);
  write_packed_mark(to, {.quantization = options.quantization, .files = beside.checksums()});
  folder.keep();
  return summary;
}

}  // namespace ferry
