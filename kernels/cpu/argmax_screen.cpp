#include "kernels/cpu/argmax_screen.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/cpu/screen_bounds.h"
#include "kernels/cpu/screen_codes.h"
#include "kernels/cpu_features.h"
#include "runtime/base/aligned_buffer.h"
#include "runtime/base/check.h"

namespace ferry {
namespace {

constexpr int64_t kFewRows = 6;        // with codes twice they are a tile of the kernels, which waits for its weights
constexpr int64_t kMostTwice = 12;     // rows with codes twice that gain, if all of them have
constexpr double kCoarse = 0.02;       // of |x|: what the first codes leave of rows that get second ones, too
constexpr int64_t kTaskPanels = 16;    // of int8 a task multiplies
constexpr int64_t kManyCodeRows = 72;  // above so many rows, half as many stay in a core's second-level cache
constexpr float kLowest = -std::numeric_limits<float>::infinity();

int64_t count_panels(int64_t cols) { return (cols + kPanelCols - 1) / kPanelCols; }

float as_bf16(float x) { return to_float(from_float<bfloat16>(x)); }

bool needs_rest(const ScreenedRow& row) { return row.is_screened && row.rest > kCoarse * row.norm; }

/// The highest value so far, of the lowest column among equals.
struct Best {
  float value = kLowest;
  int32_t id = kNoToken;

  void take(float other, int32_t other_id) {
    if (other > value || (other == value && id != kNoToken && other_id < id)) *this = {other, other_id};
  }
};

class PanelArgmaxScreen final : public ArgmaxScreen {
 public:
  PanelArgmaxScreen(const MatmulKernels& kernels, const PanelWeights& weights, int64_t max_rows, ThreadPool& pool);

  int64_t packed_bytes() const override { return argmax_screen_bytes(weights_.n, weights_.k); }
  bool argmax(Stream& stream, ConstMatrixView x, int64_t num_cols, std::span<const int32_t> rows, int32_t* ids) override;
  Count count() const override { return count_; }

 private:
  static constexpr int64_t kBoundFloats = 2 * kPanelCols;  // of a panel

  /// What a thread works with.
  struct Worker {
    AlignedBuffer products;               // [2 * max_rows, kTaskPanels * 32] fp32 of a task
    AlignedBuffer rows;                   // [max_rows, k] bf16 that are multiplied with a candidate
    AlignedBuffer logits;                 // [max_rows, kTaskPanels * 32] bf16 of these
    std::vector<int32_t> wanted, others;  // of a run of panels: its rows; of the panel behind it
    std::vector<float> lower;             // [max_rows] the highest lower bound
    std::vector<Best> best;               // [max_rows]
    int64_t num_columns = 0;              // that were multiplied in bf16
  };

  void screen_rows(ThreadPool& pool);
  bool gains() const;
  void bound_panels(int64_t first_panel, int64_t num_panels, Worker& worker);
  void set_limits();
  void rescore(int64_t first_panel, int64_t num_panels, Worker& worker);
  void rescore_run(int64_t first_panel, int64_t num_panels, Worker& worker);
  void find_wanted(int64_t panel, std::vector<int32_t>& wanted) const;
  float* upper(int64_t row) { return upper_.data() + row * num_panels_; }
  ScreenCodes codes_of(int64_t code_row) { return {codes_.view().row<int8_t>(code_row), code_scales_.data() + code_row}; }

  const MatmulKernels kernels_;
  const PanelWeights weights_;
  decltype(&cpu_avx2::bound_columns) bound_columns_;
  AlignedBuffer panels_;              // int8
  std::vector<float> column_bounds_;  // [num_panels][2][32]
  float largest_column_ = 0;          // the largest |w|
  Matrix codes_;                      // [2 * max_rows, quantized_cols(k)]
  std::vector<float> code_scales_;    // [2 * max_rows]
  std::vector<float> upper_;          // [max_rows, panels of the call] the highest upper bound of each
  std::vector<Worker> workers_;       // by thread
  Count count_;

