#pragma once

#include <string>

#include "runtime/server/api/block_answer.h"

namespace ferry::api::anthropic {

/// Objects "message" and the events of Anthropic's streams: message_start, then for each block content_block_start,
/// content_block_delta and content_block_stop, then message_delta and message_stop.
class MessageAnswer final : public BlockAnswer {
 public:
  struct Form {
    std::string id;
    std::string model;
    bool shows_thought = true;  // false: blocks of thoughts are empty
  };

  /// The tokenizer must outlive it.
  MessageAnswer(Form form, ReplyReading reading, const Tokenizer& tokenizer);

 private:
  std::string begin() override;
  std::string told(const BlockStep& step) override;
  std::string end() override;
  ordered_json body() const override;

  std::string opened(std::size_t block);
  std::string grown(const BlockStep& step) const;
  ordered_json usage_json() const;
  ordered_json block_json(const ReplyBlock& block) const;
  ordered_json message_json() const;

  const Form form_;
};

}  // namespace ferry::api::anthropic
