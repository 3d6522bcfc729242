#include "tests/bench/bench.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <random>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/roof_probe.h"
#include "runtime/base/error.h"

namespace ferry::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kQuickStreamBytes = std::size_t{4} << 20;
constexpr double kMeasureSeconds = 0.5;  // of a line; more where kFewestCalls take longer
constexpr std::size_t kFewestCalls = 7;
constexpr std::size_t kMostCalls = 2001;
constexpr std::size_t kQuickCalls = 2;
constexpr int64_t kRoofLifetimeNs = 5'000'000'000;
constexpr std::chrono::microseconds kSpin{50};

int64_t now_ns() { return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch()).count(); }

float element(ConstMatrixView view, int64_t r, int64_t c) {
  return visit_dtype(view.dtype, [&]<class T>() { return to_float(view.row<T>(r)[c]); });
}

void require_same_shape(ConstMatrixView expected, ConstMatrixView actual) {
  FERRY_CHECK(expected.dtype == actual.dtype);
  FERRY_CHECK_EQ(expected.rows, actual.rows);
  FERRY_CHECK_EQ(expected.cols, actual.cols);
}

std::string place(int64_t r, int64_t c) { return ": row " + std::to_string(r) + ", column " + std::to_string(c); }

}  // namespace

Bench::Bench(Settings settings)
    : settings_(std::move(settings)),
      pool_(settings_.threads, kSpin),
      roof_(pool_, settings_.is_quick ? kQuickStreamBytes : RoofProbe::kStreamBytes) {}

/// A second at best, measured by `probe`.
double Bench::roof(const std::string& name, const char* unit, Probe when, const std::function<double()>& probe) {
  Roof& roof = roofs_[name];
  const bool is_fresh = roof.at_ns > 0 && (settings_.is_quick || now_ns() - roof.at_ns < kRoofLifetimeNs);
  if (is_fresh && when == Probe::kIfStale) return roof.per_s;
  const double now = probe();
  roof = {.per_s = is_fresh ? std::max(roof.per_s, now) : now, .at_ns = now_ns()};
  std::printf("-- %d threads: %s %.1f %s\n", pool_.num_threads(), name.c_str(), roof.per_s * 1e-9, unit);
  return roof.per_s;
}

double Bench::memory_roof(double working_set, StreamAccess access, Probe when) {
  const auto bytes = static_cast<std::size_t>(working_set);
  const bool is_read = access == StreamAccess::kRead;
  char name[80];
  std::snprintf(name, sizeof name, "%s %.3f MB", is_read ? "read" : "rewrite", working_set * 1e-6);
  const auto probe = [&] { return is_read ? roof_.read_bytes_per_s(bytes) : roof_.rewrite_bytes_per_s(bytes); };
  return roof(name, "GB/s", when, probe);
}

double Bench::multiply_roof(DType dtype, const std::string& kernels, Probe when) {
  const std::string name = std::string("multiply ") + multiply_unit(dtype, kernels);
  return roof(name, "GFLOP/s", when, [&] { return roof_.flops_per_s(dtype, kernels); });
}

/// At the roofs.
double Bench::memory_seconds(const Work& work, Probe when) {
  const double working_set = work.working_set > 0 ? work.working_set : work.bytes;
  const double read_s = (work.bytes - work.rewritten_bytes) / memory_roof(working_set, StreamAccess::kRead, when);
  if (work.rewritten_bytes == 0) return read_s;
  return read_s + work.rewritten_bytes / memory_roof(working_set, StreamAccess::kRewrite, when);
}

/// At the roofs.
double Bench::multiply_seconds(const Work& work, Probe when) {
  const double of_unit = work.operations / multiply_roof(work.dtype, work.kernels, when);
  if (work.vector_operations == 0) return of_unit;
  const double of_vectors = work.vector_operations / multiply_roof(DType::kF32, work.kernels, when);
  const bool has_tiles = std::string_view(multiply_unit(work.dtype, work.kernels)).starts_with("amx");
  return has_tiles ? std::max(of_unit, of_vectors) : of_unit + of_vectors;
}

/// At the roofs, of what took `seconds`: the one that says that it takes longer is measured anew, and the better counts.
Bench::LeastSeconds Bench::least_seconds(const Work& work, double seconds) {
  constexpr int kMostProbes = 6;
  LeastSeconds least{memory_seconds(work, Probe::kIfStale), multiply_seconds(work, Probe::kIfStale)};
  for (int probes = 1; probes < kMostProbes && least.longer() > seconds; ++probes) {
    if (least.memory > seconds) least.memory = memory_seconds(work, Probe::kOnceMore);
    if (least.multiply > seconds) least.multiply = multiply_seconds(work, Probe::kOnceMore);
  }
  return least;
}

