#include "runtime/text/pre_tokenizer.h"

#include <algorithm>
#include <cctype>
#include <exception>
#include <limits>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/quoting.h"
#include "runtime/text/unicode_text.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

namespace ferry {
namespace {

// Members of a character class, in PCRE2's syntax.
constexpr std::string_view kWhiteSpace =
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}";
// Letters, marks and numbers of Unicode 16 that Unicode 14 does not have.
constexpr std::string_view kNewerLetters =
    "\\x{1c89}-\\x{1c8a}\\x{a7cb}-\\x{a7cd}\\x{a7da}-\\x{a7dc}\\x{105c0}-\\x{105f3}\\x{10d4a}-\\x{10d65}"
    "\\x{10d6f}-\\x{10d85}\\x{10ec2}-\\x{10ec4}\\x{1123f}-\\x{11240}\\x{11380}-\\x{11389}\\x{1138b}\\x{1138e}"
    "\\x{11390}-\\x{113b5}\\x{113b7}\\x{113d1}\\x{113d3}\\x{11bc0}-\\x{11be0}\\x{11f02}\\x{11f04}-\\x{11f10}"
    "\\x{11f12}-\\x{11f33}\\x{1342f}\\x{13441}-\\x{13446}\\x{13460}-\\x{143fa}\\x{16100}-\\x{1611d}"
    "\\x{16d40}-\\x{16d6c}\\x{18cff}\\x{1b132}\\x{1b155}\\x{1df25}-\\x{1df2a}\\x{1e030}-\\x{1e06d}"
    "\\x{1e4d0}-\\x{1e4eb}\\x{1e5d0}-\\x{1e5ed}\\x{1e5f0}\\x{2b739}\\x{2ebf0}-\\x{2ee5d}\\x{31350}-\\x{323af}";
constexpr std::string_view kNewerMarks =
    "\\x{897}\\x{cf3}\\x{ece}\\x{10d69}-\\x{10d6d}\\x{10efc}-\\x{10eff}\\x{11241}\\x{113b8}-\\x{113c0}\\x{113c2}"
    "\\x{113c5}\\x{113c7}-\\x{113ca}\\x{113cc}-\\x{113d0}\\x{113d2}\\x{113e1}-\\x{113e2}\\x{11f00}-\\x{11f01}"
    "\\x{11f03}\\x{11f34}-\\x{11f3a}\\x{11f3e}-\\x{11f42}\\x{11f5a}\\x{13440}\\x{13447}-\\x{13455}"
    "\\x{1611e}-\\x{1612f}\\x{1e08f}\\x{1e4ec}-\\x{1e4ef}\\x{1e5ee}-\\x{1e5ef}";
constexpr std::string_view kNewerNumbers =
    "\\x{10d40}-\\x{10d49}\\x{116d0}-\\x{116e3}\\x{11bf0}-\\x{11bf9}\\x{11f50}-\\x{11f59}\\x{16130}-\\x{16139}"
    "\\x{16d70}-\\x{16d79}\\x{1ccf0}-\\x{1ccf9}\\x{1d2c0}-\\x{1d2d3}\\x{1e4f0}-\\x{1e4f9}\\x{1e5f1}-\\x{1e5fa}";

// Each match is first tried in a few bytes of the text and with few backtracking steps. Nearly all matches of ordinary text are
// found so, by PCRE2 at its quickest. Both limits together bound the time of one try.
constexpr size_t kQuickBytes = 256;
constexpr uint32_t kQuickSteps = 32;
// A match that needs more is made again with every step counted. All matches of one text together may take kStepsBase steps,
// and kStepsPerByte more for each byte, because a run of white space is walked back once. Each byte that is passed is a step,
// and each item of the pattern that is tried is kStepsPerItem. A quick try is one step, and one more for each
// kPatternBytesPerStep.
constexpr uint64_t kStepsBase = 1 << 24;
constexpr uint64_t kStepsPerByte = 64;
constexpr uint64_t kStepsPerItem = 4;
constexpr uint64_t kPatternBytesPerStep = 32;
constexpr uint64_t kStepsPerCheckIn = 1 << 16;  // some milliseconds
// Memory that the interpreter may take for its backtracking positions, which are some 100 bytes each.
constexpr uint64_t kHeapLimitBaseKib = 20 << 10;
constexpr uint64_t kHeapLimitPerByte = 256;

std::string_view newer_members(std::string_view property) {
  if (property == "L") return kNewerLetters;
  if (property == "M") return kNewerMarks;
  if (property == "N") return kNewerNumbers;
  return {};
}

std::string join(std::string_view a, std::string_view b, std::string_view c) { return std::string(a).append(b).append(c); }

/// One pass over the pattern; every construct that is not known to mean the same in both engines is refused.
class OnigurumaTranslator {
 public:
  explicit OnigurumaTranslator(std::string_view pattern) : pattern_(pattern) {}

