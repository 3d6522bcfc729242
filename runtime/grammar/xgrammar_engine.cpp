#include <malloc.h>
#include <xgrammar/xgrammar.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/error.h"
#include "runtime/grammar/behind_reasoning.h"
#include "runtime/grammar/grammar_cache.h"
#include "runtime/grammar/grammar_engine.h"
#include "runtime/grammar/work_budget.h"

namespace {

/// What the compiler warned of on this thread: a part of a grammar that it passes over. Null: nobody asks.
thread_local std::vector<std::string>* warnings_of_thread = nullptr;

}  // namespace

// The library is built so that its messages come here (XGRAMMAR_LOG_CUSTOMIZE, launch/setup.sh).
namespace xgrammar {

[[noreturn]] void LogFatalImpl(const std::string& file, int lineno, const std::string& message);
void LogMessageImpl(const std::string& file, int lineno, int level, const std::string& message);

void LogFatalImpl(const std::string& /*file*/, int /*lineno*/, const std::string& message) {
  throw std::runtime_error(message);
}

void LogMessageImpl(const std::string& /*file*/, int /*lineno*/, int level, const std::string& message) {
  constexpr int kWarning = 2;
  if (level >= kWarning && warnings_of_thread != nullptr) warnings_of_thread->push_back(message);
}

}  // namespace xgrammar

namespace ferry {

class CompiledGrammar {
 public:
  explicit CompiledGrammar(xgrammar::CompiledGrammar grammar) : grammar_(std::move(grammar)) {}
  const xgrammar::CompiledGrammar& grammar() const { return grammar_; }

 private:
  xgrammar::CompiledGrammar grammar_;
};

namespace {

/// A token of text that no grammar's characters match: it is not UTF-8.
std::string unmatched_text(ReplyTag tag) { return {'\xFF', static_cast<char>('0' + static_cast<int>(tag))}; }

/// The texts of all tokens. Special tokens and what is cut out of text have none, so that only a stop id ends a completion and
/// a string cannot hold what a door takes for a marker; the reply's own markers have one where a grammar writes them as text.
xgrammar::TokenizerInfo make_vocabulary(const Tokenizer& tokenizer, const std::vector<TokenId>& stop_ids, bool with_markers) {
  const ReplyMarkers markers(tokenizer);
  std::vector<std::string> texts(static_cast<std::size_t>(tokenizer.size()));
  for (TokenId id = 0; id < tokenizer.size(); ++id) {
    std::string& text = texts[static_cast<std::size_t>(id)];
    const std::optional<ReplyTag> tag = markers.tag_of(id);
    if (tag && !with_markers) text = unmatched_text(*tag);
    if ((tag && with_markers) || !tokenizer.is_added(id)) text = tokenizer.token_bytes(id);
  }
  return {texts, xgrammar::VocabType::RAW, tokenizer.size(), stop_ids};
}

/// Where a text can be read in many ways, a matcher's work grows without a bound with what it has read.
class Matcher final : public TokenGrammar {
 public:
  Matcher(std::shared_ptr<const CompiledGrammar> grammar, int64_t vocab_size, bool has_stop_ids)
      : grammar_(std::move(grammar)),
        matcher_(grammar_->grammar()),
        num_words_((vocab_size + 31) / 32),
        has_stop_ids_(has_stop_ids) {}

  bool fill_mask(std::span<uint32_t> bits) override {
    FERRY_CHECK_GE(static_cast<int64_t>(bits.size()), num_words_);
    DLTensor mask{.data = bits.data(),
                  .device = {kDLCPU, 0},
                  .ndim = 1,
                  .dtype = xgrammar::GetBitmaskDLType(),
                  .shape = &num_words_,
                  .strides = nullptr,
                  .byte_offset = 0};
    std::fill(bits.begin() + num_words_, bits.end(), uint32_t{0});
    return within_budget([&] { return matcher_.FillNextTokenBitmask(&mask); });
  }
  bool accept(TokenId id) override {
    time_left_ = std::min<std::chrono::nanoseconds>(time_left_ + kTimeOfToken, kTimeAtOnce);
    return !is_terminated() && within_budget([&] { return matcher_.AcceptToken(id); });
  }
  void rollback(int64_t num_tokens) override { matcher_.Rollback(static_cast<int>(num_tokens)); }
  bool is_terminated() const override { return has_stop_ids_ ? matcher_.IsTerminated() : matcher_.IsCompleted(); }

 private:
  // Of the processor, for what takes some microseconds with an honest grammar.
  static constexpr auto kTimeAtOnce = std::chrono::milliseconds(250);
  static constexpr auto kTimeOfToken = std::chrono::milliseconds(2);
  static constexpr int64_t kBytesOfStep = int64_t{256} << 20;

  template <class Step>
  bool within_budget(const Step& step) {
    const WorkBudget budget({.time = time_left_, .bytes = kBytesOfStep});
    try {
      const bool result = step();
      time_left_ -= budget.time_used();
      return result;
    } catch (const BudgetSpent& spent) {
      throw Error(ErrorCode::kInvalidArgument, std::string("structured output: to find what may come next ") + spent.what());
    }
  }

