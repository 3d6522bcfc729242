#include "runtime/options/refusals.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/quoting.h"
#include "runtime/options/nearest_word.h"

namespace ferry {
namespace {

/// CLI11's words for a value that is missing or given twice, in ours: it shows types and counts of its own.
std::string reword(const std::string& text) {
  const std::string name = text.substr(0, text.find(": "));
  const std::size_t begin = text.find(":["), end = text.rfind(']');
  if (text.ends_with(" missing")) {
    const bool has_range = begin != std::string::npos && end != std::string::npos;
    return name + ": a value is missing" + (has_range ? "; allowed: " + text.substr(begin + 2, end - begin - 2) : "");
  }
  const std::size_t received = text.find(" required but received ");
  if (received == std::string::npos || name.size() + 2 > received) return text;
  const std::string given = text.substr(text.rfind(' ') + 1), bound = text.substr(name.size() + 2, received - name.size() - 2);
  if (bound.starts_with("At least ")) return name + ": " + given + " given; allowed: at least " + bound.substr(9);
  const std::string most = bound.substr(bound.rfind(' ') + 1);
  if (most == "1") return name + ": given " + given + " times; allowed: once";
  return name + ": " + given + " given; allowed: at most " + most;
}

/// "a\nb" as one line: CLI11 joins several complaints by newlines.
std::string joined_lines(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return printable(text);
}

/// The command that was recognised last.
const CLI::App& innermost(const CLI::App& app) {
  const CLI::App* at = &app;
  while (!at->get_subcommands().empty()) at = at->get_subcommands().front();
  return *at;
}

std::vector<std::string> extras(const CLI::App& app) {
  std::vector<std::string> all;
  for (const CLI::App* at = &app; at != nullptr; at = at->get_subcommands().empty() ? nullptr : at->get_subcommands().front())
    std::ranges::copy(at->remaining(), std::back_inserter(all));
  return all;
}

/// The option of a command that `argument` may stand for: one with a similar name, or --model for a folder without an option.
std::optional<std::string> meant_option(const CLI::App& command, const std::string& argument) {
  constexpr std::string_view kDashes = "--";
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) std::ranges::copy(option->get_lnames(), std::back_inserter(names));
  if (argument.starts_with(kDashes)) {
    const std::string name = argument.substr(kDashes.size(), argument.find('=') - kDashes.size());
    const std::optional<std::string> nearest = nearest_word(name, names);
    return nearest ? std::optional(std::string(kDashes) + *nearest) : std::nullopt;
  }
  std::error_code code;
  const bool is_model = argument == "demo" || std::filesystem::is_directory(argument, code);
  const bool takes_model = std::ranges::find(names, "model") != names.end();
  return is_model && takes_model ? std::optional("--model " + argument) : std::nullopt;
}

}  // namespace

ParseResult refuse(const std::string& message) {
  return {.options = std::nullopt, .message = joined_lines(message), .exit_code = 2};
}

bool lacks_command(const CLI::App& app) { return innermost(app).get_require_subcommand_min() > 0; }

ParseResult refuse_command(const CLI::App& app, int argc, const char* const* argv) {
  const CLI::App& asked = innermost(app);
  std::string allowed;
  std::vector<std::string> commands;
  for (const CLI::App* sub : asked.get_subcommands([](const CLI::App*) { return true; })) {
    commands.push_back(sub->get_name());
    allowed += (allowed.empty() ? "" : ", ") + commands.back();
  }
  const bool is_first = &asked == &app;
  const std::string whole = is_first ? app.get_name() : app.get_name() + " " + asked.get_name();
  const int at = is_first ? 1 : 2;
  std::string given = "a command is missing";
  if (argc > at) {
    given = "'" + std::string(argv[at]) + "' is not a command";
    if (const std::optional<std::string> meant = nearest_word(argv[at], commands)) given += " (did you mean '" + *meant + "'?)";
  }
  return refuse(given + (is_first ? "" : " behind " + whole) + "; allowed: " + allowed + " (" + whole + " --help)");
}

ParseResult refuse_count(const std::string& text) { return refuse(reword(text)); }

bool has_extras(const CLI::App& app) { return !extras(app).empty(); }

ParseResult refuse_extras(const CLI::App& app) {
  const std::vector<std::string> all = extras(app);
  std::string given;
  for (const std::string& argument : all) given += (given.empty() ? "'" : ", '") + argument + "'";
  const std::optional<std::string> meant = all.empty() ? std::nullopt : meant_option(innermost(app), all.front());
  return refuse("not expected: " + given + (meant ? " (did you mean " + *meant + "?)" : ""));
}

}  // namespace ferry