  std::string run() {
    while (at_ < pattern_.size()) {
      if (pattern_[at_] == '\\') {
        escape();
      } else if (in_class_) {
        class_member();
      } else {
        outside_class();
      }
    }
    return std::move(out_);
  }

 private:
  bool next_is(std::string_view what) const { return pattern_.substr(at_).starts_with(what); }

  [[noreturn]] void refuse(std::string_view what) const {
    throw Error(ErrorCode::kUnimplemented, "tokenizer: the pre-tokenizer regex has " + std::string(what) + " at byte " +
                                               std::to_string(at_) + ", which is not supported: " + in_quotes(pattern_));
  }

  void copy(size_t num_bytes) {
    out_.append(pattern_.substr(at_, num_bytes));
    at_ += num_bytes;
  }

  void escape() {
    if (at_ + 1 >= pattern_.size()) refuse("a backslash at the end");
    const char c = pattern_[at_ + 1];
    if (c == 'p' || c == 'P') return property(c == 'P');
    if (c == 's' || c == 'S') {
      if (c == 'S' && in_class_) refuse("\\S inside a class");
      out_ += in_class_ ? std::string(kWhiteSpace) : join(c == 's' ? "[" : "[^", kWhiteSpace, "]");
    } else if (c == 'd') {
      out_ += "\\p{Nd}";
    } else if (std::string_view("rntf").find(c) != std::string_view::npos || std::ispunct(static_cast<unsigned char>(c)) != 0) {
      out_.append(pattern_.substr(at_, 2));
    } else {
      refuse("the escape \\" + std::string(1, c));
    }
    at_ += 2;
  }

  void property(bool negated) {
    const size_t close = pattern_.find('}', at_);
    if (pattern_.substr(at_ + 2, 1) != "{" || close == std::string_view::npos) refuse("a property without {name}");
    const std::string_view name = pattern_.substr(at_ + 3, close - at_ - 3);
    const bool plain =
        !name.empty() && std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) || c == '_'; });
    if (!plain) refuse("a property with an unusual name");
    const std::string_view newer = newer_members(name);
    if (negated && in_class_ && !newer.empty()) refuse("\\P inside a class");
    if (newer.empty()) {
      out_ += join(negated ? "\\P{" : "\\p{", name, "}");
    } else {
      const std::string members = join("\\p{", name, "}") + std::string(newer);
      out_ += in_class_ ? members : join(negated ? "[^" : "[", members, "]");
    }
    at_ = close + 1;
  }

  void class_member() {
    if (next_is("[")) refuse("a class inside a class");
    if (next_is("&&")) refuse("an intersection of classes");
    if (next_is("]")) in_class_ = false;
    copy(1);
  }

  void outside_class() {
    switch (pattern_[at_]) {
      case '[': {
        in_class_ = true;
        copy(next_is("[^") ? 2 : 1);
        if (next_is("]")) refuse("a class that begins with ]");
        return;
      }
      case '(': return open_group();
      case '{': return interval();
      case '^':
      case '$': refuse("an anchor");
      default: copy(1);
    }
  }

  void open_group() {
    for (const std::string_view known : {"(?:", "(?i:", "(?=", "(?!"}) {
      if (next_is(known)) return copy(known.size());
    }
    if (next_is("(?") || next_is("(*")) refuse("a group of a kind");
    copy(1);
  }

  void interval() {
    const size_t close = pattern_.find('}', at_);
    const std::string_view inside =
        close == std::string_view::npos ? std::string_view() : pattern_.substr(at_ + 1, close - at_ - 1);
    const bool is_count = !inside.empty() && std::isdigit(static_cast<unsigned char>(inside[0])) != 0 &&
                          inside.find_first_not_of("0123456789,") == std::string_view::npos;
    if (!is_count) refuse("a brace that counts nothing");
    copy(inside.size() + 2);
    if (next_is("+") || next_is("?")) refuse("a lazy or possessive interval");
  }

  std::string_view pattern_;
  size_t at_ = 0;
  bool in_class_ = false;
  std::string out_;
};

struct FreeMatchContext {
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};
struct FreeMatchData {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};
struct FreeCompileContext {
  void operator()(pcre2_compile_context* context) const { pcre2_compile_context_free(context); }
};
struct FreeCode {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};

std::string pcre2_message(int code) {
  std::string text(256, '\0');
  const int num_bytes = pcre2_get_error_message(code, reinterpret_cast<PCRE2_UCHAR*>(text.data()), text.size());
  text.resize(num_bytes < 0 ? 0 : static_cast<size_t>(num_bytes));
  return text + " (PCRE2 code " + std::to_string(code) + ")";
}