  std::shared_ptr<const CompiledGrammar> grammar_;  // so that the engine finds it meanwhile
  xgrammar::GrammarMatcher matcher_;
  int64_t num_words_;
  bool has_stop_ids_;
  std::chrono::nanoseconds time_left_ = kTimeAtOnce;
};

xgrammar::CompiledGrammar compile_schema(xgrammar::GrammarCompiler& compiler, const GrammarSpec& spec) {
  const bool is_fixed = spec.space == JsonSpace::kFixed;
  const auto space_max = spec.space == JsonSpace::kSingle ? std::optional(1) : std::nullopt;  // characters
  return compiler.CompileJSONSchema(spec.text, !is_fixed, /*indent=*/std::nullopt, /*separators=*/std::nullopt,
                                    /*strict_mode=*/true, space_max);
}

xgrammar::CompiledGrammar compile(xgrammar::GrammarCompiler& compiler, const GrammarSpec& spec) {
  using Kind = GrammarSpec::Kind;
  switch (spec.kind) {
    case Kind::kJsonSchema: return compile_schema(compiler, spec);
    case Kind::kRegex: return compiler.CompileRegex(spec.text);
    case Kind::kEbnf: return compiler.CompileGrammar(spec.text);
    case Kind::kStructuralTag: return compiler.CompileStructuralTag(spec.text);
  }
  throw Error(ErrorCode::kInternal, "grammar of an unknown kind");
}

[[noreturn]] void throw_refused(const std::string& why) { throw_invalid("structured output: " + why); }

/// The grammar, or the Error why there is none.
xgrammar::CompiledGrammar compile_in_full(xgrammar::GrammarCompiler& compiler, const GrammarSpec& spec,
                                          WorkBudget::Limits limits, int64_t max_bytes) {
  std::vector<std::string> warnings;
  warnings_of_thread = &warnings;
  std::optional<xgrammar::CompiledGrammar> grammar;
  std::string failure;
  try {
    const WorkBudget budget(std::move(limits));
    grammar = compile(compiler, spec);
  } catch (const BudgetSpent& spent) {
    failure = std::string("to compile the grammar ") + spent.what();
    malloc_trim(0);  // up to compile_bytes go back to the system
  } catch (const std::exception& error) {
    failure = error.what();
    if (failure.empty()) failure = "the grammar is not valid";
  }
  warnings_of_thread = nullptr;
  if (!grammar) throw_refused(failure);
  if (!warnings.empty()) throw_refused("cannot be enforced: " + warnings.front());
  // Of a range without a number that it can write, the compiler makes nothing.
  if (spec.kind == GrammarSpec::Kind::kJsonSchema && xgrammar::GrammarMatcher(*grammar).IsCompleted())
    throw_refused("the schema allows no value that can be written");
  const auto num_bytes = static_cast<int64_t>(grammar->MemorySizeBytes());
  if (num_bytes > max_bytes) {
    throw_refused("the grammar takes " + std::to_string(num_bytes) + " bytes; allowed: at most " + std::to_string(max_bytes));
  }
  return *grammar;
}

}  // namespace

class GrammarEngine::Impl {
 public:
  using Grammar = GrammarCache::Grammar;

  Impl(const Tokenizer& tokenizer, std::vector<TokenId> stop_ids, const GrammarEngineOptions& options, Clock& clock)
      : tokenizer_(tokenizer),
        markers_(tokenizer),
        stop_ids_(std::move(stop_ids)),
        options_(options),
        clock_(clock),
        cache_(options.cache_bytes) {
    std::erase_if(stop_ids_, [&](TokenId id) { return id < 0 || id >= tokenizer.size(); });
  }

  Grammar find(const GrammarSpec& spec) {
    const std::scoped_lock lock(mutex_);
    return cache_.find(spec);
  }

  Grammar compile(const GrammarSpec& spec, const std::function<void()>& check_in) {
    const Clock::Time deadline = clock_.now() + options_.compile_time;
    if (Grammar kept = begin_compiling(spec, deadline, check_in)) return kept;
    Grammar grammar;
    try {
      grammar = compile_alone(spec, deadline, check_in);
    } catch (...) {
      end_compiling(spec, nullptr);
      throw;
    }
    end_compiling(spec, grammar);
    return grammar;
  }

  std::shared_ptr<TokenGrammar> make(const GrammarSpec& spec, bool starts_in_reasoning) {
    const std::optional<TokenId> think_end = markers_.id_of(ReplyTag::kThinkEnd);
    if (starts_in_reasoning && !think_end) throw_refused("the prompt opens a thought, but the vocabulary has no </think>");
    auto matcher = std::make_unique<Matcher>(compile(spec, {}), tokenizer_.size(), !stop_ids_.empty());
    if (!starts_in_reasoning) return matcher;
    BehindReasoning::Tokens tokens{.vocab_size = tokenizer_.size(), .think_end = *think_end, .stop_ids = stop_ids_};
    if (spec.starts_with_calls) tokens.call_begin = markers_.id_of(ReplyTag::kCallBegin);
    for (const char* text : {"\n", "\n\n"}) {
      if (const std::optional<TokenId> id = tokenizer_.id_of(text)) tokens.line_breaks.push_back(*id);
    }
    return std::make_shared<BehindReasoning>(std::move(matcher), std::move(tokens));
  }