  // Of the call in progress.
  ConstMatrixView x_;
  std::span<const int32_t> rows_;
  int64_t num_cols_ = 0, num_panels_ = 0;
  std::vector<ScreenedRow> screened_;  // [rows]
  std::vector<int32_t> rest_rows_;     // of rows_, those with second codes, in order
  std::vector<int32_t> rest_place_;    // [rows] of each the code row of its second codes, or -1
  std::vector<float> limits_;          // [rows] panels whose bound is not below may hold the highest
};

PanelArgmaxScreen::PanelArgmaxScreen(const MatmulKernels& kernels, const PanelWeights& weights, int64_t max_rows,
                                     ThreadPool& pool)
    : kernels_(kernels),
      weights_(weights),
      bound_columns_(has_avx512() ? cpu_avx512::bound_columns : cpu_avx2::bound_columns),
      panels_(static_cast<std::size_t>(weights.num_panels() * panel_bytes({WeightFormat::kInt8}, weights.k))),
      column_bounds_(static_cast<std::size_t>(weights.num_panels() * kBoundFloats)),
      codes_(DType::kI8, 2 * max_rows, quantized_cols(weights.k)),
      code_scales_(static_cast<std::size_t>(2 * max_rows)),
      upper_(static_cast<std::size_t>(max_rows * weights.num_panels())),
      workers_(static_cast<std::size_t>(pool.num_threads())),
      screened_(static_cast<std::size_t>(max_rows)),
      rest_place_(static_cast<std::size_t>(max_rows)),
      limits_(static_cast<std::size_t>(max_rows)) {
  const int64_t from_stride = panel_bytes({WeightFormat::kBF16}, weights.k),
                stride = panel_bytes({WeightFormat::kInt8}, weights.k);
  pool.parallel_for(weights.num_panels(), [&](int64_t p, int) {
    screen_panel(weights.panels + p * from_stride, weights.k, panels_.data() + p * stride,
                 column_bounds_.data() + p * kBoundFloats);
  });
  largest_column_ = largest_norm(column_bounds_.data(), weights.num_panels());
  rest_rows_.reserve(static_cast<std::size_t>(max_rows));
  const auto most = static_cast<std::size_t>(max_rows);
  for (Worker& worker : workers_) {
    worker.products = AlignedBuffer(2 * most * kTaskPanels * kPanelCols * sizeof(float));
    worker.rows = AlignedBuffer(most * static_cast<std::size_t>(weights.k) * sizeof(bfloat16));
    worker.logits = AlignedBuffer(most * kTaskPanels * kPanelCols * sizeof(bfloat16));
    worker.wanted.reserve(most);
    worker.others.reserve(most);
    worker.lower.resize(most);
    worker.best.resize(most);
  }
}

bool PanelArgmaxScreen::argmax(Stream& stream, ConstMatrixView x, int64_t num_cols, std::span<const int32_t> rows,
                               int32_t* ids) {
  ThreadPool& pool = stream.pool();
  const auto num_rows = static_cast<int64_t>(rows.size());
  FERRY_CHECK(x.dtype == DType::kBF16 && num_cols >= 1 && num_cols <= weights_.n) << num_cols << " of " << weights_.n;
  FERRY_CHECK_EQ(x.cols, weights_.k);
  FERRY_CHECK_LE(num_rows, std::ssize(screened_));
  FERRY_CHECK_LE(pool.num_threads(), static_cast<int>(workers_.size()));
  if (num_rows == 0) return true;
  x_ = x;
  rows_ = rows;
  num_cols_ = num_cols;
  num_panels_ = count_panels(num_cols);
  for (Worker& worker : workers_) {
    std::ranges::fill(worker.lower, kLowest);
    std::ranges::fill(worker.best, Best{});
    worker.num_columns = 0;
  }
  const int64_t num_tasks = (num_panels_ + kTaskPanels - 1) / kTaskPanels;
  const auto for_each_task = [&](auto work) {
    pool.parallel_for(num_tasks, [&](int64_t task, int thread) {
      const int64_t first = task * kTaskPanels;
      work(first, std::min(kTaskPanels, num_panels_ - first), workers_[static_cast<std::size_t>(thread)]);
    });
  };
  screen_rows(pool);
  if (!gains()) return false;
  for_each_task([this](int64_t first, int64_t count, Worker& worker) { bound_panels(first, count, worker); });
  set_limits();
  for_each_task([this](int64_t first, int64_t count, Worker& worker) { rescore(first, count, worker); });
  for (std::size_t r = 0; r < rows.size(); ++r) {
    Best best;
    for (const Worker& worker : workers_) best.take(worker.best[r].value, worker.best[r].id);
    ids[rows[r]] = best.id;
  }
  count_.columns += num_rows * num_cols;
  for (const Worker& worker : workers_) count_.in_bf16 += worker.num_columns;
  return true;
}

/// Codes of all rows: first ones in the rows' order, second ones behind them.
void PanelArgmaxScreen::screen_rows(ThreadPool& pool) {
  const int64_t num_rows = std::ssize(rows_);
  const bool are_few = num_rows <= kFewRows;
  pool.parallel_for(num_rows, [&](int64_t r, int) {
    const ScreenCodes rest = codes_of(num_rows + r);
    const auto* x = reinterpret_cast<const bfloat16*>(x_.row_bytes(rows_[static_cast<std::size_t>(r)]));
    ScreenedRow& row = screened_[static_cast<std::size_t>(r)];
    row = screen_row(x, weights_.k, largest_column_, codes_of(r), are_few ? &rest : nullptr);
    if (!are_few && needs_rest(row)) row = screen_row(x, weights_.k, largest_column_, codes_of(r), &rest);
  });
  rest_rows_.clear();
  for (int64_t r = 0; r < num_rows; ++r) {
    const ScreenedRow& row = screened_[static_cast<std::size_t>(r)];
    rest_place_[static_cast<std::size_t>(r)] = -1;
    if (!row.is_screened || !(are_few || needs_rest(row))) continue;
    const int64_t from = num_rows + r, to = num_rows + std::ssize(rest_rows_);
    std::memmove(codes_of(to).codes, codes_of(from).codes, static_cast<std::size_t>(codes_.cols()));
    *codes_of(to).scale = *codes_of(from).scale;
    rest_place_[static_cast<std::size_t>(r)] = static_cast<int32_t>(to);
    rest_rows_.push_back(static_cast<int32_t>(r));
  }
}

/// Whether products with the codes take less time than those in bf16, which take twice the time a row.
bool PanelArgmaxScreen::gains() const {
  const int64_t num_rows = std::ssize(rows_), num_code_rows = num_rows + std::ssize(rest_rows_);
  return num_code_rows <= std::max(2 * kMostTwice, num_rows + num_rows / 2);
}

void PanelArgmaxScreen::bound_panels(int64_t first_panel, int64_t num_panels, Worker& worker) {
  const int64_t num_rows = std::ssize(rows_), num_code_rows = num_rows + std::ssize(rest_rows_);
  const int64_t at_once = num_code_rows > kManyCodeRows ? kTaskPanels / 2 : kTaskPanels;
  auto* products = reinterpret_cast<float*>(worker.products.data());
  constexpr int64_t kStride = kTaskPanels * kPanelCols;
  for (int64_t done = 0; done < num_panels; done += at_once) {
    const int64_t panel = first_panel + done, count = std::min(at_once, num_panels - done);
    const int64_t cols = std::min(count * kPanelCols, num_cols_ - panel * kPanelCols);
    kernels_.int8({.x = codes_.view().row_bytes(0),
                   .x_dtype = DType::kI8,
                   .x_stride = codes_.view().row_stride,
                   .x_scales = code_scales_.data(),
                   .panels = panels_.data() + panel * panel_bytes({WeightFormat::kInt8}, weights_.k),
                   .num_panels = count,
                   .type = {WeightFormat::kInt8},
                   .k = weights_.k,
                   .out = worker.products.data(),
                   .out_stride = kStride,
                   .num_rows = num_code_rows,
                   .num_cols = cols,
                   .out_dtype = DType::kF32});
    for (int64_t r = 0; r < num_rows; ++r) {
      const auto i = static_cast<std::size_t>(r);
      if (!screened_[i].is_screened) continue;
      const float lower = bound_columns_({.products = products + r * kStride,
                                          .rest_products = rest_place_[i] < 0 ? nullptr : products + rest_place_[i] * kStride,
                                          .column_bounds = column_bounds_.data() + panel * kBoundFloats,
                                          .row = screened_[i].bounds,
                                          .num_cols = cols,
                                          .upper = upper(r) + panel});
      worker.lower[i] = std::max(worker.lower[i], lower);
    }
  }
}

void PanelArgmaxScreen::set_limits() {
  for (std::size_t r = 0; r < rows_.size(); ++r) {
    float lower = kLowest;
    for (const Worker& worker : workers_) lower = std::max(lower, worker.lower[r]);
    limits_[r] = as_bf16(lower);
  }
}

/// The rows whose highest column may be in the panel.
void PanelArgmaxScreen::find_wanted(int64_t panel, std::vector<int32_t>& wanted) const {
  wanted.clear();
  for (std::size_t r = 0; r < rows_.size(); ++r) {
    const float bound = upper_[r * static_cast<std::size_t>(num_panels_) + static_cast<std::size_t>(panel)];
    if (!screened_[r].is_screened || as_bf16(bound) >= limits_[r]) wanted.push_back(static_cast<int32_t>(r));
  }
}

/// Neighbouring panels that the same rows want are multiplied together.
void PanelArgmaxScreen::rescore(int64_t first_panel, int64_t num_panels, Worker& worker) {
  const int64_t end = first_panel + num_panels;
  find_wanted(first_panel, worker.wanted);
  for (int64_t panel = first_panel; panel < end;) {
    int64_t next = panel + 1;
    for (; next < end; ++next) {
      find_wanted(next, worker.others);
      if (worker.others != worker.wanted) break;
    }
    rescore_run(panel, next - panel, worker);
    std::swap(worker.wanted, worker.others);
    panel = next;
  }
}

void PanelArgmaxScreen::rescore_run(int64_t first_panel, int64_t num_panels, Worker& worker) {
  if (worker.wanted.empty()) return;
  const auto num_rows = static_cast<int64_t>(worker.wanted.size());
  const int64_t row_bytes = weights_.k * static_cast<int64_t>(sizeof(bfloat16)), first_col = first_panel * kPanelCols;
  const int64_t cols = std::min(num_panels * kPanelCols, num_cols_ - first_col);
  for (int64_t i = 0; i < num_rows; ++i) {
    const int32_t row = rows_[static_cast<std::size_t>(worker.wanted[static_cast<std::size_t>(i)])];
    std::memcpy(worker.rows.data() + i * row_bytes, x_.row_bytes(row), static_cast<std::size_t>(row_bytes));
  }
  kernels_.bf16({.x = worker.rows.data(),
                 .x_dtype = DType::kBF16,
                 .x_stride = row_bytes,
                 .panels = weights_.panels + first_panel * panel_bytes({WeightFormat::kBF16}, weights_.k),
                 .num_panels = num_panels,
                 .type = {WeightFormat::kBF16},
                 .k = weights_.k,
                 .out = worker.logits.data(),
                 .out_stride = kTaskPanels * kPanelCols,
                 .num_rows = num_rows,
                 .num_cols = cols,
                 .out_dtype = DType::kBF16});
  worker.num_columns += num_rows * cols;
  const auto* logits = reinterpret_cast<const bfloat16*>(worker.logits.data());
  for (const int32_t r : worker.wanted) {
    Best& best = worker.best[static_cast<std::size_t>(r)];
    for (int64_t c = 0; c < cols; ++c) best.take(to_float(logits[c]), static_cast<int32_t>(first_col + c));
    logits += kTaskPanels * kPanelCols;
  }
}

}  // namespace

int64_t argmax_screen_bytes(int64_t n, int64_t k) {
  const int64_t bounds = 2 * kPanelCols * static_cast<int64_t>(sizeof(float));
  return count_panels(n) * (panel_bytes({WeightFormat::kInt8}, k) + bounds);
}

std::unique_ptr<ArgmaxScreen> make_panel_argmax_screen(const MatmulKernels& kernels, const PanelWeights& weights,
                                                       int64_t max_rows, ThreadPool& pool) {
  return std::make_unique<PanelArgmaxScreen>(kernels, weights, max_rows, pool);
}

}  // namespace ferry
