#include <exception>
#include <nlohmann/json.hpp>

#include "runtime/base/check.h"
#include "runtime/base/error.h"
#include "runtime/base/json.h"
#include "runtime/checkpoint/safetensors.h"
#include "runtime/checkpoint/tensor_finder.h"
#include "runtime/model/config.h"
#include "runtime/text/chat_template.h"
#include "runtime/text/tokenizer.h"
#include "runtime/text/tokenizer_file.h"
#include "tests/fuzz/memory_folder.h"
#include "tests/fuzz/small_tokenizer.h"
#include "tests/fuzz/targets.h"

// The files of a checkpoint.

namespace ferry::fuzz {
namespace {

/// Touches every view that the reader handed out: AddressSanitizer and the mapping's end tell whether it may be.
void touch(const TensorInfo& tensor) {
  FERRY_CHECK_GE(tensor.bytes, 0);
  if (tensor.bytes == 0) return;
  [[maybe_unused]] static volatile unsigned sink;
  sink = std::to_integer<unsigned>(tensor.data[0]) + std::to_integer<unsigned>(tensor.data[tensor.bytes - 1]);
  FERRY_CHECK(!tensor.shape_string().empty());
}

}  // namespace

void read_json(Input input) {
  const nlohmann::json value = parse_json(text_of(input), "input", kNoDuplicates);
  FERRY_CHECK_LE(shown(value).size(), 200U);
}

void read_config(Input input) {
  static const MemoryFolder folder;
  folder.write("config.json", text_of(input));
  const ModelConfig config = load_config(folder.path());
  int64_t num_layers = 0;
  for (const Mixer mixer : kMixers) num_layers += config.num_layers_of(mixer);
  FERRY_CHECK_EQ(num_layers, config.num_layers());
  FERRY_CHECK_LE(config.moe.top_k, config.moe.num_experts);
}

void read_generation_config(Input input) {
  static const MemoryFolder folder;
  constexpr int64_t kVocabSize = 8000;
  folder.write("generation_config.json", text_of(input));
  const GenerationDefaults defaults = ferry::read_generation_config(folder.path() / "generation_config.json", kVocabSize);
  for (const TokenId id : defaults.stop_token_ids) FERRY_CHECK(id >= 0 && id < kVocabSize);
}

void read_index(Input input) {
  static const MemoryFolder folder;
  static const bool has_weights = [] {
    const std::string header = R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})";
    const char size[8] = {static_cast<char>(header.size()), 0, 0, 0, 0, 0, 0, 0};
    folder.write("model-1.safetensors", std::string(size, 8) + header + "xy");
    return true;
  }();
  FERRY_CHECK(has_weights);
  folder.write("model.safetensors.index.json", text_of(input));
  const Checkpoint checkpoint = Checkpoint::open(folder.path());
  for (const std::string_view name : checkpoint.names()) touch(*checkpoint.find(name));
}

void read_safetensors(Input input) {
  static const MemoryFolder folder;
  folder.write("model.safetensors", text_of(input));
  const SafetensorsFile file(folder.path() / "model.safetensors");
  for (const TensorInfo& tensor : file.tensors()) {
    touch(tensor);
    FERRY_CHECK(file.find(tensor.name) == &tensor);
  }
}

/// In every format, as a matrix of the seeds' shape and as columns of it. Throws what the last of them threw if none reads it.
void read_quantized_matrix(Input input) {
  static const MemoryFolder folder;
  constexpr int64_t kRows = 32, kCols = 64, kGroup = 32;
  constexpr SourceFormat kFp8{.kind = SourceFormat::Kind::kFp8Block, .block_rows = 16, .block_cols = 32};
  constexpr auto integers = [](const IntegerLayout& layout, bool has_zeros, bool has_group_index) {
    return SourceFormat{.kind = SourceFormat::Kind::kIntegers,
                        .layout = &layout,
                        .group_size = kGroup,
                        .has_zeros = has_zeros,
                        .has_group_index = has_group_index};
  };
  folder.write("model.safetensors", text_of(input));
  const Checkpoint checkpoint = Checkpoint::open(folder.path());
  bool is_read = false;
  std::exception_ptr refused;
  for (const SourceFormat& format : {kFp8, integers(kGptq, true, true), integers(kAwq, true, false),
                                     integers(kPackQuantized, true, true), integers(kPackQuantized, false, false)}) {
    TensorFinder finder(checkpoint);
    finder.set_source_format(format);
    try {
      StoredRows stored = finder.find("x.weight", {kRows, kCols});
      const std::optional<WeightType> type = stored_codes_type(stored.format);
      for (; stored.cols > 0; stored.first_col += kGroup, stored.cols -= kGroup) {
        std::vector<float> values(static_cast<std::size_t>(stored.cols)), scales(values.size() / kGroup);
        std::vector<uint8_t> codes(values.size()), zeros(type && type->is_integer() ? scales.size() : 0);
        for (int64_t row = 0; row < stored.rows; ++row) {
          read_row(stored, row, values);
          if (type) read_codes(stored, row, {.codes = codes, .scales = scales, .zero_points = zeros});
        }
      }
      is_read = true;
    } catch (const Error&) {
      refused = std::current_exception();
    }
  }
  if (!is_read) std::rethrow_exception(refused);
}

void read_tokenizer(Input input) {
  static const MemoryFolder folder;
  folder.write("tokenizer.json", text_of(input));
  const Tokenizer tokenizer = Tokenizer::load(folder.path());
  const std::string text = "The river's 12 stones\n<|im_end|>";
  for (const TokenId token : tokenizer.encode(text)) FERRY_CHECK(token >= 0 && token < tokenizer.size());
}

void read_tokenizer_config(Input input) {
  static const MemoryFolder folder;
  static const TokenizerFile tokenizer = [] {
    folder.write("tokenizer.json", small_tokenizer_json());
    return read_tokenizer_file(folder.path());
  }();
  folder.write("tokenizer_config.json", text_of(input));
  const TokenizerFile file = with_tokenizer_config(tokenizer, folder.path() / "tokenizer_config.json");
  for (const AddedToken& token : file.added_tokens) FERRY_CHECK(token.token_id >= 0 && token.token_id <= kMaxTokenId);
  ChatTemplate::load(folder.path());
}

/// A template is given some hundred thousand steps.
void read_chat_template(Input input) {
  const ChatTemplate chat = ChatTemplate::parse(text_of(input));
  ChatInput conversation;
  conversation.messages = {{{"role", "user"}, {"content", "a"}},
                           {{"role", "assistant"}, {"content", "<think>b</think>c"}},
                           {{"role", "user"}, {"content", "d"}}};
  int num_calls = 0;
  chat.render(conversation, [&] {
    if (++num_calls > 64) throw Error(ErrorCode::kDeadlineExceeded, "the template takes long");
  });
}

}  // namespace ferry::fuzz
