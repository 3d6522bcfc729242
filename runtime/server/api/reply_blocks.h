#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "runtime/text/reply/reply_machine.h"

namespace ferry::api {

/// One stretch of a reply: a thought, a text or a call.
struct ReplyBlock {
  enum class Kind { kThought, kText, kCall };
  Kind kind = Kind::kText;
  std::string id;    // 32 hexadecimal digits
  std::string name;  // of a call's function
  std::string text;  // of a call its arguments, JSON
};

/// What happens to a block. Only one is open at a time.
struct BlockStep {
  enum class Kind { kOpen, kGrow, kClose };
  Kind kind = Kind::kOpen;
  std::size_t block = 0;  // its index
  std::string text;       // that kGrow adds
};

/// A reply as blocks in the order in which the model wrote them: what it says, thinks and calls may take turns.
class ReplyBlocks {
 public:
  /// Adds the steps that `delta` means.
  void add(const ReplyDelta& delta, std::vector<BlockStep>& steps);
  /// Nothing follows.
  void close(std::vector<BlockStep>& steps);

  const std::vector<ReplyBlock>& blocks() const { return blocks_; }

 private:
  void open(ReplyBlock::Kind kind, const std::string& name, std::vector<BlockStep>& steps);
  void grow(const std::string& text, std::vector<BlockStep>& steps);
  bool is_open(ReplyBlock::Kind kind) const { return is_open_ && blocks_.back().kind == kind; }

  std::vector<ReplyBlock> blocks_;
  bool is_open_ = false;  // the last one
};

}  // namespace ferry::api
