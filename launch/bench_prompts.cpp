#include "launch/bench_prompts.h"

#include <array>
#include <string_view>

#include "runtime/base/error.h"

namespace ferry {
namespace {

constexpr std::array<std::string_view, 64> kOpenings{
    "The old bridge over the river was built when the town",
    "A river is a large natural stream of water that",
    "The kernel of an operating system decides which program",
    "To copy a file from one directory to another,",
    "Bread is made of flour, water, salt and yeast, which",
    "In the morning the fishermen went down to the harbour",
    "The database keeps every change in a log before it",
    "A verb is a word that says what someone",
    "When the snow melts in spring, the valleys",
    "The package manager downloads the archive and checks",
    "Every prime number greater than two is odd, because",
    "The library has a collection of maps that show",
    "To restart the server without losing connections, first",
    "A lens bends light so that the rays meet",
    "The history of the city begins with a small market",
    "Steel is an alloy of iron and carbon that",
    "If the disk is full, the program cannot write",
    "The violin has four strings, which are tuned",
    "Wheat is grown in cool and dry countries, where",
    "The compiler reads the source text and turns it into",
    "A good teacher explains a difficult idea by",
    "The moon moves around the earth in about",
    "Before the network can be used, the interface must",
    "Salt was once so valuable that merchants",
    "The heart is a muscle that pumps blood through",
    "A clock measures time by counting",
    "The first railway in the country connected",
    "To install the program from its sources, you need",
    "Honey is a sweet substance that bees make from",
    "The council decided that the old theatre should",
    "Memory that is no longer used is given back to",
    "A volcano is an opening in the crust of the earth through which",
    "The letters of the alphabet are arranged in",
    "Most birds build their nests in places where",
    "The user can change the password by typing the command",
    "Glass is made by melting sand together with",
    "In a long war both sides soon learn that",
    "The price of a good rises when many people",
    "A shell script is a text file that contains",
    "Clouds form when warm and moist air rises and",
    "The judge listened to both sides before she",
    "An insect has six legs and a body that",
    "The mail server accepts messages from other hosts and",
    "Paper was invented in China, where people",
    "The ship left the port at night and sailed",
    "A triangle is a plane figure with three",
    "Permissions say who may read, write or execute a",
    "The doctor told him to rest for a week and",
    "Cotton grows in warm countries and is used for",
    "The garden behind the house was full of",
    "A backup is worth nothing unless somebody has",
    "Winds that blow from the sea bring rain to",
    "The printer is connected to the computer by a cable which",
    "Courage is the quality of mind that enables",
    "The film tells the story of two brothers who",
    "A key is a small piece of metal that",
    "The system calls of the kernel are described in",
    "Horses were used for work on farms until",
    "The table below lists all options together with",
    "A forest is a large area of land covered with",
    "The king had three daughters, and the youngest",
    "Electric current flows through a wire when",
    "The page explains how to mount a file system that",
    "Music is the art of arranging sounds in time so",
};

/// No two alike for up to 64 * 64 sequences: from the 65th on another opening stands before.
std::string opening(std::size_t sequence) {
  const std::size_t own = sequence % kOpenings.size(), round = sequence / kOpenings.size();
  const std::string text(kOpenings[own]);
  return round == 0 ? text : std::string(kOpenings[(own + round) % kOpenings.size()]) + " it. " + text;
}

}  // namespace

std::vector<std::vector<TokenId>> opening_prompts(const Tokenizer& tokenizer, int64_t num_sequences, int64_t max_tokens) {
  std::vector<std::vector<TokenId>> prompts;
  for (int64_t s = 0; s < num_sequences; ++s) {
    std::vector<TokenId>& prompt = prompts.emplace_back(tokenizer.encode_prompt(opening(static_cast<std::size_t>(s))));
    if (std::ssize(prompt) > max_tokens) prompt.resize(static_cast<std::size_t>(max_tokens));
  }
  return prompts;
}

std::vector<std::vector<TokenId>> text_prompts(const Tokenizer& tokenizer, const std::string& text, int64_t num_sequences,
                                               int64_t max_tokens) {
  const std::vector<TokenId> tokens = tokenizer.encode_prompt(text);
  const int64_t last_begin = std::ssize(tokens) - max_tokens;
  if (last_begin < num_sequences - 1) {
    throw_invalid("a text of " + std::to_string(tokens.size()) + " tokens for the prompts of " + std::to_string(num_sequences) +
                  " sequences; allowed: at least " + std::to_string(max_tokens + num_sequences - 1));
  }
  std::vector<std::vector<TokenId>> prompts;
  for (int64_t s = 0; s < num_sequences; ++s) {
    const auto begin = tokens.begin() + (num_sequences > 1 ? last_begin * s / (num_sequences - 1) : 0);
    prompts.emplace_back(begin, begin + max_tokens);
  }
  return prompts;
}

std::vector<std::vector<TokenId>> numbered_prompts(int64_t vocab_size, int64_t num_sequences, int64_t num_tokens) {
  std::vector<std::vector<TokenId>> prompts;
  for (int64_t s = 0; s < num_sequences; ++s) {
    std::vector<TokenId>& prompt = prompts.emplace_back();
    for (int64_t i = 0; i < num_tokens; ++i) prompt.push_back(static_cast<TokenId>((s * 7919 + i * 104729 + 17) % vocab_size));
  }
  return prompts;
}

}  // namespace ferry
