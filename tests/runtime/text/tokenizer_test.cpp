#include "runtime/text/tokenizer.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <thread>

#include "runtime/base/error.h"
#include "tests/support/draws.h"
#include "tests/support/expect_error.h"
#include "tests/support/source_folder.h"

namespace ferry {
namespace {

using nlohmann::json;
using Ids = std::vector<TokenId>;

const std::filesystem::path kSourceDir = test::source_folder();

json read_json(const std::filesystem::path& path) {
  std::ifstream file(path);
  return json::parse(file);
}

const Tokenizer& demo_tokenizer() {
  static const Tokenizer tokenizer = Tokenizer::load(kSourceDir / "launch/demo");
  return tokenizer;
}

/// A folder with tokenizer files of its own, gone with the object.
class CheckpointDir {
 public:
  CheckpointDir() {
    static int count = 0;
    path_ = std::filesystem::temp_directory_path() /
            ("ferry_tokenizer_test_" + std::to_string(getpid()) + "_" + std::to_string(count++));
    std::filesystem::create_directories(path_);
  }
  ~CheckpointDir() { std::filesystem::remove_all(path_); }
  CheckpointDir(const CheckpointDir&) = delete;
  CheckpointDir& operator=(const CheckpointDir&) = delete;

  const std::filesystem::path& path() const { return path_; }
  void write(const char* name, const std::string& text) const { std::ofstream(path_ / name) << text; }