template <class T>
T* checked(T* pointer) {
  if (pointer == nullptr) throw Error(ErrorCode::kResourceExhausted, "tokenizer: no memory for the pre-tokenizer regex");
  return pointer;
}

using Code = std::unique_ptr<pcre2_code, FreeCode>;

Code compile(const std::string& pattern, uint32_t options) {
  const std::string translated = oniguruma_to_pcre2(pattern);
  const std::unique_ptr<pcre2_compile_context, FreeCompileContext> context(checked(pcre2_compile_context_create(nullptr)));
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);  // what "." stops at, in Oniguruma always "\n"
  int error = 0;
  PCRE2_SIZE error_offset = 0;
  Code code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(), PCRE2_UTF | PCRE2_UCP | options,
                          &error, &error_offset, context.get()));
  if (code == nullptr)
    throw_invalid("tokenizer: the pre-tokenizer regex " + in_quotes(pattern) + " is wrong: " + pcre2_message(error));
  return code;
}

/// The regex in two forms that match alike.
struct Codes {
  explicit Codes(const std::string& regex)
      : pattern(regex),
        quick(compile(regex, PCRE2_ANCHORED)),
        counted(compile(regex, PCRE2_AUTO_CALLOUT)),
        quick_is_machine_code(pcre2_jit_compile(quick.get(), PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD) == 0) {
    pcre2_jit_compile(counted.get(), PCRE2_JIT_COMPLETE);
  }

  const std::string pattern;
  const Code quick;    // matches only where the search begins
  const Code counted;  // calls back at each item of the pattern
  // False if memory must not be executable. PCRE2 interprets then.
  const bool quick_is_machine_code;
};

/// Counts the steps that all matches of one text take.
class StepMeter {
 public:
  StepMeter(const std::string& pattern, size_t text_bytes, const std::function<void()>& check_in)
      : pattern_(pattern), text_bytes_(text_bytes), limit_(kStepsBase + kStepsPerByte * text_bytes), check_in_(check_in) {}

  void begin_at(size_t place) { place_ = place; }

  /// Throws Error{kResourceExhausted} for too many, and what check_in throws.
  void add(uint64_t num_steps) {
    num_steps_ += num_steps;
    if (num_steps_ >= next_look_) look_up();
  }

  /// PCRE2's callout: the matcher is at an item of the pattern. No exception may pass through it.
  static int on_item(pcre2_callout_block* block, void* meter_pointer) {
    auto& meter = *static_cast<StepMeter*>(meter_pointer);
    const size_t place = block->current_position;
    try {
      meter.add(kStepsPerItem + (place > meter.place_ ? place - meter.place_ : meter.place_ - place));
    } catch (...) {
      meter.failure_ = std::current_exception();
      return PCRE2_ERROR_CALLOUT;
    }
    meter.place_ = place;
    return 0;
  }
  void rethrow() {
    if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
  }

 private:
  void look_up() {
    if (num_steps_ > limit_) {
      throw Error(ErrorCode::kResourceExhausted,
                  "tokenizer: the pre-tokenizer regex " + in_quotes(pattern_) + " takes more than " + std::to_string(limit_) +
                      " steps for a text of " + std::to_string(text_bytes_) + " bytes; allowed: " + std::to_string(kStepsBase) +
                      " and " + std::to_string(kStepsPerByte) + " for each byte");
    }
    next_look_ = std::min(num_steps_ + kStepsPerCheckIn, limit_ + 1);
    if (check_in_) check_in_();
  }

  const std::string& pattern_;
  const size_t text_bytes_;
  const uint64_t limit_;
  const std::function<void()>& check_in_;
  uint64_t num_steps_ = 0;
  uint64_t next_look_ = kStepsPerCheckIn;
  size_t place_ = 0;  // where the matcher was last
  std::exception_ptr failure_;
};

/// The state of matching one text: not shared between threads.
class Matcher {
 public:
  Matcher(const Codes& codes, std::string_view text, const std::function<void()>& check_in)
      : codes_(codes),
        text_(text),
        quick_steps_(1 + codes.pattern.size() / kPatternBytesPerStep),
        meter_(codes.pattern, text.size(), check_in),
        quick_context_(checked(pcre2_match_context_create(nullptr))),
        counted_context_(checked(pcre2_match_context_create(nullptr))),
        data_(checked(pcre2_match_data_create_from_pattern(codes.counted.get(), nullptr))) {
    pcre2_set_match_limit(quick_context_.get(), kQuickSteps);
    pcre2_set_match_limit(counted_context_.get(), std::numeric_limits<uint32_t>::max());  // the meter's is lower
    pcre2_set_callout(counted_context_.get(), &StepMeter::on_item, &meter_);
    const uint64_t heap_kib = kHeapLimitBaseKib + kHeapLimitPerByte * text.size() / 1024;
    pcre2_set_heap_limit(counted_context_.get(),
                         static_cast<uint32_t>(std::min<uint64_t>(heap_kib, std::numeric_limits<uint32_t>::max())));
  }

