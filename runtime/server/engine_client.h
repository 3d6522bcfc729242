#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/coordinator.h"
#include "runtime/media_intake.h"
#include "runtime/model_info.h"
#include "runtime/options/prefix_cache_scope.h"
#include "runtime/text/tokenizer.h"

namespace ferry {

class ChatTemplate;
class Engine;
class GrammarEngine;
class RequestSpans;
struct ChatInput;

/// What a prompt may have at most.
struct PromptBounds {
  int64_t max_tokens = 0;
  int64_t max_bytes = 0;     // of text; what is longer has more tokens for sure
  std::string allowed = "";  // max_tokens and why, in words, for who complains
};

/// What a server needs from the rest of the program, whatever protocol it speaks. Any thread may call any method.
class EngineClient {
 public:
  virtual ~EngineClient() = default;

  virtual PromptBounds prompt_bounds() const = 0;
  /// Both throw Error{kInvalidArgument}: too many tokens, no messages, a role that the template does not know. They take time,
  /// and call `check_in` (which may be empty) now and then; what it throws ends them.
  virtual std::vector<TokenId> encode_text(std::string_view text, const std::function<void()>& check_in) const = 0;
  virtual std::vector<TokenId> encode_chat(const ChatInput& chat, const std::function<void()>& check_in) const = 0;
  /// Converts between ids and text. Throws Error{kFailedPrecondition} if the checkpoint has no tokenizer. Then requests have to
  /// give token ids, and answers have no text.
  virtual const Tokenizer& tokenizer() const = 0;
  virtual bool has_tokenizer() const { return true; }
  /// For requests whose text has to be like something; a port may be the only one to ask, or all. Without a tokenizer make()
  /// throws Error{kFailedPrecondition}.
  virtual GrammarEngine& grammars() = 0;
  /// For requests with pictures or videos; throws Error{kFailedPrecondition} if there can be none.
  virtual const MediaIntake& media() const = 0;

  // As Coordinator's methods of the same names.
  virtual RequestNumber submit(Request request, EventSink sink) = 0;
  virtual bool abort(RequestNumber number) = 0;
  virtual bool abort(const std::string& owner, const std::string& request_id) = 0;
  virtual EngineLoad load() const = 0;
  virtual std::optional<Error> failure() const = 0;
  virtual WorkerReport workers() const = 0;
  virtual const ExpertRecord& experts() const = 0;
  virtual const ModelInfo& model_info() const = 0;
  virtual uint32_t set_placement(const GivenPlacement& given, uint32_t epoch, const std::function<bool()>& is_given_up) = 0;

  /// Null: nobody wants to hear of requests' spans.
  virtual RequestSpans* spans() { return nullptr; }
};

/// The real one. The arguments must outlive it. It has no tokenizer if the engine has none.
class CoordinatorClient : public EngineClient {
 public:
  CoordinatorClient(Coordinator& coordinator, const Engine& engine, const ChatTemplate& chat_template,
                    RequestSpans* spans = nullptr, PrefixCacheScope prefix_cache_scope = PrefixCacheScope::kShared);
  ~CoordinatorClient() override;

  PromptBounds prompt_bounds() const override;
  std::vector<TokenId> encode_text(std::string_view text, const std::function<void()>& check_in) const override;
  std::vector<TokenId> encode_chat(const ChatInput& chat, const std::function<void()>& check_in) const override;
  const Tokenizer& tokenizer() const override;
  bool has_tokenizer() const override;
  GrammarEngine& grammars() override { return *grammars_; }
  const MediaIntake& media() const override;
  RequestNumber submit(Request request, EventSink sink) override;
  bool abort(RequestNumber number) override;
  bool abort(const std::string& owner, const std::string& request_id) override;
  EngineLoad load() const override;
  std::optional<Error> failure() const override;
  WorkerReport workers() const override;
  const ExpertRecord& experts() const override;
  const ModelInfo& model_info() const override;
  uint32_t set_placement(const GivenPlacement& given, uint32_t epoch, const std::function<bool()>& is_given_up) override;
  RequestSpans* spans() override { return spans_; }

 private:
  EncodeLimits limits(const std::function<void()>& check_in) const;

  Coordinator& coordinator_;
  const Engine& engine_;
  const ChatTemplate& chat_template_;
  RequestSpans* const spans_;
  const PrefixCacheScope prefix_cache_scope_;
  const std::unique_ptr<GrammarEngine> grammars_;
};

}  // namespace ferry
