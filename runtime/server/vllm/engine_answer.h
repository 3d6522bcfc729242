#pragma once

#include <optional>
#include <vector>

#include "runtime/server/generate_call.h"
#include "vllm/engine.pb.h"

namespace ferry::vllm {

/// The answer of VllmEngine/Generate: of a stream, chunks of new tokens, and then each completion's last message with all of
/// its tokens; else the last messages alone.
class EngineAnswer final : public CallAnswer<::vllm::grpc::engine::GenerateResponse> {
 public:
  using Response = ::vllm::grpc::engine::GenerateResponse;
  using Chunk = ::vllm::grpc::engine::GenerateStreamChunk;
  using Complete = ::vllm::grpc::engine::GenerateComplete;

  explicit EngineAnswer(bool streams) : streams_(streams) {}

  void begin(std::span<const Request> requests) override;
  void add(std::size_t choice, const GenerateEvent& event) override;
  std::optional<Response> next() override;
  std::size_t told_choice() const override { return told_choice_; }

 private:
  struct Choice {
    std::optional<Chunk> chunk;  // that waits
    Complete complete;           // so far
    bool has_told_prompt = false;
    bool has_ended = false;  // and the last message waits
  };

  Choice& choice_at(std::size_t choice);
  template <class Message>
  void add_logprobs(Choice& choice, const GenerateEvent& event, Message& message) const;
  void add_to_chunk(Choice& choice, const GenerateEvent& event);

  const bool streams_;
  std::vector<TokenId> prompt_;
  std::optional<int32_t> prompt_logprobs_;  // as asked for
  std::vector<Choice> choices_;
  std::size_t told_choice_ = 0;  // of the last message
};

}  // namespace ferry::vllm