  /// Finds the next match at or after `from`, which is before the text's end; false if there is none.
  bool find(size_t from, size_t& match_begin, size_t& match_end) {
    meter_.add(quick_steps_);
    if (!matches_quickly(from) && !matches_counted(from)) return false;
    const PCRE2_SIZE* const offsets = pcre2_get_ovector_pointer(data_.get());
    match_begin = offsets[0];
    match_end = offsets[1];
    return true;
  }

 private:
  /// Returns whether a match begins at `from`. It is that of the whole text, because one that looks beyond these few bytes
  /// counts as none.
  bool matches_quickly(size_t from) {
    size_t end = std::min(text_.size(), from + kQuickBytes);
    while (end < text_.size() && (static_cast<unsigned char>(text_[end]) & 0xC0U) == 0x80U) --end;
    const uint32_t partial = end < text_.size() ? PCRE2_PARTIAL_HARD : 0;
    if (!codes_.quick_is_machine_code) return match(codes_.quick.get(), end, from, partial, quick_context_.get()) >= 0;
    return pcre2_jit_match(codes_.quick.get(), reinterpret_cast<PCRE2_SPTR>(text_.data()), end, from, partial, data_.get(),
                           quick_context_.get()) >= 0;
  }

  bool matches_counted(size_t from) {
    meter_.begin_at(from);
    int rc = match(codes_.counted.get(), text_.size(), from, 0, counted_context_.get());
    meter_.rethrow();
    // The compiled matcher has a small fixed stack; the interpreter keeps its state on the heap.
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) {
      rc = match(codes_.counted.get(), text_.size(), from, PCRE2_NO_JIT, counted_context_.get());
      meter_.rethrow();
    }
    if (rc < 0 && rc != PCRE2_ERROR_NOMATCH) {
      throw Error(ErrorCode::kResourceExhausted, "tokenizer: the pre-tokenizer regex " + in_quotes(codes_.pattern) +
                                                     " gave up at byte " + std::to_string(from) + " of " +
                                                     std::to_string(text_.size()) + ": " + pcre2_message(rc));
    }
    return rc >= 0;
  }

  /// The text is known to be well-formed; having every call check it again would make splitting quadratic.
  int match(const pcre2_code* code, size_t end, size_t from, uint32_t options, pcre2_match_context* context) {
    return pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text_.data()), end, from, options | PCRE2_NO_UTF_CHECK, data_.get(),
                       context);
  }

  const Codes& codes_;
  std::string_view text_;
  const uint64_t quick_steps_;
  StepMeter meter_;
  std::unique_ptr<pcre2_match_context, FreeMatchContext> quick_context_, counted_context_;
  std::unique_ptr<pcre2_match_data, FreeMatchData> data_;
};

}  // namespace

std::string oniguruma_to_pcre2(std::string_view pattern) { return OnigurumaTranslator(pattern).run(); }

struct PreTokenizer::Regex {
  explicit Regex(const std::string& pattern) : codes(pattern) {}
  Codes codes;
};

PreTokenizer::PreTokenizer(const std::string& pattern) {
  if (!is_utf8(pattern)) throw_invalid("tokenizer: the pre-tokenizer regex is not UTF-8");
  regex_ = std::make_unique<const Regex>(pattern);
}

PreTokenizer::~PreTokenizer() = default;
PreTokenizer::PreTokenizer(PreTokenizer&&) noexcept = default;
PreTokenizer& PreTokenizer::operator=(PreTokenizer&&) noexcept = default;

void PreTokenizer::split(std::string_view text, const std::function<void(std::string_view)>& take,
                         const std::function<void()>& check_in) const {
  if (text.empty()) return;
  Matcher matcher(regex_->codes, text, check_in);
  const auto add_piece = [&](size_t begin, size_t end) {
    if (begin < end) take(text.substr(begin, end - begin));
  };
  size_t done = 0;  // everything before is in a piece
  size_t from = 0;
  size_t match_begin = 0;
  size_t match_end = 0;
  while (from < text.size() && matcher.find(from, match_begin, match_end)) {
    add_piece(done, match_begin);
    add_piece(match_begin, match_end);
    done = match_end;
    from = match_end;
    if (match_begin == match_end && from < text.size()) from += next_utf8(text.substr(from)).num_bytes;
  }
  add_piece(done, text.size());
}

}  // namespace ferry
