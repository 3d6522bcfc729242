#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "kernels/backend.h"
#include "kernels/roof.h"
#include "kernels/tensor.h"
#include "runtime/base/thread_pool.h"

// What the benchmarks of the kernels share: arguments, the roof of the machine, timing and the lines of the table.

namespace ferry::bench {

struct Settings {
  int threads = 0;
  bool is_quick = false;  // tiny sizes and few repetitions: does the program still work?
  std::string kernels;    // the only implementation that is measured; empty: all
  std::string only;       // only lines whose names contain this are measured
};

/// What one call does at least, counted from its shapes.
struct Work {
  double bytes = 0;              // read once and written once
  double rewritten_bytes = 0;    // of these, the ones of what is read and written back in place, which count twice
  double working_set = 0;        // bytes of memory that the calls come back to, from which `bytes` come; 0: that many
  double operations = 0;         // a multiply-add is two
  double vector_operations = 0;  // beside those, of fp32 factors by the vectors of the same kernels
  DType dtype = DType::kBF16;    // of the factors: which roof the operations have, with the unit that multiplies them
  std::string kernels;           // whose unit that is, "avx2" (multiply_unit); of other names and without one the best
};

/// Measures calls and prints a line for each:
///
///   name   median and p99 in us   MB   Mop   GB/s   GFLOP/s   share of the roof, and which roof that is
///
/// The roof of a call is the longer of its bytes at the speed of plain reading, and writing back, in a working set of the same
/// size, shared out over the same threads, and its operations at the speed of multiply-adds in registers by the same unit. So
/// what lies in a cache is held against that cache. Roofs are measured a few seconds before at most; where a call took less
/// than at its roof, the host was slow meanwhile: that roof is measured some times more, and the best counts. Tiles of AMX
/// multiply beside vectors, so of both the longer time counts; other units are the vectors' own.
class Bench {
 public:
  explicit Bench(Settings settings);

  const Settings& settings() const { return settings_; }
  ThreadPool& pool() { return pool_; }
  /// Work on the pool.
  Stream& stream() { return stream_; }
  bool wants(const std::string& kernels) const { return settings_.kernels.empty() || settings_.kernels == kernels; }
  /// Whether measure() would measure a line of this name.
  bool wants_line(const std::string& name) const { return name.find(settings_.only) != std::string::npos; }

  /// Times call(1), call(2), … after a call(0) that is not counted; nothing where the line is not wanted. Returns the share of
  /// the roof, 1 being all of it; 0 if there is no line.
  double measure(const std::string& name, const Work& work, const std::function<void(int64_t)>& call);
  /// The number of lines printed.
  int num_measured() const { return num_measured_; }

 private:
  /// What was measured at best, bytes or operations a second, and when.
  struct Roof {
    double per_s = 0;
    int64_t at_ns = 0;
  };
  struct LeastSeconds {
    double memory = 0, multiply = 0;

    double longer() const { return memory > multiply ? memory : multiply; }
  };

  enum class Probe : uint8_t {
    kIfStale,
    kOnceMore,  // of a fresh one the better counts
  };

  double roof(const std::string& name, const char* unit, Probe when, const std::function<double()>& probe);
  double memory_roof(double working_set, StreamAccess access, Probe when);
  double multiply_roof(DType dtype, const std::string& kernels, Probe when);
  double memory_seconds(const Work& work, Probe when);
  double multiply_seconds(const Work& work, Probe when);
  LeastSeconds least_seconds(const Work& work, double seconds);

  Settings settings_;
  ThreadPool pool_;
  Backend backend_ = select_backend("auto", "auto", DType::kBF16);
  Stream stream_{backend_, pool_};
  RoofProbe roof_;
  std::map<std::string, Roof> roofs_;  // by what is done, and of memory in how many bytes
  int num_measured_ = 0;
};

/// Reads the arguments (--threads, --kernels, --quick) and runs `body`; the exit code of the program, 1 after an Error or if
/// nothing was measured.
int run_program(int argc, char** argv, const char* what, const std::function<void(Bench&)>& body);

/// Throws Error{kInternal} unless every element is within `relative` of the largest expected magnitude; bf16 may also differ by
/// `last_places` units in its last place, one for every rounding on the way.
void require_close(ConstMatrixView expected, ConstMatrixView actual, double relative, const std::string& what,
                   double last_places = 1);
/// Likewise unless all bits are equal.
void require_same_bits(ConstMatrixView expected, ConstMatrixView actual, const std::string& what);

/// Fills with uniform values in [-largest, largest]; the same seed gives the same values.
void fill_uniform(MatrixView view, uint32_t seed, float largest);
Matrix uniform_matrix(DType dtype, int64_t rows, int64_t cols, uint32_t seed, float largest = 1.0F);

}  // namespace ferry::bench
