#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

namespace ferry {

/// Figures of a request for a log. They never hold its prompt or its answer.
struct RequestFigures {
  std::string id{};           // empty: it has none
  int64_t num_choices = 0;    // completions that were asked for; 0: it asks for no tokens
  int64_t prompt_tokens = 0;  // of all prompts
  int64_t cached_tokens = 0;  // of these, that were not computed
  int64_t completion_tokens = 0;
  std::optional<double> queue_s{};        // from its arrival to its admission, of the choice that waited least
  std::optional<double> first_token_s{};  // from its arrival to the first token of any choice
};

/// The handler of a request leaves its figures here. The server reads them when the request has ended. Any thread may call any
/// method.
class RequestNote {
 public:
  /// Calls `change` with the figures, alone.
  template <class Change>
  void change(Change&& change) {
    const std::scoped_lock lock(mutex_);
    change(figures_);
  }
  RequestFigures figures() const {
    const std::scoped_lock lock(mutex_);
    return figures_;
  }

 private:
  mutable std::mutex mutex_;
  RequestFigures figures_;
};

}  // namespace ferry
