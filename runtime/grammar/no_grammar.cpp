#include "runtime/base/error.h"
#include "runtime/grammar/grammar_engine.h"

namespace ferry {

class GrammarEngine::Impl {};

GrammarEngine::GrammarEngine(const Tokenizer& /*tokenizer*/, std::vector<TokenId> /*stop_ids*/,
                             const GrammarEngineOptions& /*options*/) {}
GrammarEngine::~GrammarEngine() = default;

bool GrammarEngine::is_available() { return false; }

std::shared_ptr<TokenGrammar> GrammarEngine::make(const GrammarSpec& /*spec*/, bool /*starts_in_reasoning*/) {
  throw Error(ErrorCode::kUnimplemented,
              "structured output is not built into this server; launch/setup.sh fetches what it needs (FERRY_GRAMMAR)");
}

int64_t GrammarEngine::cached_bytes() const { return 0; }

}  // namespace ferry