  int64_t cached_bytes() const {
    const std::scoped_lock lock(mutex_);
    return cache_.kept_bytes();
  }

 private:
  /// A text's vocabulary takes a fifth of a second, so it is made when the first grammar needs it.
  struct Vocabulary {
    std::once_flag is_made;
    std::optional<xgrammar::TokenizerInfo> info;
  };

  /// Returns the grammar if it is kept, or once another thread has compiled it. Else null, and this thread has to compile it.
  Grammar begin_compiling(const GrammarSpec& spec, Clock::Time deadline, const std::function<void()>& check_in) {
    constexpr std::chrono::milliseconds kTimeBetweenLooks{20};  // at whether the caller still wants it
    std::unique_lock lock(mutex_);
    while (true) {
      if (Grammar kept = cache_.find(spec)) return kept;
      const auto is_free = [&] { return std::find(compiling_.begin(), compiling_.end(), spec) == compiling_.end(); };
      if (is_free()) break;
      if (clock_.now() >= deadline) throw_late();
      clock_.wait_for(lock, compiled_, kTimeBetweenLooks, is_free);
      lock.unlock();
      if (check_in) check_in();
      lock.lock();
    }
    compiling_.push_back(spec);
    return nullptr;
  }

  void end_compiling(const GrammarSpec& spec, const Grammar& grammar) {
    {
      const std::scoped_lock lock(mutex_);
      compiling_.erase(std::find(compiling_.begin(), compiling_.end(), spec));
      if (grammar != nullptr) {
        cache_.add(spec, grammar, static_cast<int64_t>(grammar->grammar().MemorySizeBytes() + spec.text.size()));
      }
    }
    compiled_.notify_all();
  }

  Grammar compile_alone(const GrammarSpec& spec, Clock::Time deadline, const std::function<void()>& check_in) {
    // One for each, since the library does not promise that several threads may use one. It has the vocabulary, and no state.
    xgrammar::GrammarCompiler compiler(vocabulary_for(spec), /*max_threads=*/1, /*cache_enabled=*/false);
    std::exception_ptr unwanted;
    const auto is_stopped = [&] {
      try {
        if (check_in) check_in();
      } catch (...) {
        unwanted = std::current_exception();
      }
      return unwanted != nullptr || clock_.now() >= deadline;
    };
    try {
      return std::make_shared<const CompiledGrammar>(compile_in_full(
          compiler, spec, {.time = options_.compile_time, .bytes = options_.compile_bytes, .is_stopped = is_stopped},
          options_.grammar_bytes));
    } catch (...) {
      if (unwanted != nullptr) std::rethrow_exception(unwanted);
      throw;
    }
  }

  const xgrammar::TokenizerInfo& vocabulary_for(const GrammarSpec& spec) {
    Vocabulary& vocabulary = spec.has_marker_texts ? with_markers_ : without_markers_;
    std::call_once(vocabulary.is_made,
                   [&] { vocabulary.info.emplace(make_vocabulary(tokenizer_, stop_ids_, spec.has_marker_texts)); });
    return *vocabulary.info;
  }

  [[noreturn]] void throw_late() const {
    throw_refused("the grammar is not compiled within " + std::to_string(options_.compile_time.count()) + " ms");
  }

  const Tokenizer& tokenizer_;
  const ReplyMarkers markers_;
  std::vector<TokenId> stop_ids_;
  const GrammarEngineOptions options_;
  Clock& clock_;
  Vocabulary with_markers_, without_markers_;

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable compiled_;
  GrammarCache cache_;
  std::vector<GrammarSpec> compiling_;  // by some thread now; a few
};

GrammarEngine::GrammarEngine(const Tokenizer* tokenizer, std::vector<TokenId> stop_ids, const GrammarEngineOptions& options,
                             Clock& clock)
    : impl_(tokenizer == nullptr ? nullptr : std::make_unique<Impl>(*tokenizer, std::move(stop_ids), options, clock)) {}
GrammarEngine::~GrammarEngine() = default;

GrammarEngine::Impl& GrammarEngine::impl() const {
  if (impl_ == nullptr)
    throw Error(ErrorCode::kFailedPrecondition, "structured output needs a tokenizer, which the checkpoint does not have");
  return *impl_;
}

bool GrammarEngine::is_available() { return true; }

std::shared_ptr<const CompiledGrammar> GrammarEngine::find(const GrammarSpec& spec) { return impl().find(spec); }

std::shared_ptr<const CompiledGrammar> GrammarEngine::compile(const GrammarSpec& spec, const std::function<void()>& check_in) {
  return impl().compile(spec, check_in);
}

std::shared_ptr<TokenGrammar> GrammarEngine::make(const GrammarSpec& spec, bool starts_in_reasoning) {
  return impl().make(spec, starts_in_reasoning);
}

int64_t GrammarEngine::cached_bytes() const { return impl_ == nullptr ? 0 : impl_->cached_bytes(); }

}  // namespace ferry
