#include "runtime/options/option_words.h"

#include <algorithm>
#include <optional>
#include <string_view>

namespace ferry {
namespace {

constexpr const char* kLeftOut = nullptr;

constexpr OptionWord kWords[] = {
    // These options can be absent.
    {"--allow-remote-images", "off", kLeftOut},
    {"--allowed-host", "off", kLeftOut},
    {"--allowed-origin", "off", kLeftOut},
    {"--api-key-file", "off", kLeftOut},
    {"--decode-slo-ms", "off", kLeftOut},
    {"--default-chat-template-kwargs", "off", kLeftOut},
    {"--elastic", "off", kLeftOut},
    {"--expert-load", "off", kLeftOut},
    {"--fault", "off", kLeftOut},
    {"--join-key", "off", kLeftOut},
    {"--otlp-traces-endpoint", "off", kLeftOut},
    {"--override-generation-config", "off", kLeftOut},
    {"--tls-ca", "off", kLeftOut},
    {"--tls-cert", "off", kLeftOut},
    {"--tls-client-ca", "off", kLeftOut},
    {"--tls-key", "off", kLeftOut},
    {"--trace", "off", kLeftOut},
    {"--trace-dir", "off", kLeftOut},
    {"--trace-sample", "off", kLeftOut},
    {"--linger", "off", "0"},
    {"--micro-batch", "off", "0"},
    {"--picture-cache", "off", "0B"},
    {"--picture-tokens", "off", "0"},
    {"--prefix-cache-disk", "off", "0B"},
    {"--prefix-cache-memory", "off", "0B"},
    {"--quantize", "off", "none"},
    {"--rebalance", "off", "0"},
    {"--redundancy", "off", "0"},
    {"--speculate", "off", "0"},
    {"--sse-keep-alive-interval", "off", "0"},
    {"--swap-memory", "off", "0B"},
    // Ferry chooses or measures these where nothing is said.
    {"--dtype", "auto", kLeftOut},
    {"--max-context", "auto", kLeftOut},
    {"--micro-batch", "auto", kLeftOut},
    {"--net-interface", "auto", kLeftOut},
    {"--placement", "auto", kLeftOut},
    {"--policy", "auto", kLeftOut},
    {"--prefix-cache-memory", "auto", kLeftOut},
    {"--quantize", "auto", kLeftOut},
    {"--scheduling-policy", "auto", kLeftOut},
    {"--threads", "auto", kLeftOut},
    // Other programs have these names for types.
    {"--dtype", "bfloat16", "bf16"},
    {"--dtype", "float32", "f32"},
};

const OptionWord* find_word(std::string_view option, std::string_view word) {
  const auto* const found =
      std::ranges::find_if(kWords, [&](const OptionWord& each) { return each.option == option && each.word == word; });
  return found == std::end(kWords) ? nullptr : found;
}

/// "--name=value" or, where the value is the next argument, "--name" and "value".
struct GivenOption {
  std::string_view name, value;
  std::size_t num_arguments;
};

std::optional<GivenOption> option_at(std::span<const char* const> arguments) {
  const std::string_view first = arguments.front();
  if (!first.starts_with("--")) return std::nullopt;
  if (const std::size_t equals = first.find('='); equals != std::string_view::npos)
    return GivenOption{first.substr(0, equals), first.substr(equals + 1), 1};
  if (arguments.size() == 1) return std::nullopt;
  return GivenOption{first, arguments[1], 2};
}

/// The command that `argument` names, or `app` itself.
const CLI::App& command_of(const CLI::App& app, const std::string& argument) {
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (command->check_name(argument)) return *command;
  }
  return app;
}

}  // namespace

std::span<const OptionWord> option_words() { return kWords; }

std::vector<std::string> replace_option_words(const CLI::App& app, std::span<const char* const> arguments) {
  std::vector<std::string> replaced;
  const CLI::App* command = &app;
  for (std::size_t a = 1; a < arguments.size();) {
    const std::optional<GivenOption> given = option_at(arguments.subspan(a));
    const OptionWord* const word = given ? find_word(given->name, given->value) : nullptr;
    if (word == nullptr || command->get_option_no_throw(word->option) == nullptr) {
      if (!given) command = &command_of(*command, arguments[a]);
      replaced.emplace_back(arguments[a++]);
      continue;
    }
    a += given->num_arguments;
    if (word->value == nullptr) continue;
    replaced.emplace_back(word->option);
    replaced.emplace_back(word->value);
  }
  return replaced;
}

}  // namespace ferry
