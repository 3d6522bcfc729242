#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "runtime/coordinator.h"
#include "runtime/schedule/request.h"

// How much memory answers to requests for tokens may take: what a call may ask for, before it starts, and what all calls of a
// port hold while their answers grow. Sizes are estimates of what is kept of an answer and of its text together.

namespace ferry {

/// A whole answer is kept until its last token; a stream leaves as it comes.
enum class AnswerForm : uint8_t { kWhole, kStream };

/// Bounds of the answer to one call.
struct AnswerBound {
  int64_t most_bytes = 0;  // --answer-bytes
  int64_t vocab_size = 0;  // ids, which is what SamplingParams::kWholeVocabulary stands for
  AnswerForm form = AnswerForm::kWhole;
  bool may_shorten = false;  // the client has not said max_tokens: as many as fit
};

/// Bytes that a call's answer takes at most, from the sizes of its prompts and from what they ask for. Of a stream those of its
/// largest piece.
int64_t answer_bytes(std::span<const Request> requests, const AnswerBound& bound);

/// Refuses a call whose answer may take more than `bound` allows, or lowers max_tokens where it may. Throws
/// Error{kInvalidArgument} that says what takes so much, what is allowed and which fields to lower.
void bound_answer(std::span<Request> requests, const AnswerBound& bound);

/// Bytes of an answer that an event adds.
int64_t event_bytes(const GenerateEvent& event);

/// Bytes that the answers of all calls hold. Any thread may call any method.
class AnswerMemory {
 public:
  explicit AnswerMemory(int64_t most_bytes) : most_bytes_(most_bytes) {}

  /// False, and nothing is taken, if there are not so many left.
  [[nodiscard]] bool take(int64_t num_bytes);
  void give_back(int64_t num_bytes);
  int64_t most_bytes() const { return most_bytes_; }

 private:
  const int64_t most_bytes_;
  std::mutex mutex_;  // guards what follows
  int64_t num_bytes_ = 0;
};

/// The part that the answer of one call holds. One thread at a time.
class HeldAnswer {
 public:
  /// `most_bytes` of this call.
  HeldAnswer(std::shared_ptr<AnswerMemory> memory, int64_t most_bytes);
  ~HeldAnswer();
  HeldAnswer(const HeldAnswer&) = delete;
  HeldAnswer& operator=(const HeldAnswer&) = delete;

  /// Throws Error{kFailedPrecondition} where the call would hold more than it may, {kResourceExhausted} where all would.
  void add(int64_t num_bytes);
  void give_back(int64_t num_bytes);
  /// It held so much that the system should get its pages back.
  bool was_large() const;

 private:
  const std::shared_ptr<AnswerMemory> memory_;  // shared with the port's other calls, which may outlive it
  const int64_t most_bytes_;
  int64_t num_bytes_ = 0, most_held_ = 0;
};

/// Has the allocator return free pages to the system. Takes milliseconds.
void return_free_pages();

}  // namespace ferry
