#include <cstring>
#include <string>
#include <vector>

#include "moe/wire.h"
#include "profiler/capture.h"
#include "runtime/base/aligned_buffer.h"
#include "runtime/base/check.h"
#include "runtime/options.h"
#include "tests/fuzz/targets.h"

// What comes from other ranks, from a capture's folder and from the command line.

namespace ferry::fuzz {

void parse_request_message(Input input) {
  if (input.size() < sizeof(WireHeader)) return;
  AlignedBuffer message(input.size());
  std::memcpy(message.data(), input.data(), input.size());
  const RequestView view = parse_request({message.data(), message.size()});
  int64_t num_rows = 0;
  for (const int32_t count : view.expert_counts) num_rows += count;
  FERRY_CHECK_EQ(num_rows, static_cast<int64_t>(view.row_token.size()));
  for (const int32_t token : view.row_token) FERRY_CHECK(token >= 0 && token < view.header.num_tokens);
  FERRY_CHECK_LE(view.tokens.x.rows * view.tokens.x.cols, static_cast<int64_t>(input.size()));
}

void decode_capture(Input input) {
  const RankCapture capture = decode_rank_capture(std::as_bytes(input), "input");
  const std::vector<std::byte> bytes = encode_rank_capture(capture);
  FERRY_CHECK(encode_rank_capture(decode_rank_capture(bytes, "encoded")) == bytes);
}

/// Arguments, each ended by a zero byte.
void parse_command_line(Input input) {
  const std::string text(text_of(input));
  std::vector<const char*> arguments = {"ferry"};
  for (std::size_t begin = 0; begin < text.size() && arguments.size() < 64; begin += std::strlen(text.data() + begin) + 1)
    arguments.push_back(text.data() + begin);
  const ParseResult result = parse_options(static_cast<int>(arguments.size()), arguments.data());
  FERRY_CHECK(result.options.has_value() || !result.message.empty());
}

}  // namespace ferry::fuzz