 private:
  std::filesystem::path path_;
};

/// The demo's tokenizer.json after `change`.
Tokenizer load_changed(const std::function<void(json&)>& change, const json& config = nullptr) {
  static const json kDemo = read_json(kSourceDir / "launch/demo/tokenizer.json");
  json root = kDemo;
  change(root);
  const CheckpointDir dir;
  dir.write("tokenizer.json", root.dump());
  if (!config.is_null()) dir.write("tokenizer_config.json", config.dump());
  return Tokenizer::load(dir.path());
}

std::string load_error(const std::function<void(json&)>& change, const json& config = nullptr) {
  try {
    load_changed(change, config);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Tokenizer, ReproducesTheCheckpointsGoldenCases) {
  const json golden = read_json(kSourceDir / "launch/demo/golden.json");
  for (const json& entry : golden["tokenizer"]) {
    const Ids ids = demo_tokenizer().encode(entry["text"].get<std::string>());
    EXPECT_EQ(ids, entry["ids"].get<Ids>()) << entry["text"];
    EXPECT_EQ(demo_tokenizer().decode(ids, SpecialTokens::kKeep), entry["decoded"].get<std::string>());
  }
  for (const json& entry : golden["generation"]) {
    if (entry["kind"] != "text") continue;
    EXPECT_EQ(demo_tokenizer().encode(entry["prompt"].get<std::string>()), entry["ids"].get<Ids>());
    EXPECT_EQ(demo_tokenizer().decode(entry["greedy"].get<Ids>(), SpecialTokens::kSkip), entry["text"].get<std::string>());
  }
}

TEST(Tokenizer, AgreesWithHuggingFace) {
  const json cases = read_json(kSourceDir / "tests/golden/tokenizer_cases.json");
  ASSERT_GT(cases["encode"].size(), 300U);
  ASSERT_GT(cases["decode"].size(), 100U);
  for (const json& entry : cases["encode"]) {
    EXPECT_EQ(demo_tokenizer().encode(entry["text"].get<std::string>()), entry["ids"].get<Ids>()) << entry["text"];
  }
  for (const json& entry : cases["decode"]) {
    const Ids ids = entry["ids"].get<Ids>();
    EXPECT_EQ(demo_tokenizer().decode(ids, SpecialTokens::kKeep), entry["keep"].get<std::string>()) << entry["ids"];
    EXPECT_EQ(demo_tokenizer().decode(ids, SpecialTokens::kSkip), entry["skip"].get<std::string>()) << entry["ids"];
  }
}

/// `ids` with what a case file or a variant of it says is put around a text.
Ids wrapped(const json& variant, const Ids& ids) {
  Ids all = variant["prefix"].get<Ids>();
  const Ids suffix = variant["suffix"].get<Ids>();
  all.insert(all.end(), ids.begin(), ids.end());
  all.insert(all.end(), suffix.begin(), suffix.end());
  return all;
}

/// The tokenizer of a folder with tokenizer.json and cases.json, changed by a variant's patch.
Tokenizer load_variant(const std::filesystem::path& folder, const json& variant) {
  json root = read_json(folder / "tokenizer.json");
  if (variant.contains("patch")) root = root.patch(variant["patch"]);
  const CheckpointDir dir;
  dir.write("tokenizer.json", root.dump());
  return Tokenizer::load(dir.path());
}

TEST(Tokenizer, AgreesWithHuggingFaceOnFilesOfAnotherForm) {
  const std::filesystem::path folder = kSourceDir / "tests/golden/lfm2_tokenizer";
  const json cases = read_json(folder / "cases.json");
  std::vector<json> variants(cases["variants"].begin(), cases["variants"].end());
  variants.push_back({{"name", "ids"}, {"prefix", cases["prefix"]}, {"suffix", cases["suffix"]}});
  ASSERT_EQ(variants.size(), 4U);
  ASSERT_GT(cases["encode"].size(), 500U);
  ASSERT_GT(cases["decode"].size(), 100U);
  for (const json& variant : variants) {
    const Tokenizer tokenizer = load_variant(folder, variant);
    const auto name = variant["name"].get<std::string>();
    for (const json& entry : cases["encode"]) {
      const auto text = entry["text"].get<std::string>();
      const Ids ids = entry[entry.contains(name) ? name : "ids"].get<Ids>();
      EXPECT_EQ(tokenizer.encode(text), ids) << name << ": " << entry["text"];
      EXPECT_EQ(tokenizer.encode_prompt(text), wrapped(variant, ids)) << name << ": " << entry["text"];
    }
    for (const json& entry : cases["decode"]) {
      const Ids ids = entry["ids"].get<Ids>();
      const json& texts = entry.contains(name) && name != "ids" ? entry[name] : entry;
      EXPECT_EQ(tokenizer.decode(ids, SpecialTokens::kKeep), texts["keep"].get<std::string>()) << name << ": " << entry["ids"];
      EXPECT_EQ(tokenizer.decode(ids, SpecialTokens::kSkip), texts["skip"].get<std::string>()) << name << ": " << entry["ids"];
    }
  }
}

/// A TemplateProcessing with these parts: ids of special tokens, and "A" or another name for a text.
json template_processing(const json& parts) {
  json single = json::array();
  json specials = json::object();
  for (const json& part : parts) {
    const std::string name = part.is_string() ? part.get<std::string>() : "token " + part.dump();
    single.push_back({{part.is_string() ? "Sequence" : "SpecialToken", {{"id", name}, {"type_id", 0}}}});
    if (!part.is_string()) specials[name] = {{"id", name}, {"ids", {part}}, {"tokens", {name}}};
  }
  return {{"type", "TemplateProcessing"}, {"single", single}, {"special_tokens", specials}};
}

TEST(Tokenizer, PutsThePostProcessorsTokensAroundAPrompt) {
  const auto with = [](const json& processors) {
    return load_changed([&](json& root) { root["post_processor"] = {{"type", "Sequence"}, {"processors", processors}}; });
  };
  const Ids ids = {262, 262};
  EXPECT_EQ(demo_tokenizer().encode_prompt(" the the"), ids);
  const Tokenizer both = with({template_processing({6080, 6081, "A", 6082}), template_processing({6083, "A", 6084})});
  EXPECT_EQ(both.encode(" the the"), ids);
  EXPECT_EQ(both.encode_prompt(" the the"), (Ids{6083, 6080, 6081, 262, 262, 6082, 6084}));
  EXPECT_EQ(both.encode_prompt(""), (Ids{6083, 6080, 6081, 6082, 6084}));
  EXPECT_EQ(both.encode_prompt(" the the", {.max_tokens = 7}).size(), 7U);
  for (const size_t few : {6U, 4U, 2U, 0U}) {
    test::expect_error([&] { both.encode_prompt(" the the", {.max_tokens = few}); }, ErrorCode::kInvalidArgument,
                       {"more than " + std::to_string(few) + " tokens"});
  }
}

TEST(Tokenizer, TokensSpeltInAnotherWayAreNoBytes) {
  const auto with_space = [](json& root) {
    root["model"]["ignore_merges"] = true;
    root["model"]["vocab"][" "] = 6200;
    root["model"]["vocab"]["\n\n"] = 6201;
  };
  const Tokenizer tokenizer = load_changed(with_space);
  EXPECT_EQ(tokenizer.encode(" "), demo_tokenizer().encode(" "));
  EXPECT_EQ(tokenizer.encode("x\n\ny"), demo_tokenizer().encode("x\n\ny"));
  EXPECT_EQ(tokenizer.decode(Ids{6200, 6201}, SpecialTokens::kKeep), " \n\n");
}

TEST(Tokenizer, KnowsItsTokens) {
  const Tokenizer& tokenizer = demo_tokenizer();
  EXPECT_EQ(tokenizer.size(), 6106);
  EXPECT_EQ(tokenizer.id_of("<|im_end|>"), 6082);
  EXPECT_EQ(tokenizer.id_of("</think>"), 6105);
  EXPECT_EQ(tokenizer.id_of(" the"), 262);
  EXPECT_EQ(tokenizer.id_of("no such token"), std::nullopt);
  EXPECT_TRUE(tokenizer.is_special(6082));
  EXPECT_FALSE(tokenizer.is_special(6105)) << "</think> is an added token, not a special one";
  EXPECT_EQ(tokenizer.token_bytes(220), " ");
  EXPECT_EQ(tokenizer.token_bytes(160), "\xE4");
  for (const TokenId missing : {-1, 6106, INT32_MAX, INT32_MIN}) {
    EXPECT_EQ(tokenizer.token_bytes(missing), "");
    EXPECT_FALSE(tokenizer.is_special(missing));
  }
  EXPECT_EQ(tokenizer.decode(Ids{39, 6106, -7}, SpecialTokens::kKeep), "H");
}

TEST(Tokenizer, RepairsMalformedInput) {
  const Tokenizer& tokenizer = demo_tokenizer();
  const std::string fffd = "\xEF\xBF\xBD";
  EXPECT_EQ(tokenizer.encode("a\xFF"
                             "b\xE4\xBD<|im_end|>\xED\xA0\x80"),
            tokenizer.encode("a" + fffd + "b" + fffd + "<|im_end|>" + fffd + fffd + fffd));
}

TEST(Tokenizer, RoundTripsLongTextWithoutSpaces) {
  const Tokenizer& tokenizer = demo_tokenizer();
  uint32_t state = 1;
  std::string letters;
  for (int i = 0; i < 300'007; ++i) {
    state = state * 1664525 + 1013904223;
    letters.push_back(static_cast<char>('a' + (state >> 24) % 26));
  }
  for (const std::string& text : {letters, std::string(300'007, ' '), std::string(300'007, '<')}) {
    const Ids ids = tokenizer.encode(text);
    EXPECT_LE(ids.size(), text.size());
    EXPECT_EQ(tokenizer.decode(ids, SpecialTokens::kKeep), text);
  }
}

/// Text made to be slow: long runs of one kind, and what makes a regex or a sort start over. Each must cost little more than as
/// much prose, or a few requests would hold a server up.
TEST(Tokenizer, NoTextIsMuchSlowerThanItsLengthSays) {
  const Tokenizer& tokenizer = demo_tokenizer();
  const std::vector<std::string> units = {"a",
                                          " ",
                                          "\n",
                                          " \n",
                                          "\r\n ",
                                          "!",
                                          "<",
                                          "<|",
                                          "'",
                                          "1",
                                          "\xCC\x81",
                                          "a\xCC\x81",
                                          "\xCC\x96\xCC\x81",
                                          "\xE1\x84\x80\xE1\x85\xA1\xE1\x86\xA8",
                                          "\xE3\x80\x80",
                                          "\xFF",
                                          "<|im_end|>"};
  for (const std::string& unit : units) {
    std::string text;
    while (text.size() < 1 << test::draws(20, 17)) text += unit;
    EXPECT_GT(tokenizer.encode(text).size(), 0U) << unit;  // what takes quadratic time does not end within the test's limit
  }
}

TEST(Tokenizer, StopsWhereTheTokensAreTooMany) {
  const Tokenizer& tokenizer = demo_tokenizer();
  const std::string text = "The quick brown fox <|im_end|> jumps over the lazy dog";
  const Ids all = tokenizer.encode(text);
  EXPECT_EQ(tokenizer.encode(text, {.max_tokens = all.size()}), all);
  for (const size_t few : {all.size() - 1, size_t{1}, size_t{0}}) {
    test::expect_error([&] { tokenizer.encode(text, {.max_tokens = few}); }, ErrorCode::kInvalidArgument,
                       {"more than " + std::to_string(few) + " tokens"});
  }
  // What cannot fit by its bytes alone is not even cut into pieces: nobody is asked whether to go on.
  const std::string long_text(1000 * tokenizer.longest_token_bytes(), 'x');
  test::expect_error([&] { tokenizer.encode(long_text, {.max_tokens = 999, .check_in = [] { FAIL() << "worked on"; }}); },
                     ErrorCode::kInvalidArgument, {"more than 999 tokens"});
}

TEST(Tokenizer, AsksNowAndThenWhetherToGoOn) {
  const Tokenizer& tokenizer = demo_tokenizer();
  struct Enough {};
  std::string prose, specials, word, mixed;
  while (prose.size() < 1 << 20) prose += "the ferry crosses the river ";
  while (specials.size() < 1 << 20) specials += "<|im_end|>";
  while (word.size() < 1 << 20) word += "theferrycrossestheriver";
  while (mixed.size() < 1 << 20) mixed += "a<|im_end|>";
  for (const std::string& text : {prose, specials, word, mixed}) {
    int num_asked = 0;
    const auto check_in = [&] {
      if (++num_asked == 5) throw Enough();
    };
    EXPECT_THROW(tokenizer.encode(text, {.check_in = check_in}), Enough) << text.substr(0, 20);
  }
}

TEST(Tokenizer, EncodesFromManyThreads) {
  const json cases = read_json(kSourceDir / "tests/golden/tokenizer_cases.json");
  std::vector<int> num_wrong(5, 0);
  std::vector<std::thread> threads;
  for (int& wrong : num_wrong) {
    threads.emplace_back([&cases, &wrong] {
      for (const json& entry : cases["encode"]) {
        if (demo_tokenizer().encode(entry["text"].get_ref<const std::string&>()) != entry["ids"].get<Ids>()) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(num_wrong, std::vector<int>(5, 0));
}

TEST(Tokenizer, ReadsMergesWrittenAsStrings) {
  const Tokenizer tokenizer = load_changed([](json& root) {
    for (json& merge : root["model"]["merges"]) merge = merge[0].get<std::string>() + " " + merge[1].get<std::string>();
  });
  const std::string text = "The quick brown fox's <|im_end|> jumps";
  EXPECT_EQ(tokenizer.encode(text), demo_tokenizer().encode(text));
}

TEST(Tokenizer, TakesFurtherAddedTokensFromTheConfig) {
  const json config = {
      {"added_tokens_decoder",
       {{"6105", {{"content", "</think>"}, {"special", false}}}, {"6200", {{"content", "</think>>"}, {"special", true}}}}}};
  const Tokenizer tokenizer = load_changed([](json&) {}, config);
  EXPECT_EQ(tokenizer.size(), 6201);
  EXPECT_EQ(tokenizer.encode("</think></think>>"), (Ids{6105, 6200})) << "the longest added token wins";
  EXPECT_EQ(tokenizer.decode(Ids{6105, 6200, 6150}, SpecialTokens::kSkip), "</think>");
}

TEST(Tokenizer, TakesManyAddedTokens) {
  constexpr int kMany = test::draws(50'000, 10'000);
  const auto add_many = [](json& root) {
    for (int i = 0; i < kMany; ++i)
      root["added_tokens"].push_back({{"id", 10'000 + i}, {"content", "<" + std::to_string(i) + ">"}});
  };
  EXPECT_EQ(load_changed(add_many).size(), 10'000 + kMany);
  const json config = {{"added_tokens_decoder", {{"10001", {{"content", "<2>"}}}}}};
  EXPECT_NE(load_error(add_many, config).find("contradicts '<1>' with id 10001"), std::string::npos);
}

TEST(Tokenizer, RefusesOtherKinds) {
  const std::vector<std::pair<const char*, std::function<void(json&)>>> changes = {
      {"'WordPiece'", [](json& root) { root["model"]["type"] = "WordPiece"; }},
      {"byte_fallback", [](json& root) { root["model"]["byte_fallback"] = true; }},
      {"unk_token", [](json& root) { root["model"]["unk_token"] = "<unk>"; }},
      {"'NFKC'",
       [](json& root) {
         root["normalizer"] = {{"type", "NFKC"}};
       }},
      {"pre_tokenizer",
       [](json& root) {
         root["pre_tokenizer"] = {{"type", "Whitespace"}};
       }},
      {"pre_tokenizer", [](json& root) { root["pre_tokenizer"] = nullptr; }},
      {"Split", [](json& root) { root["pre_tokenizer"]["pretokenizers"][0]["behavior"] = "Removed"; }},
      {"use_regex", [](json& root) { root["pre_tokenizer"]["pretokenizers"][1]["use_regex"] = true; }},
      {"decoder",
       [](json& root) {
         root["decoder"] = {{"type", "Metaspace"}};
       }},
      {"post_processor",
       [](json& root) {
         root["post_processor"] = {{"type", "TemplateProcessing"}};
       }},
      {"post_processor",
       [](json& root) {
         root["post_processor"] = template_processing({1, "B"});
       }},
      {"post_processor",
       [](json& root) {
         root["post_processor"] = template_processing({"A", 1, "A"});
       }},
      {"post_processor",
       [](json& root) {
         root["post_processor"] = template_processing({1, 2});
       }},
      {"post_processor",
       [](json& root) {
         root["post_processor"] = template_processing({1, "A"});
         root["post_processor"]["special_tokens"].clear();
       }},
      {"post_processor",
       [](json& root) {
         root["post_processor"] = {{"type", "BertProcessing"}};
       }},
      {"lstrip", [](json& root) { root["added_tokens"][0]["lstrip"] = true; }},
  };
  for (const auto& [expected, change] : changes) {
    EXPECT_NE(load_error(change).find(expected), std::string::npos) << expected << ": " << load_error(change);
  }
}

TEST(Tokenizer, RefusesDamagedFiles) {
  const std::vector<std::pair<const char*, std::function<void(json&)>>> changes = {
      {"vocab", [](json& root) { root["model"].erase("vocab"); }},
      {"two tokens have the id", [](json& root) { root["model"]["vocab"]["!"] = 7; }},
      {"allowed are 0 to", [](json& root) { root["model"]["vocab"]["!"] = -1; }},
      {"allowed are 0 to", [](json& root) { root["model"]["vocab"]["zzzzz"] = 1'000'000'000'000; }},
      {"no token for byte 33", [](json& root) { root["model"]["vocab"].erase("!"); }},
      {"not in the vocabulary",
       [](json& root) {
         root["model"]["merges"].push_back({"!", "zzzzz"});
       }},
      {"merge", [](json& root) { root["model"]["merges"].push_back("one two three"); }},
      {"merges must be a list", [](json& root) { root["model"].erase("merges"); }},
      {"6106, which is no token",
       [](json& root) {
         root["post_processor"] = template_processing({6106, "A"});
       }},
      {"allowed are 0 to",
       [](json& root) {
         root["post_processor"] = template_processing({-1, "A"});
       }},
      {"of another token", [](json& root) { root["added_tokens"][0]["id"] = 5; }},
      {"contradicts", [](json& root) { root["added_tokens"][0]["id"] = 6081; }},
      {"expected an object", [](json& root) { root["added_tokens"][0] = 3; }},
      {"expected an object", [](json& root) { root = json::array(); }},
  };
  for (const auto& [expected, change] : changes) {
    EXPECT_NE(load_error(change).find(expected), std::string::npos) << expected << ": " << load_error(change);
  }
  EXPECT_NE(load_error([](json&) {}, {{"added_tokens_decoder", {{"x1", {{"content", "a"}}}}}}).find("no token id"),
            std::string::npos);
  const CheckpointDir dir;
  EXPECT_THROW(Tokenizer::load(dir.path()), Error);
  dir.write("tokenizer.json", "{\"model\": ");
  EXPECT_THROW(Tokenizer::load(dir.path()), Error);
}

}  // namespace
}  // namespace ferry
