#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/tensor.h"
#include "profiler/write_file.h"
#include "runtime/base/error.h"
#include "runtime/base/thread_pool.h"
#include "runtime/checkpoint/safetensors_writer.h"
#include "tests/bench/slice_shapes.h"

// ferry_slice: a checkpoint with the layer shapes and the vocabulary of a released model but few layers and random weights, to
// measure on: what a token costs depends on shapes alone.

namespace ferry {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

/// A well-mixed word for a counter (splitmix64, Steele, Lea and Flood 2014).
uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

/// Nearly normal: the sum of four uniform numbers, scaled to variance 1.
float draw(uint64_t counter) {
  const uint64_t bits = mix(counter);
  int sum = 0;
  for (int i = 0; i < 4; ++i) sum += static_cast<int>((bits >> (16 * i)) & 0xffff);
  return (static_cast<float>(sum) / 65536.0F - 2.0F) * 1.7320508F;
}

/// Tensors of one shard.
class Shard {
 public:
  Shard(ThreadPool& pool, uint64_t seed) : pool_(pool), seed_(seed) {}

  void add(const std::string& name, const std::vector<int64_t>& shape, float deviation, float mean = 0.0F) {
    int64_t rows = 1;
    for (std::size_t i = 0; i + 1 < shape.size(); ++i) rows *= shape[i];
    Matrix values(DType::kBF16, rows, shape.back());
    const uint64_t first = mix(seed_ + names_.size()) << 8;
    pool_.parallel_for(rows, [&](int64_t r, int) {
      bfloat16* row = values.view().row<bfloat16>(r);
      for (int64_t c = 0; c < values.cols(); ++c)
        row[c] = to_bfloat16(mean + deviation * draw(first + static_cast<uint64_t>(r * values.cols() + c)));
    });
    names_.push_back(name);
    shapes_.push_back(shape);
    values_.push_back(std::move(values));
  }

  /// Writes the file and enters its tensors into the index.
  void write(const fs::path& dir, const std::string& file, ordered_json& index) {
    std::vector<TensorToWrite> tensors;
    for (std::size_t i = 0; i < names_.size(); ++i) {
      const ConstMatrixView v = std::as_const(values_[i]).view();
      tensors.push_back({names_[i],
                         StoredType::kBF16,
                         shapes_[i],
                         {v.data, static_cast<std::size_t>(v.rows * v.cols * dtype_bytes(v.dtype))}});
      index["weight_map"][names_[i]] = file;
    }
    write_safetensors(dir / file, tensors);
  }

 private:
  ThreadPool& pool_;
  uint64_t seed_;
  std::vector<std::string> names_;
  std::vector<std::vector<int64_t>> shapes_;
  std::vector<Matrix> values_;
};

void write_slice(const fs::path& dir, const ModelSlice& slice) {
  fs::create_directories(dir);
  ThreadPool pool(static_cast<int>(std::max(1U, std::thread::hardware_concurrency())));
  ordered_json index{{"metadata", {{"format", "pt"}}}, {"weight_map", ordered_json::object()}};
  for (const SliceShard& shard : slice.shards) {
    Shard tensors(pool, shard.seed);
    for (const SliceTensor& tensor : shard.tensors) tensors.add(tensor.name, tensor.shape, tensor.deviation, tensor.mean);
    tensors.write(dir, shard.file, index);
    std::fprintf(stderr, "ferry_slice: %s\n", shard.file.c_str());
  }
  write_file(dir / "model.safetensors.index.json", [&](std::ostream& out) { out << index.dump(1) << '\n'; });
  // Last: without it the folder is no checkpoint.
  write_file(dir / "config.json", [&](std::ostream& out) { out << slice.config.dump(1) << '\n'; });
}

}  // namespace
}  // namespace ferry

int main(int argc, char** argv) {
  CLI::App app{"Writes a checkpoint with the layer shapes of a released model, few layers and random weights, in bfloat16."};
  std::filesystem::path out;
  std::string shape = "35b";
  int64_t num_layers = 4;
  app.add_option("--out", out, "folder for the checkpoint")->required();
  app.add_option("--shape", shape,
                 "35b (1.7 GB a layer), 122b (4.9), 397b (13), 27b (0.8), next-80b (3.3) or lfm2-8b (0.7); default 35b")
      ->check(CLI::IsMember(ferry::slice_names()));
  app.add_option("--layers", num_layers, "every fourth is attention; default 4")->check(CLI::Range(1, 40));
  int64_t vocab = 0;
  app.add_option("--vocab", vocab, "tokens, so that the head weighs as in the whole model; default: the released model's")
      ->check(CLI::Range(16, 1 << 20));
  bool has_mtp = false;
  app.add_flag("--mtp", has_mtp, "with a layer that guesses further tokens");
  CLI11_PARSE(app, argc, argv);
  try {
    ferry::write_slice(out,
                       ferry::make_slice(shape, num_layers, has_mtp ? ferry::MtpPart::kLayer : ferry::MtpPart::kNone, vocab));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "ferry_slice: %s\n", error.what());
    return 1;
  }
  return 0;
}
