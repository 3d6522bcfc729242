#include "runtime/base/error.h"
#include "runtime/grammar/grammar_engine.h"

namespace ferry {

class GrammarEngine::Impl {};

GrammarEngine::GrammarEngine(const Tokenizer* /*tokenizer*/, std::vector<TokenId> /*stop_ids*/,
                             const GrammarEngineOptions& /*options*/, Clock& /*clock*/) {}
GrammarEngine::~GrammarEngine() = default;

bool GrammarEngine::is_available() { return false; }

std::shared_ptr<const CompiledGrammar> GrammarEngine::find(const GrammarSpec& /*spec*/) { return nullptr; }

std::shared_ptr<const CompiledGrammar> GrammarEngine::compile(const GrammarSpec& /*spec*/,
                                                              const std::function<void()>& /*check_in*/) {
  throw Error(ErrorCode::kUnimplemented,
              "structured output is not built into this server; launch/setup.sh fetches what it needs (FERRY_GRAMMAR)");
}

std::shared_ptr<TokenGrammar> GrammarEngine::make(const GrammarSpec& spec, bool /*starts_in_reasoning*/) {
  compile(spec);
  return nullptr;
}

int64_t GrammarEngine::cached_bytes() const { return 0; }

}  // namespace ferry
