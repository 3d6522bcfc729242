#pragma once

#include <cstdint>

namespace ferry {

/// Who guesses the tokens that may follow, and how many at most: what --speculate asks for.
struct Speculation {
  enum class Source : uint8_t {
    kAuto,   // the MTP layer where the checkpoint has one, as many drafts as pay
    kMtp,    // the MTP layer, max_drafts every time
    kNgram,  // what followed the last tokens when they stood in the sequence before
  };
  static constexpr int64_t kMaxDrafts = 8;

  Source source = Source::kMtp;
  int64_t max_drafts = 0;  // 0 ‥ kMaxDrafts, of kMtp and kNgram; 0: none

  bool operator==(const Speculation&) const = default;
};

}  // namespace ferry
