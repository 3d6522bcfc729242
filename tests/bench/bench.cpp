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

bool Bench::is_fresh(int64_t at_ns) const { return at_ns > 0 && (settings_.is_quick || now_ns() - at_ns < kRoofLifetimeNs); }

double Bench::read_roof() {
  if (is_fresh(read_at_ns_)) return read_bytes_per_s_;
  read_bytes_per_s_ = roof_.read_bytes_per_s();
  read_at_ns_ = now_ns();
  std::printf("-- %d threads: read %.1f GB/s\n", pool_.num_threads(), read_bytes_per_s_ * 1e-9);
  return read_bytes_per_s_;
}

Bench::MultiplyRoof& Bench::multiply_roof(DType dtype, const std::string& kernels) {
  const char* const unit = multiply_unit(dtype, kernels);
  MultiplyRoof& roof = multiply_roofs_[unit];
  if (is_fresh(roof.at_ns)) return roof;
  roof = {.operations_per_s = roof_.flops_per_s(dtype, kernels), .at_ns = now_ns()};
  std::printf("-- %d threads: multiply %s %.1f GFLOP/s\n", pool_.num_threads(), unit, roof.operations_per_s * 1e-9);
  return roof;
}

/// At the roofs.
double Bench::multiply_seconds(const Work& work) {
  const double of_unit = work.operations / multiply_roof(work.dtype, work.kernels).operations_per_s;
  if (work.vector_operations == 0) return of_unit;
  const double of_vectors = work.vector_operations / multiply_roof(DType::kF32, work.kernels).operations_per_s;
  const bool has_tiles = std::string_view(multiply_unit(work.dtype, work.kernels)).starts_with("amx");
  return has_tiles ? std::max(of_unit, of_vectors) : of_unit + of_vectors;
}

/// At the roofs, of what took `seconds`: if that is less, they are measured anew, and the better counts.
double Bench::least_multiply_seconds(const Work& work, double seconds) {
  constexpr int kMostProbes = 6;
  double least = multiply_seconds(work);
  for (int probes = 1; probes < kMostProbes && least > seconds; ++probes) {
    for (const DType dtype : {work.dtype, DType::kF32}) {
      MultiplyRoof& roof = multiply_roof(dtype, work.kernels);
      roof.operations_per_s = std::max(roof.operations_per_s, roof_.flops_per_s(dtype, work.kernels));
    }
    least = multiply_seconds(work);
  }
  return least;
}

void Bench::measure(const std::string& name, const Work& work, const std::function<void(int64_t)>& call) {
  if (!wants_line(name)) return;
  const double read_bytes_per_s = read_roof();
  multiply_seconds(work);  // measures the roofs
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
  const double read_s = work.bytes / read_bytes_per_s, multiply_s = least_multiply_seconds(work, median);
  const double operations = work.operations + work.vector_operations;
  std::printf("%-54s %9.1f us %9.1f us %9.3f MB %10.3f Mop %7.1f GB/s %8.1f GFLOP/s %6.1f %% of %s\n", name.c_str(),
              median * 1e6, p99 * 1e6, work.bytes * 1e-6, operations * 1e-6, work.bytes / median * 1e-9,
              operations / median * 1e-9, 100 * std::max(read_s, multiply_s) / median,
              read_s > multiply_s ? "read" : "multiply");
  std::fflush(stdout);
  ++num_measured_;
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
