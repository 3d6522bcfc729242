#include "runtime/server/api/block_answer.h"

#include <utility>

namespace ferry::api {
namespace {

ReplyParser::Options options_with(const ReplyReading& reading, const ToolSet& tools) {
  ReplyParser::Options options = reading.options();
  options.tools = &tools;
  return options;
}

}  // namespace

BlockAnswer::BlockAnswer(ReplyReading reading, const Tokenizer& tokenizer)
    : tools_(std::move(reading.tools)),
      num_prompt_(std::ssize(reading.prompt_ids)),
      reader_(tokenizer, options_with(reading, tools_)) {}

std::vector<BlockStep> BlockAnswer::read(const GenerateEvent& event) {
  std::vector<BlockStep> steps;
  for (const ReplyDelta& delta : reader_.read(event)) blocks_.add(delta, steps);
  if (event.finish_reason == FinishReason::kNone) return steps;
  blocks_.close(steps);
  kept_.keep({.finish_reason = event.finish_reason, .stop = event.stop, .stop_id = event.stop_id});
  return steps;
}

std::string BlockAnswer::chunk(std::size_t /*choice*/, const GenerateEvent& event) {
  const std::vector<BlockStep> steps = read(event);
  std::string text = std::exchange(has_begun_, true) ? "" : begin();
  for (const BlockStep& step : steps) text += told(step);
  return text;
}

void BlockAnswer::keep(std::size_t /*choice*/, const GenerateEvent& event) { read(event); }

}  // namespace ferry::api
