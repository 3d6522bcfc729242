#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/coordinator.h"
#include "runtime/model/chat_template.h"
#include "runtime/model/tokenizer.h"
#include "runtime/model_info.h"

namespace ferry {

/// What a server needs from the rest of the program, whatever protocol it speaks. Any thread may call any method.
class Backend {
 public:
  virtual ~Backend() = default;

  /// Both throw Error{kInvalidArgument}: no messages, a role that the template does not know.
  virtual std::vector<TokenId> encode_text(std::string_view text) const = 0;
  virtual std::vector<TokenId> encode_chat(std::span<const ChatMessage> messages, Thinking thinking) const = 0;

  // As Coordinator's methods of the same names.
  virtual void submit(Request request, EventSink sink) = 0;
  virtual bool abort(const std::string& request_id) = 0;
  virtual EngineLoad load() const = 0;
  virtual const ModelInfo& model_info() const = 0;
};

/// The real one. The arguments must outlive it.
class CoordinatorBackend : public Backend {
 public:
  CoordinatorBackend(Coordinator& coordinator, const Tokenizer& tokenizer, const ChatTemplate& chat_template)
      : coordinator_(coordinator), tokenizer_(tokenizer), chat_template_(chat_template) {}

  std::vector<TokenId> encode_text(std::string_view text) const override;
  std::vector<TokenId> encode_chat(std::span<const ChatMessage> messages, Thinking thinking) const override;
  void submit(Request request, EventSink sink) override;
  bool abort(const std::string& request_id) override;
  EngineLoad load() const override;
  const ModelInfo& model_info() const override;

 private:
  Coordinator& coordinator_;
  const Tokenizer& tokenizer_;
  const ChatTemplate& chat_template_;
};

}  // namespace ferry
