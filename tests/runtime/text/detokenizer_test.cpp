#include "runtime/text/detokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "runtime/base/error.h"
#include "runtime/text/unicode_text.h"
#include "tests/support/source_folder.h"

namespace ferry {
namespace {

using nlohmann::json;
using Ids = std::vector<TokenId>;

const Tokenizer& demo_tokenizer() {
  static const Tokenizer tokenizer = Tokenizer::load(test::source_folder() / "launch/demo");
  return tokenizer;
}

/// One token for each byte of `text`, whatever merges there are.
Ids byte_ids(std::string_view text) {
  Ids ids;
  for (const char c : text) ids.push_back(*demo_tokenizer().id_of(std::string_view(&c, 1)));
  return ids;
}

struct Streamed {
  std::string text;
  bool stopped = false;
};

Streamed stream(const Ids& ids, const std::vector<std::string>& stop_strings, SpecialTokens special = SpecialTokens::kKeep) {
  Detokenizer detokenizer(demo_tokenizer(), stop_strings, special);
  Streamed result;
  for (const TokenId id : ids) {
    const std::string piece = detokenizer.push(id);
    EXPECT_TRUE(is_utf8(piece));
    result.text += piece;
  }
  const std::string last = detokenizer.finish();
  EXPECT_TRUE(is_utf8(last));
  return {result.text + last, detokenizer.stopped()};
}

/// What the stop strings leave of whole text: cut where the one that ends first begins, the longest of those.
Streamed cut_at_stop(const std::string& text, const std::vector<std::string>& stop_strings) {
  size_t best_end = std::string::npos;
  size_t best_begin = 0;
  for (const std::string& stop : stop_strings) {
    const size_t begin = text.find(stop);
    if (begin == std::string::npos) continue;
    const size_t end = begin + stop.size();
    if (end > best_end || (end == best_end && begin > best_begin)) continue;
    best_end = end;
    best_begin = begin;
  }
  if (best_end == std::string::npos) return {text, false};
  return {text.substr(0, best_begin), true};
}

TEST(Detokenizer, PiecesAddUpToDecode) {
  std::ifstream file(test::source_folder() / "tests/golden/tokenizer_cases.json");
  const json cases = json::parse(file);
  for (const json& entry : cases["decode"]) {
    const Ids ids = entry["ids"].get<Ids>();
    EXPECT_EQ(stream(ids, {}, SpecialTokens::kKeep).text, entry["keep"].get<std::string>()) << entry["ids"];
    EXPECT_EQ(stream(ids, {}, SpecialTokens::kSkip).text, entry["skip"].get<std::string>()) << entry["ids"];
    EXPECT_EQ(stream(ids, {"never to be found"}).text, entry["keep"].get<std::string>()) << entry["ids"];
    const std::vector<std::string> stops = {"e ", "\xEF\xBF\xBD\xEF\xBF\xBD", "<|im", "1"};
    const Streamed expected = cut_at_stop(entry["keep"].get<std::string>(), stops);
    const Streamed streamed = stream(ids, stops);
    EXPECT_EQ(streamed.text, expected.text) << entry["ids"];
    EXPECT_EQ(streamed.stopped, expected.stopped) << entry["ids"];
  }
}

TEST(Detokenizer, HoldsBackHalfACharacter) {
  Detokenizer detokenizer(demo_tokenizer(), {}, SpecialTokens::kKeep);
  const Ids ids = byte_ids("a\xF0\x9F\x98\x80");
  EXPECT_EQ(detokenizer.push(ids[0]), "a");
  EXPECT_EQ(detokenizer.push(ids[1]), "");
  EXPECT_EQ(detokenizer.push(ids[2]), "");
  EXPECT_EQ(detokenizer.push(ids[3]), "");
  EXPECT_EQ(detokenizer.push(ids[4]), "\xF0\x9F\x98\x80");
  EXPECT_EQ(detokenizer.finish(), "");
}

TEST(Detokenizer, ReplacesWhatCannotBecomeACharacter) {
  Detokenizer detokenizer(demo_tokenizer(), {}, SpecialTokens::kKeep);
  const Ids ids = byte_ids("\xE4\xBDz\xFF\xE4");
  EXPECT_EQ(detokenizer.push(ids[0]), "");
  EXPECT_EQ(detokenizer.push(ids[1]), "");
  EXPECT_EQ(detokenizer.push(ids[2]), "\xEF\xBF\xBDz");
  EXPECT_EQ(detokenizer.push(ids[3]), "\xEF\xBF\xBD");
  EXPECT_EQ(detokenizer.push(ids[4]), "");
  EXPECT_EQ(detokenizer.finish(), "\xEF\xBF\xBD");
  EXPECT_FALSE(detokenizer.stopped());
}

TEST(Detokenizer, HoldsBackTheBeginningOfAStopString) {
  Detokenizer detokenizer(demo_tokenizer(), {"END."}, SpecialTokens::kKeep);
  const Ids ids = byte_ids("xENEND.y");
  std::vector<std::string> pieces;
  for (const TokenId id : ids) pieces.push_back(detokenizer.push(id));
  EXPECT_EQ(pieces, (std::vector<std::string>{"x", "", "", "EN", "", "", "", ""}));
  EXPECT_TRUE(detokenizer.stopped());
  EXPECT_EQ(detokenizer.finish(), "");
}

TEST(Detokenizer, FlushesABeginningThatCameToNothing) {
  Detokenizer detokenizer(demo_tokenizer(), {"\n\nUser:"}, SpecialTokens::kKeep);
  EXPECT_EQ(detokenizer.push(*demo_tokenizer().id_of("\n")), "");
  EXPECT_EQ(detokenizer.finish(), "\n");
  EXPECT_FALSE(detokenizer.stopped());
}

TEST(Detokenizer, TheStopStringThatEndsFirstCounts) {
  // One token or many, "bcd" begins first but "c" ends first; "abcd" and "cd" end together and the longer one wins.
  for (const Ids& ids : {demo_tokenizer().encode("xabcdy"), byte_ids("xabcdy")}) {
    EXPECT_EQ(stream(ids, {"bcd", "c"}).text, "xab");
    EXPECT_EQ(stream(ids, {"cd", "abcd", "bcd"}).text, "x");
    EXPECT_EQ(stream(ids, {"q"}).text, "xabcdy");
  }
  EXPECT_EQ(stream(byte_ids("aabaabaaac"), {"aabaaa"}).text, "aab") << "a match that begins inside a failed one";
}

TEST(Detokenizer, AStopStringMayEndInAReplacedTail) {
  const Streamed streamed = stream(byte_ids("ab\xE4"), {"b\xEF\xBF\xBD"});
  EXPECT_EQ(streamed.text, "a");
  EXPECT_TRUE(streamed.stopped);
}

TEST(Detokenizer, SkipsSpecialTokensAndIgnoresThemInStops) {
  const Ids ids = demo_tokenizer().encode("hi<|im_end|><think>");
  EXPECT_EQ(stream(ids, {"<|im_end|>"}, SpecialTokens::kSkip).text, "hi<think>");
  EXPECT_EQ(stream(ids, {"<|im_end|>"}, SpecialTokens::kKeep).text, "hi");
}

/// With stop strings "bab" and "ca".
Streamed stream_by(const std::string& text, const StopRules& rules, std::string* stop = nullptr) {
  Detokenizer detokenizer(demo_tokenizer(), {"bab", "ca"}, SpecialTokens::kKeep, rules);
  std::string shown;
  for (const TokenId id : byte_ids(text)) shown += detokenizer.push(id);
  shown += detokenizer.finish();
  if (stop != nullptr) *stop = detokenizer.stop_string();
  return {shown, detokenizer.stopped()};
}

TEST(Detokenizer, NamesTheStopStringAndMayKeepIt) {
  using Text = StopRules::Text;
  std::string stop;
  EXPECT_EQ(stream_by("xabababca", {}, &stop).text, "xa");
  EXPECT_EQ(stop, "bab");
  EXPECT_EQ(stream_by("xabababca", {.text = Text::kKept}, &stop).text, "xabab");
  EXPECT_EQ(stop, "bab");
  EXPECT_EQ(stream_by("xcab", {.text = Text::kKept}, &stop).text, "xca");
  EXPECT_EQ(stop, "ca");
  EXPECT_EQ(stream_by("xbac", {.text = Text::kKept}, &stop).text, "xbac");
  EXPECT_EQ(stop, "");
}

// One token a byte: only a string that ends behind the first min_tokens of them counts, wherever it began.
TEST(Detokenizer, StopStringsDoNotCountBeforeMinTokens) {
  const std::string text = "xbababcabab";
  for (const auto rule : {StopRules::Text::kCut, StopRules::Text::kKept}) {
    for (std::size_t min_tokens = 0; min_tokens <= text.size(); ++min_tokens) {
      std::size_t end = text.size() + 1, length = 0;
      for (const std::string& stop : {std::string("bab"), std::string("ca")}) {
        for (std::size_t at = text.find(stop); at != std::string::npos; at = text.find(stop, at + 1)) {
          if (at + stop.size() > min_tokens && at + stop.size() < end) end = at + stop.size(), length = stop.size();
        }
      }
      const bool stops = end <= text.size();
      const std::size_t shown = !stops ? text.size() : rule == StopRules::Text::kKept ? end : end - length;
      const Streamed streamed = stream_by(text, {.min_tokens = static_cast<int64_t>(min_tokens), .text = rule});
      EXPECT_EQ(streamed.text, text.substr(0, shown)) << min_tokens;
      EXPECT_EQ(streamed.stopped, stops) << min_tokens;
    }
  }
}

TEST(Detokenizer, RefusesStopStringsThatCannotBeMeant) {
  EXPECT_THROW(Detokenizer(demo_tokenizer(), {"a", ""}, SpecialTokens::kKeep), Error);
  EXPECT_THROW(Detokenizer(demo_tokenizer(), {"\xE4"}, SpecialTokens::kKeep), Error);
}

}  // namespace
}  // namespace ferry
