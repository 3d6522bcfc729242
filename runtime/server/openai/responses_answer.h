#pragma once

#include <string>

#include "runtime/server/api/block_answer.h"

namespace ferry::api::openai {

/// Objects "response" and the events of their streams, of which each has the next sequence_number: response.created and
/// response.in_progress, then for each item response.output_item.added, what becomes of it, and response.output_item.done, and
/// last response.completed, response.incomplete or response.failed.
class ResponsesAnswer final : public BlockAnswer {
 public:
  struct Form {
    std::string id;
    std::string model;
    int64_t created = 0;           // seconds since 1970
    ordered_json echoed;           // fields of the request, which the answer says again
    bool returns_thought = false;  // `encrypted_content` of a thought is its text
  };

  /// The tokenizer must outlive it.
  ResponsesAnswer(Form form, ReplyReading reading, const Tokenizer& tokenizer);

  std::optional<std::string> failed(const ApiError& error) override;

 private:
  std::string begin() override;
  std::string told(const BlockStep& step) override;
  std::string end() override;
  ordered_json body() const override { return response_json(end_status()); }

  std::string event(const char* type, const ordered_json& data);
  std::string of_item(const char* type, std::size_t block, ordered_json data, bool has_content = true);
  std::string opened(std::size_t block);
  std::string grown(const BlockStep& step);
  std::string closed(std::size_t block);
  const char* end_status() const;
  std::string item_id(const ReplyBlock& block) const;
  ordered_json part_json(const ReplyBlock& block) const;
  ordered_json item_json(const ReplyBlock& block, const char* status) const;
  ordered_json response_json(const std::string& status) const;

  const Form form_;
  int64_t sequence_number_ = 0;
};

}  // namespace ferry::api::openai
