#include "runtime/server/anthropic/message_answer.h"

#include <utility>

#include "runtime/base/json.h"

namespace ferry::api::anthropic {
namespace {

constexpr JsonLimits kInputLimits{.depth = 256, .members = 8192};  // twice as deep as an argument may be

const char* stop_reason_of(const GenerateEvent& last, bool has_calls) {
  if (last.finish_reason == FinishReason::kLength) return "max_tokens";
  if (!last.stop.empty()) return "stop_sequence";
  return has_calls ? "tool_use" : "end_turn";
}

std::string delta_of(std::size_t block, ordered_json delta) {
  return named_server_sent({{"type", "content_block_delta"}, {"index", block}, {"delta", std::move(delta)}});
}

}  // namespace

MessageAnswer::MessageAnswer(Form form, ReplyReading reading, const Tokenizer& tokenizer)
    : BlockAnswer(std::move(reading), tokenizer), form_(std::move(form)) {}

/// Tokens that were cached are no input here: the three counts together are the prompt.
ordered_json MessageAnswer::usage_json() const {
  const UsageCount count = usage();
  return {{"input_tokens", count.prompt_tokens - count.cached_tokens},
          {"cache_creation_input_tokens", 0},
          {"cache_read_input_tokens", count.cached_tokens},
          {"output_tokens", count.completion_tokens}};
}

ordered_json MessageAnswer::message_json() const {
  return {{"id", form_.id},
          {"type", "message"},
          {"role", "assistant"},
          {"model", form_.model},
          {"content", ordered_json::array()},
          {"stop_reason", nullptr},
          {"stop_sequence", nullptr},
          {"usage", usage_json()}};
}

std::string MessageAnswer::begin() { return named_server_sent({{"type", "message_start"}, {"message", message_json()}}); }

std::string MessageAnswer::told(const BlockStep& step) {
  if (step.kind == BlockStep::Kind::kOpen) return opened(step.block);
  if (step.kind == BlockStep::Kind::kGrow) return grown(step);
  std::string text;
  if (blocks()[step.block].kind == ReplyBlock::Kind::kThought)
    text = delta_of(step.block, {{"type", "signature_delta"}, {"signature", form_.id}});
  return text + named_server_sent({{"type", "content_block_stop"}, {"index", step.block}});
}

/// As it begins: without text, and without the signature that comes last.
std::string MessageAnswer::opened(std::size_t block) {
  const ReplyBlock& opened = blocks()[block];
  const ReplyBlock empty{.kind = opened.kind, .id = opened.id, .name = opened.name, .text = {}};
  ordered_json json = block_json(empty);
  if (opened.kind == ReplyBlock::Kind::kThought) json["signature"] = "";
  std::string text = named_server_sent({{"type", "content_block_start"}, {"index", block}, {"content_block", std::move(json)}});
  if (block == 0) text += named_server_sent({{"type", "ping"}});
  return text;
}

std::string MessageAnswer::grown(const BlockStep& step) const {
  switch (blocks()[step.block].kind) {
    case ReplyBlock::Kind::kThought:
      return form_.shows_thought ? delta_of(step.block, {{"type", "thinking_delta"}, {"thinking", step.text}}) : "";
    case ReplyBlock::Kind::kText: return delta_of(step.block, {{"type", "text_delta"}, {"text", step.text}});
    case ReplyBlock::Kind::kCall: return delta_of(step.block, {{"type", "input_json_delta"}, {"partial_json", step.text}});
  }
  return "";
}

std::string MessageAnswer::end() {
  const ordered_json stop_sequence = last().stop.empty() ? ordered_json() : ordered_json(last().stop);
  const ordered_json delta = {{"stop_reason", stop_reason_of(last(), has_calls())}, {"stop_sequence", stop_sequence}};
  return named_server_sent({{"type", "message_delta"}, {"delta", delta}, {"usage", usage_json()}}) +
         named_server_sent({{"type", "message_stop"}});
}

/// A signature names the message: thoughts are taken back whatever it says.
ordered_json MessageAnswer::block_json(const ReplyBlock& block) const {
  switch (block.kind) {
    case ReplyBlock::Kind::kThought:
      return {{"type", "thinking"}, {"thinking", form_.shows_thought ? block.text : ""}, {"signature", form_.id}};
    case ReplyBlock::Kind::kText: return {{"type", "text"}, {"text", block.text}};
    case ReplyBlock::Kind::kCall: break;
  }
  ordered_json input = block.text.empty() ? ordered_json::object() : parse_ordered_json(block.text, "input", kInputLimits);
  return {{"type", "tool_use"}, {"id", "toolu_" + block.id}, {"name", block.name}, {"input", std::move(input)}};
}

ordered_json MessageAnswer::body() const {
  ordered_json message = message_json();
  for (const ReplyBlock& block : blocks()) message["content"].push_back(block_json(block));
  message["stop_reason"] = stop_reason_of(last(), has_calls());
  if (!last().stop.empty()) message["stop_sequence"] = last().stop;
  return message;
}

}  // namespace ferry::api::anthropic
