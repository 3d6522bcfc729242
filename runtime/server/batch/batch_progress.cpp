#include "runtime/server/batch/batch_progress.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

namespace ferry::batch {
namespace {

constexpr int kBarCells = 24;

}  // namespace

std::string duration_text(double seconds) {
  const auto whole = static_cast<int64_t>(std::llround(std::clamp(seconds, 0.0, 1e9)));
  std::array<char, 48> text{};
  if (whole >= 3600) {
    std::snprintf(text.data(), text.size(), "%lld:%02lld:%02lld", static_cast<long long>(whole / 3600),
                  static_cast<long long>(whole / 60 % 60), static_cast<long long>(whole % 60));
  } else {
    std::snprintf(text.data(), text.size(), "%lld:%02lld", static_cast<long long>(whole / 60),
                  static_cast<long long>(whole % 60));
  }
  return text.data();
}

std::string describe(const BatchProgress& progress, ProgressForm form) {
  const BatchCounts& counts = progress.counts;
  const double share =
      progress.input_bytes > 0
          ? std::clamp(static_cast<double>(counts.done_bytes) / static_cast<double>(progress.input_bytes), 0.0, 1.0)
          : 1.0;
  std::string text;
  if (form == ProgressForm::kBar) {
    const int filled = static_cast<int>(share * kBarCells);
    text = "[" + std::string(static_cast<std::size_t>(filled), '#') +
           std::string(static_cast<std::size_t>(kBarCells - filled), '.') + "] ";
  }
  text += std::to_string(static_cast<int>(share * 100)) + " %, " + std::to_string(counts.num_answered) + " answered";
  if (counts.num_failed > 0) text += ", " + std::to_string(counts.num_failed) + " failed";
  if (counts.num_skipped > 0) text += ", " + std::to_string(counts.num_skipped) + " were before";
  text += ", " + std::to_string(counts.num_running) + " running";
  if (progress.elapsed_s > 0)
    text += ", " + std::to_string(std::llround(static_cast<double>(progress.num_tokens) / progress.elapsed_s)) + " tokens/s";
  return text + ", " + duration_text(progress.elapsed_s);
}

}  // namespace ferry::batch
