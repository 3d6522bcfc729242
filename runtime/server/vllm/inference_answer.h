#pragma once

#include <optional>
#include <vector>

#include "runtime/server/generate_call.h"
#include "vllm/inference.pb.h"

namespace ferry::vllm {

/// What an answer of vllm.Inference tells.
struct InferenceForm {
  bool has_prompt_ids = false, has_text = true, has_ids = false;

  explicit InferenceForm(const ::vllm::ResponseOptions& options)
      : has_prompt_ids(options.prompt_token_ids()),
        has_text(!options.has_output_text() || options.output_text()),
        has_ids(options.output_token_ids()) {}
};

/// The answer of vllm.Inference: of GenerateStream, first what is told of the prompt and then what is new of each completion;
/// of Generate all of it in one message.
class InferenceAnswer final : public CallAnswer<::vllm::GenerateResponse> {
 public:
  using Response = ::vllm::GenerateResponse;

  InferenceAnswer(InferenceForm form, bool streams) : form_(form), streams_(streams) {}

  void begin(std::span<const Request> requests) override;
  void add(std::size_t choice, const GenerateEvent& event) override;
  std::optional<Response> next() override;
  std::size_t told_choice() const override { return told_choice_; }

 private:
  struct Choice {
    std::optional<::vllm::SequenceOutput> output;  // that waits
    std::optional<TokenId> last_id;                // so far
  };

  void tell_prompt(const GenerateEvent& event);

  const InferenceForm form_;
  const bool streams_;
  std::vector<TokenId> prompt_;
  bool has_prompt_logprobs_ = false;
  bool has_told_prompt_ = false;
  std::optional<::vllm::PromptInfo> prompt_info_;  // that waits
  std::vector<Choice> choices_;
  std::size_t told_choice_ = 0;  // of the last message; one that describes only the prompt has none
};

}  // namespace ferry::vllm
