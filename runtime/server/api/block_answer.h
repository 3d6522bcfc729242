#pragma once

#include <string>
#include <vector>

#include "runtime/server/api/conversation.h"
#include "runtime/server/api/reply_blocks.h"
#include "runtime/server/api/reply_reader.h"

namespace ferry::api {

/// An answer of one reply that is told block by block, as Anthropic's Messages and OpenAI's Responses are: a stream says when a
/// block opens, grows and closes, a whole answer has the list of them.
class BlockAnswer : public Answer {
 public:
  /// The tokenizer must outlive it.
  BlockAnswer(ReplyReading reading, const Tokenizer& tokenizer);
  BlockAnswer(const BlockAnswer&) = delete;  // the reader borrows the tools
  BlockAnswer& operator=(const BlockAnswer&) = delete;

  std::string chunk(std::size_t choice, const GenerateEvent& event) override;
  std::string last_chunks() override { return end(); }
  void keep(std::size_t choice, const GenerateEvent& event) override;
  std::string whole() override { return dump(body()); }

 protected:
  // What a route writes. Of a stream, in this order, each as the text of its events:
  virtual std::string begin() = 0;
  virtual std::string told(const BlockStep& step) = 0;
  virtual std::string end() = 0;
  /// Of a whole answer.
  virtual ordered_json body() const = 0;

  const std::vector<ReplyBlock>& blocks() const { return blocks_.blocks(); }
  bool has_calls() const { return reader_.num_calls() > 0; }
  bool has_begun() const { return has_begun_; }
  UsageCount usage() const { return reader_.usage(num_prompt_); }
  /// How it ended; kNone while it has not.
  const GenerateEvent& last() const { return kept_.last; }

 private:
  std::vector<BlockStep> read(const GenerateEvent& event);

  const ToolSet tools_;
  const int64_t num_prompt_;
  ReplyReader reader_;
  ReplyBlocks blocks_;
  KeptChoice kept_;
  bool has_begun_ = false;
};

}  // namespace ferry::api
