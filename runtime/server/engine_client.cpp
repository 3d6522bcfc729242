#include "runtime/server/engine_client.h"

#include <utility>

#include "runtime/engine.h"
#include "runtime/grammar/grammar_engine.h"
#include "runtime/text/chat_template.h"
#include "runtime/worker_record.h"

namespace ferry {

namespace {

constexpr int64_t kBytesPerComposedByte = 3;     // composing (NFC) makes text up to three times shorter
constexpr int64_t kBytesWithoutTokenizer = 128;  // of a token's text, which is refused for another reason

}  // namespace

CoordinatorClient::CoordinatorClient(Coordinator& coordinator, const Engine& engine, const ChatTemplate& chat_template,
                                     RequestSpans* spans, PrefixCacheScope prefix_cache_scope)
    : coordinator_(coordinator),
      engine_(engine),
      chat_template_(chat_template),
      spans_(spans),
      prefix_cache_scope_(prefix_cache_scope),
      grammars_(std::make_unique<GrammarEngine>(engine.tokenizer(), coordinator.model_info().generation.stop_token_ids)) {}

CoordinatorClient::~CoordinatorClient() = default;

const Tokenizer& CoordinatorClient::tokenizer() const { return engine_.require_tokenizer(); }

bool CoordinatorClient::has_tokenizer() const { return engine_.tokenizer() != nullptr; }

PromptBounds CoordinatorClient::prompt_bounds() const {
  const int64_t max_tokens = coordinator_.max_prompt_tokens();
  const auto token_bytes = has_tokenizer() ? static_cast<int64_t>(tokenizer().longest_token_bytes()) : kBytesWithoutTokenizer;
  return {.max_tokens = max_tokens,
          .max_bytes = max_tokens * token_bytes * kBytesPerComposedByte,
          .allowed = coordinator_.allowed_prompt()};
}

EncodeLimits CoordinatorClient::limits(const std::function<void()>& check_in) const {
  return {.max_tokens = static_cast<std::size_t>(coordinator_.max_prompt_tokens()),
          .allowed = coordinator_.allowed_prompt(),
          .check_in = check_in};
}

std::vector<TokenId> CoordinatorClient::encode_text(std::string_view text, const std::function<void()>& check_in) const {
  return tokenizer().encode_prompt(text, limits(check_in));
}

std::vector<TokenId> CoordinatorClient::encode_chat(const ChatInput& chat, const std::function<void()>& check_in) const {
  const Tokenizer& known = tokenizer();  // without one that is what is wrong, whatever the template says
  return known.encode(chat_template_.render(chat, check_in), limits(check_in));
}

const MediaIntake& CoordinatorClient::media() const { return coordinator_.require_media(); }

RequestNumber CoordinatorClient::submit(Request request, EventSink sink) {
  // The account of a request is "key N" if callers need keys, so no two keys can make the same salt.
  if (prefix_cache_scope_ == PrefixCacheScope::kKey) request.cache_salt = request.account + "/" + request.cache_salt;
  return coordinator_.submit(std::move(request), std::move(sink));
}

bool CoordinatorClient::abort(RequestNumber number) { return coordinator_.abort(number); }

bool CoordinatorClient::abort(const std::string& owner, const std::string& request_id) {
  return coordinator_.abort(owner, request_id);
}

EngineLoad CoordinatorClient::load() const { return coordinator_.load(); }

std::optional<Error> CoordinatorClient::failure() const { return coordinator_.failure(); }

WorkerReport CoordinatorClient::workers() const { return coordinator_.workers(); }

const ExpertRecord& CoordinatorClient::experts() const { return coordinator_.experts(); }

const ModelInfo& CoordinatorClient::model_info() const { return coordinator_.model_info(); }

uint32_t CoordinatorClient::set_placement(const GivenPlacement& given, uint32_t epoch,
                                          const std::function<bool()>& is_given_up) {
  return coordinator_.set_placement(given, epoch, is_given_up);
}

}  // namespace ferry
