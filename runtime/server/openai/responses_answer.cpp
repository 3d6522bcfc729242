#include "runtime/server/openai/responses_answer.h"

#include <utility>

#include "runtime/server/api/api_error.h"

namespace ferry::api::openai {
namespace {

using BlockKind = ReplyBlock::Kind;

constexpr const char* kInProgress = "in_progress";

ordered_json response_usage(const UsageCount& usage) {
  return {{"input_tokens", usage.prompt_tokens},
          {"input_tokens_details", {{"cached_tokens", usage.cached_tokens}, {"cache_write_tokens", 0}}},
          {"output_tokens", usage.completion_tokens},
          {"output_tokens_details", {{"reasoning_tokens", usage.reasoning_tokens}}},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens}};
}

}  // namespace

ResponsesAnswer::ResponsesAnswer(Form form, ReplyReading reading, const Tokenizer& tokenizer)
    : BlockAnswer(std::move(reading), tokenizer), form_(std::move(form)) {}

/// An event of `type` with the members of `data`.
std::string ResponsesAnswer::event(const char* type, const ordered_json& data) {
  ordered_json told = {{"type", type}, {"sequence_number", sequence_number_++}};
  told.update(data);
  return named_server_sent(told);
}

/// One that is about an item, or about the only part of its content.
std::string ResponsesAnswer::of_item(const char* type, std::size_t block, ordered_json data, bool has_content) {
  ordered_json told = {{"item_id", item_id(blocks()[block])}, {"output_index", block}};
  if (has_content) told["content_index"] = 0;
  told.update(data);
  return event(type, told);
}

std::string ResponsesAnswer::begin() {
  const ordered_json data = {{"response", response_json(kInProgress)}};
  std::string text = event("response.created", data);  // one after another: events have numbers
  text += event("response.in_progress", data);
  return text;
}

std::string ResponsesAnswer::told(const BlockStep& step) {
  if (step.kind == BlockStep::Kind::kOpen) return opened(step.block);
  return step.kind == BlockStep::Kind::kGrow ? grown(step) : closed(step.block);
}

std::string ResponsesAnswer::opened(std::size_t block) {
  const ReplyBlock& full = blocks()[block];
  const ReplyBlock empty{.kind = full.kind, .id = full.id, .name = full.name, .text = {}};
  ordered_json item = item_json(empty, kInProgress);
  if (full.kind != BlockKind::kCall) item["content"] = ordered_json::array();
  std::string text = event("response.output_item.added", {{"output_index", block}, {"item", std::move(item)}});
  if (full.kind != BlockKind::kCall) text += of_item("response.content_part.added", block, {{"part", part_json(empty)}});
  return text;
}

std::string ResponsesAnswer::grown(const BlockStep& step) {
  switch (blocks()[step.block].kind) {
    case BlockKind::kThought: return of_item("response.reasoning_text.delta", step.block, {{"delta", step.text}});
    case BlockKind::kText:
      return of_item("response.output_text.delta", step.block, {{"delta", step.text}, {"logprobs", ordered_json::array()}});
    case BlockKind::kCall:
      return of_item("response.function_call_arguments.delta", step.block, {{"delta", step.text}}, /*has_content=*/false);
  }
  return "";
}

std::string ResponsesAnswer::closed(std::size_t block) {
  const ReplyBlock& full = blocks()[block];
  std::string text;
  if (full.kind == BlockKind::kCall) {
    text = of_item("response.function_call_arguments.done", block, {{"name", full.name}, {"arguments", full.text}},
                   /*has_content=*/false);
  } else {
    ordered_json whole = {{"text", full.text}};
    if (full.kind == BlockKind::kText) whole["logprobs"] = ordered_json::array();
    text = of_item(full.kind == BlockKind::kText ? "response.output_text.done" : "response.reasoning_text.done", block, whole);
    text += of_item("response.content_part.done", block, {{"part", part_json(full)}});
  }
  const bool is_cut = last().finish_reason != FinishReason::kNone && block + 1 == blocks().size();
  ordered_json item = item_json(full, is_cut ? end_status() : "completed");
  return text + event("response.output_item.done", {{"output_index", block}, {"item", std::move(item)}});
}

std::string ResponsesAnswer::end() {
  const std::string status = end_status();
  return event(("response." + status).c_str(), {{"response", response_json(status)}});
}

std::optional<std::string> ResponsesAnswer::failed(const ApiError& error) {
  std::string text = has_begun() ? "" : begin();
  ordered_json response = response_json("failed");
  response["error"] = {{"code", "server_error"}, {"message", error.what()}};
  return text + event("response.failed", {{"response", std::move(response)}});
}

const char* ResponsesAnswer::end_status() const {
  return last().finish_reason == FinishReason::kStop ? "completed" : "incomplete";
}

std::string ResponsesAnswer::item_id(const ReplyBlock& block) const {
  return (block.kind == BlockKind::kThought ? "rs_" : block.kind == BlockKind::kText ? "msg_" : "fc_") + block.id;
}

ordered_json ResponsesAnswer::part_json(const ReplyBlock& block) const {
  if (block.kind == BlockKind::kThought) return {{"type", "reasoning_text"}, {"text", block.text}};
  return {{"type", "output_text"},
          {"text", block.text},
          {"annotations", ordered_json::array()},
          {"logprobs", ordered_json::array()}};
}

ordered_json ResponsesAnswer::item_json(const ReplyBlock& block, const char* status) const {
  ordered_json item = {{"id", item_id(block)}, {"type", ""}, {"status", status}};
  switch (block.kind) {
    case BlockKind::kThought:
      item["type"] = "reasoning";
      item["summary"] = ordered_json::array();
      item["content"] = ordered_json::array({part_json(block)});
      item["encrypted_content"] = form_.returns_thought ? ordered_json(block.text) : ordered_json();
      break;
    case BlockKind::kText:
      item["type"] = "message";
      item["role"] = "assistant";
      item["content"] = ordered_json::array({part_json(block)});
      break;
    case BlockKind::kCall:
      item["type"] = "function_call";
      item["call_id"] = "call_" + block.id;
      item["name"] = block.name;
      item["arguments"] = block.text;
      break;
  }
  return item;
}

ordered_json ResponsesAnswer::response_json(const std::string& status) const {
  ordered_json response = {{"id", form_.id},
                           {"object", "response"},
                           {"created_at", form_.created},
                           {"status", status},
                           {"background", false},
                           {"error", nullptr},
                           {"incomplete_details", nullptr},
                           {"model", form_.model},
                           {"output", ordered_json::array()},
                           {"max_tool_calls", nullptr},
                           {"previous_response_id", nullptr},
                           {"service_tier", "default"},
                           {"store", false},
                           {"top_logprobs", 0},
                           {"truncation", "disabled"},
                           {"usage", nullptr}};
  response.update(form_.echoed);
  if (status == kInProgress) return response;
  if (status == "incomplete") {
    const bool is_cut = last().finish_reason == FinishReason::kLength;
    response["incomplete_details"] = {{"reason", is_cut ? "max_output_tokens" : finish_name(last().finish_reason)}};
  }
  for (std::size_t i = 0; i < blocks().size(); ++i) {
    const bool is_last = i + 1 == blocks().size();
    response["output"].push_back(item_json(blocks()[i], is_last && status != "completed" ? "incomplete" : "completed"));
  }
  response["usage"] = response_usage(usage());
  return response;
}

}  // namespace ferry::api::openai