double Bench::measure(const std::string& name, const Work& work, const std::function<void(int64_t)>& call) {
  if (!wants_line(name)) return 0;
  memory_seconds(work, Probe::kIfStale);  // measures the roofs
  multiply_seconds(work, Probe::kIfStale);
  call(0);
  std::vector<double> seconds;
  double total = 0;
  while (seconds.size() < (settings_.is_quick ? kQuickCalls : kFewestCalls) ||
         (!settings_.is_quick && total < kMeasureSeconds && seconds.size() < kMostCalls)) {
    const auto start = Clock::now();
    call(static_cast<int64_t>(seconds.size()) + 1);
    seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
    total += seconds.back();
  }
  std::sort(seconds.begin(), seconds.end());
  const double median = seconds[seconds.size() / 2], p99 = seconds[(99 * seconds.size() + 99) / 100 - 1];
  const LeastSeconds least = least_seconds(work, median);
  const double operations = work.operations + work.vector_operations, share = least.longer() / median;
  std::printf("%-54s %9.1f us %9.1f us %9.3f MB %10.3f Mop %7.1f GB/s %8.1f GFLOP/s %6.1f %% of %s\n", name.c_str(),
              median * 1e6, p99 * 1e6, work.bytes * 1e-6, operations * 1e-6, work.bytes / median * 1e-9,
              operations / median * 1e-9, 100 * share, least.memory > least.multiply ? "read" : "multiply");
  std::fflush(stdout);
  ++num_measured_;
  return share;
}

int run_program(int argc, char** argv, const char* what, const std::function<void(Bench&)>& body) {
  Settings settings;
  settings.threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  CLI::App app(what);
  app.add_option("--threads", settings.threads, "threads that compute")->check(CLI::PositiveNumber);
  app.add_option("--kernels", settings.kernels, "the only implementation to measure");
  app.add_option("--only", settings.only, "measure only lines whose names contain this");
  app.add_flag("--quick", settings.is_quick, "tiny sizes: only to see that the program works");
  CLI11_PARSE(app, argc, argv);
  try {
    Bench bench(settings);
    body(bench);
    if (bench.num_measured() > 0) return 0;
    std::fprintf(stderr, "nothing was measured: --kernels is '%s', --only is '%s'\n", settings.kernels.c_str(),
                 settings.only.c_str());
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
  }
  return 1;
}

void require_close(ConstMatrixView expected, ConstMatrixView actual, double relative, const std::string& what,
                   double last_places) {
  require_same_shape(expected, actual);
  double largest = 0;
  for (int64_t r = 0; r < expected.rows; ++r) {
    for (int64_t c = 0; c < expected.cols; ++c) largest = std::max<double>(largest, std::abs(element(expected, r, c)));
  }
  const double last_place = expected.dtype == DType::kF32 ? 0.0 : last_places / 128.0;
  for (int64_t r = 0; r < expected.rows; ++r) {
    for (int64_t c = 0; c < expected.cols; ++c) {
      const double e = element(expected, r, c), a = element(actual, r, c);
      if (std::abs(a - e) <= relative * largest + last_place * std::abs(e)) continue;
      throw Error(ErrorCode::kInternal, what + place(r, c) + " is " + std::to_string(a) + " instead of " + std::to_string(e));
    }
  }
}

void require_same_bits(ConstMatrixView expected, ConstMatrixView actual, const std::string& what) {
  require_same_shape(expected, actual);
  const int64_t bytes = dtype_bytes(expected.dtype);
  for (int64_t r = 0; r < expected.rows; ++r) {
    for (int64_t c = 0; c < expected.cols; ++c) {
      const std::size_t at = static_cast<std::size_t>(c * bytes);
      if (std::memcmp(expected.row_bytes(r) + at, actual.row_bytes(r) + at, static_cast<std::size_t>(bytes)) == 0) continue;
      throw Error(ErrorCode::kInternal, what + place(r, c) + " has other bits than the reference");
    }
  }
}

void fill_uniform(MatrixView view, uint32_t seed, float largest) {
  std::minstd_rand generator(seed + 1);
  const float step = 2.0F * largest / static_cast<float>(std::minstd_rand::max());
  visit_dtype(view.dtype, [&]<class T>() {
    for (int64_t r = 0; r < view.rows; ++r) {
      T* row = view.row<T>(r);
      for (int64_t c = 0; c < view.cols; ++c) row[c] = from_float<T>(static_cast<float>(generator()) * step - largest);
    }
  });
}

Matrix uniform_matrix(DType dtype, int64_t rows, int64_t cols, uint32_t seed, float largest) {
  Matrix matrix(dtype, rows, cols);
  fill_uniform(matrix.view(), seed, largest);
  return matrix;
}

}  // namespace ferry::bench
